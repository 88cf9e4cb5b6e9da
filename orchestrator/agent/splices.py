"""Replaced files that travel as what differs: put together from the file that is there."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Dict, List, Sequence

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs


def expand(fs: Fs, files: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The same changes with their whole content. A file that is not there, or is another one, is left to the preflight,
    which compares it with `before_sha256` and says what it found; nothing built upon it is ever written."""
    fs.forget_contents()
    return [_expand_one(fs, file) if file.get("splice") else file for file in files]


def _expand_one(fs: Fs, file: Dict[str, Any]) -> Dict[str, Any]:
    path, splice = str(file.get("path")), file["splice"]
    try:
        middle = base64.b64decode(splice["middle_b64"], validate=True)
        start, kept = int(splice["start"]), int(splice["kept"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise AgentError("usage", f"not a splice: {error}", {"path": path}) from error
    try:
        before = fs.read_file(path)
    except OSError:
        before = b""
    content = b""
    if fs.sha256_of(before) == file.get("before_sha256"):
        content = before[:start] + middle + before[len(before) - kept :]
        if fs.sha256_of(content) != splice.get("after_sha256"):
            raise AgentError("usage", "the splice does not make the file it names", {"path": path})
    whole = {name: value for name, value in file.items() if name != "splice"}
    return {**whole, "content": content}
