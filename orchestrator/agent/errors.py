"""The one error the agent raises on purpose; it travels to the controller as it is."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional


class AgentError(Exception):
    """What went wrong, as one of the kinds of the protocol.

    `kind` is `busy`, `refused`, `conflict`, `dirty`, `findings`, `unreachable`, `usage`, or `failed` for an error of
    the operating system. `facts` are strings for people and programs, `hint` is what to do next.
    """

    def __init__(
        self, kind: str, what: str, facts: Optional[Mapping[str, str]] = None, hint: Optional[str] = None
    ) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.facts: Dict[str, str] = dict(facts or {})
        self.hint = hint

    def as_reply(self) -> Dict[str, object]:
        """The `error` member of a reply frame."""
        return {"kind": self.kind, "what": self.what, "facts": self.facts, "hint": self.hint}


def failed(error: OSError, call: str) -> AgentError:
    """An operating-system error in the shape of the protocol: facts `errno`, `path`, `call`."""
    number = error.errno or 0
    path = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    reason = error.strerror or str(error)
    what = f"{call}: {reason}" + (f" ({path})" if path else "")
    return AgentError("failed", what, {"errno": str(number), "path": path, "call": call})
