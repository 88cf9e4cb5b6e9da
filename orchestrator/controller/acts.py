"""What a person does to a campaign, written into the trail: who, what, and by which command."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.core.secrets import mask_words

if TYPE_CHECKING:
    from orchestrator.ledger import Ledger


def who() -> str:
    """The person at this terminal, as `user@machine`."""
    name = os.environ.get("SUDO_USER") or _account()
    return f"{name}@{socket.gethostname()}"


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        return f"uid {os.getuid()}"


def by_whom() -> dict[str, str]:
    """Who began this process, and with which command; secrets on it are masked."""
    return {"who": who(), "command": shlex.join(mask_words(["orchestrator", *sys.argv[1:]]))}


def record_act(ledger: Ledger, phase: str, campaign: str, data: Mapping[str, Any]) -> None:
    """One line of the trail."""
    ledger.note(phase, {**by_whom(), "campaign": campaign, **data})
