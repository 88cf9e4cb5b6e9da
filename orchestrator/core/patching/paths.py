"""Paths as they stand in a diff: quoted or not, with prefixes to strip, and never trusted."""

from __future__ import annotations

import re

_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_NEEDS_QUOTES = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
NOWHERE = "/dev/null"


class UnsafePath(ValueError):
    """A path that could leave the tree, or is none. The text says why."""


def decode(raw: bytes) -> str:
    """Bytes of a file name → text that `os.fsencode` turns back into the same bytes."""
    return raw.decode("utf-8", "surrogateescape")


def encode(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def quote(path: str) -> bytes:
    """A path as git writes it into a header: in quotes only where a byte needs an escape."""
    raw = encode(path)
    if not _NEEDS_QUOTES.search(raw):
        return raw
    letters = {code: b"\\" + letter for letter, code in _ESCAPES.items()}
    body = b"".join(
        letters.get(byte) or (b"\\%03o" % byte if byte < 32 or byte > 126 else bytes([byte])) for byte in raw
    )
    return b'"' + body + b'"'


def unquote(raw: bytes) -> tuple[str, bytes]:
    """A quoted path at the start of `raw` → the path, and what follows the closing quote."""
    match = _QUOTED.match(raw)
    if match is None:
        raise UnsafePath("the quoted path has no closing quote")

    def one(escape: re.Match[bytes]) -> bytes:
        body = escape.group(1)
        if len(body) == 3:
            return bytes([int(body, 8)])
        if body not in _ESCAPES:
            raise UnsafePath(f"unknown escape \\{body.decode('latin-1')} in a quoted path")
        return bytes([_ESCAPES[body]])

    return decode(_ESCAPE.sub(one, match.group(1))), raw[match.end() :]


def read_name(raw: bytes) -> tuple[str, str]:
    """What follows `--- ` or `+++ ` → path and time stamp (empty when there is none)."""
    if raw.startswith(b'"'):
        path, rest = unquote(raw)
        return path, decode(rest.strip())
    name, _, stamp = raw.partition(b"\t")
    return decode(name), decode(stamp.strip())


def strip_prefix(path: str, level: int) -> str:
    """`a/x/y` at level 1 → `x/y`; runs of slashes count once, as in patch(1)."""
    rest = path
    for _ in range(level):
        _, slash, tail = rest.partition("/")
        if not slash:
            raise UnsafePath(f"{path!r} has fewer than {level} leading parts to strip")
        rest = tail.lstrip("/")
    return rest


def safe_path(path: str) -> str:
    """The path, normalised and relative to the tree, or `UnsafePath`."""
    if not path:
        raise UnsafePath("the path is empty")
    if "\0" in path:
        raise UnsafePath("the path holds a NUL byte")
    if path.startswith("/"):
        raise UnsafePath(f"{path!r} is absolute")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafePath(f"{path!r} climbs out with '..'")
    if ".git" in parts:
        raise UnsafePath(f"{path!r} lies in a git directory")
    if not parts or path.endswith("/"):
        raise UnsafePath(f"{path!r} names no file")
    return "/".join(parts)


def shared_name(rest: bytes, level: int) -> str | None:
    """The one path that both sides of `diff --git OLD NEW` name once stripped, or None.

    Unquoted names may hold blanks, so every blank is tried as the border.
    """
    if rest.startswith(b'"'):
        old, tail = unquote(rest)
        new = unquote(tail[1:])[0] if tail[1:].startswith(b'"') else decode(tail[1:])
        pairs = [(old, new)]
    else:
        cuts = [i for i, byte in enumerate(rest) if byte == 32]
        pairs = [(decode(rest[:i]), _maybe_quoted(rest[i + 1 :])) for i in cuts]
    for old, new in pairs:
        try:
            if strip_prefix(old, level) == strip_prefix(new, level):
                return strip_prefix(old, level)
        except UnsafePath:
            continue
    return None


def _maybe_quoted(raw: bytes) -> str:
    try:
        return unquote(raw)[0] if raw.startswith(b'"') else decode(raw)
    except UnsafePath:
        return decode(raw)
