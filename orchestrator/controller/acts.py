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


def record_act(ledger: Ledger, phase: str, campaign: str, data: Mapping[str, Any]) -> None:
    """One line of the trail."""
    command = shlex.join(mask_words(["orchestrator", *sys.argv[1:]]))
    ledger.note(phase, {"who": who(), "campaign": campaign, "command": command, **data})
