"""A guarded block at the end of `sitecustomize.py`.

The block runs in every process of the server before anything else. It must never stop the start, and a failure in it
must be seen: it is written to stderr with its marker.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Mapping

from orchestrator.errors import PatchConflict, Place, UsageError

_BEGIN = "# >>> orchestrator {id} >>> added for one experiment, removed by its revert"
_END = "# <<< orchestrator {id} <<<"
_FIND = re.compile(rb"^# >>> orchestrator ([A-Za-z0-9._-]+) >>>", re.MULTILINE)
_MARKER_ID = re.compile(r"[A-Za-z0-9._-]+")
_FRAME = """\
{begin}
try:
{body}
except (Exception, SystemExit):
    import sys
    import traceback

    if sys.stderr is not None:
        sys.stderr.write("orchestrator: block {id} in sitecustomize failed, the start goes on without it\\n")
        traceback.print_exc(file=sys.stderr)
{end}
"""


def marker_ids(content: bytes) -> list[str]:
    """The ids of our blocks in a file, in order."""
    return [match.decode("ascii") for match in _FIND.findall(content)]


def with_block(found: bytes | None, block: str, marker_id: str, *, beside: Collection[str] = ()) -> bytes:
    """`found` (None: no file) with the block at its end.

    Blocks named in `beside` belong to the same change set and may stand there already; any other block of ours is a
    leftover: `PatchConflict`. A block that is not Python, or an unusable id, is a `UsageError`.
    """
    if not _MARKER_ID.fullmatch(marker_id):
        raise UsageError(f"{marker_id!r} cannot name a block: letters, digits, dot, dash and underscore only")
    content = found or b""
    strangers = [i for i in marker_ids(content) if i == marker_id or i not in beside]
    if strangers:
        raise PatchConflict(
            "a block of ours is already in the file",
            facts={"block": ", ".join(strangers), "line": str(_line_of(content, strangers[0]))},
            hint="it is left from an earlier run: recover the host first",
        )
    encoding = _encoding(content)
    framed = _frame(block, marker_id)
    try:
        raw = framed.encode(encoding)
    except UnicodeEncodeError as error:
        raise UsageError(f"block {marker_id} cannot be written in the file's own encoding, {encoding}") from error
    gap = b"" if not content or content.endswith(b"\n") else b"\n"
    return content + gap + raw


def env_source(env: Mapping[str, str | None]) -> str:
    """Python that sets these variables, or removes those that are None; pure ASCII, exact in every byte."""
    lines = ["import os", ""]
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in (value or ""):
            raise UsageError(f"{name!r} cannot be an environment variable with the value {value!r}")
        key = ascii(name)
        lines.append(f"os.environ.pop({key}, None)" if value is None else f"os.environ[{key}] = {value!a}")
    return "\n".join(lines) + "\n"


def _frame(block: str, marker_id: str) -> str:
    lines = _parse(block, marker_id)
    framed = _FRAME.format(
        begin=_BEGIN.format(id=marker_id), end=_END.format(id=marker_id), id=marker_id, body="\n".join(lines)
    )
    try:
        compile(framed, f"block {marker_id}", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"block {marker_id} cannot be guarded: {error}") from error
    return framed


def _parse(block: str, marker_id: str) -> list[str]:
    """The block's lines, indented; the inner lines of a long string stay as they are, since they are its value."""
    try:
        tree = ast.parse(block)
    except SyntaxError as error:
        where = Place(f"block {marker_id}", error.lineno, error.offset, (error.text or "").rstrip("\n"))
        raise UsageError(f"not Python: {error.msg}", where=where) from error
    except ValueError as error:
        raise UsageError(f"block {marker_id} is not Python: {error}") from error
    if not tree.body:
        raise UsageError(f"block {marker_id} does nothing")
    inside: set[int] = set()
    for node in ast.walk(tree):
        is_string = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        )
        if is_string and isinstance(node, ast.expr) and node.end_lineno is not None:
            inside.update(range(node.lineno + 1, node.end_lineno + 1))
    lines = block.replace("\r\n", "\n").rstrip("\n").split("\n")
    return [line if n in inside or not line else "    " + line for n, line in enumerate(lines, start=1)]


def _encoding(content: bytes) -> str:
    """The encoding Python reads the file in; a byte order mark at its start counts only there."""
    try:
        name, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        raise PatchConflict(f"the file found is not Python: {error}") from error
    return "utf-8" if name == "utf-8-sig" else name


def _line_of(content: bytes, marker_id: str) -> int:
    start = content.index(b"# >>> orchestrator " + marker_id.encode("ascii") + b" >>>")
    return content.count(b"\n", 0, start) + 1
