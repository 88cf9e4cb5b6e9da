"""Why nothing of ours answered at the end of a route: evidence in, one sentence and a hint out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """What was left when a route ended, or fell silent, before the agent spoke.

    `argv` is what ran there, without the bootstrap; `noise` the text before the marker; `exit_code` None while it runs.
    """

    argv: tuple[str, ...]
    stderr: str
    noise: str
    exit_code: int | None
    python: str


_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"sudo: .*(password is required|terminal is required|no tty present|askpass)",
        "passwordless sudo is not available there",
        "allow it for this user (NOPASSWD in sudoers), or take `sudo: true` out of the route",
    ),
    (
        r"is not in the sudoers file|not allowed to (run|execute)",
        "sudo does not allow this user",
        "ask its administrator",
    ),
    (
        r"too old: python (?P<found>\S+)",
        "its python is too old: {found}, and the agent needs 3.8",
        "name a newer interpreter with `python:` in the route",
    ),
    (
        r"bad archive: (?P<found>\d+)",
        "the agent's archive arrived damaged ({found} bytes)",
        "something on the route changes its input: a pty (`-t`), or a hop that reads standard input itself",
    ),
    (
        r"No such container|container .* is not running|CT is not running|not running",
        "the container is not there or not running",
        "start it, or correct its name in the route's hops",
    ),
    (r"pods? .* not found|Error from server", "kubectl refused", "correct the pod's name or your access to it"),
    (
        r"Host key verification failed",
        "an inner ssh hop does not know the next host's key",
        "add it to known_hosts on the machine where that ssh runs",
    ),
    (
        r"Permission denied \(.*\)",
        "an inner ssh hop was not let in; it never asks for a password",
        "put a key for the next host on the machine where that ssh runs",
    ),
    (
        r"No space left on device",
        "the host's disk is full",
        "free some space there: the agent needs a few kilobytes, or memory",
    ),
    (
        r"This account is currently not available|nologin",
        "the login shell of this account refuses commands",
        "use an account with a shell",
    ),
    (r"the input device is not a TTY|cannot enable tty mode", "a hop asks for a terminal", "take `-t` out of that hop"),
)
_MISSING = r"(?:command |executable file )?not found|No such file or directory|can't execute|cannot execute"


def explain(ending: Ending) -> tuple[str, str]:
    """The most likely cause, then what to do about it."""
    text = f"{ending.stderr}\n{ending.noise[-4000:]}"
    for pattern, sentence, hint in _CAUSES:
        if found := re.search(pattern, text):
            return sentence.format(**found.groupdict()), hint
    if missing := _missing_word(ending, text):
        if missing == ending.python:
            return (
                f"there is no {missing} at the end of the route",
                "install Python 3.8 or newer there, or name one with `python:` in the route",
            )
        return f"{missing} is not installed where the route needs it", "correct the route's hops"
    return _silence(ending)


def _missing_word(ending: Ending, text: str) -> str | None:
    """The word of the route that a shell, env, docker or sudo says it could not start."""
    lines = [line for line in text.splitlines() if re.search(_MISSING, line)]
    for word in sorted({ending.python, *ending.argv}, key=len, reverse=True):
        whole_word = re.compile(rf"(?<![\w./-]){re.escape(word)}(?![\w.-])")
        if len(word) > 1 and any(whole_word.search(line) for line in lines):
            return word
    return None


def _silence(ending: Ending) -> tuple[str, str]:
    if ending.exit_code is None:
        return (
            "it runs and says nothing",
            "does a hop wait for input, or keep standard output to itself? Run the command by hand",
        )
    if ending.exit_code == 0:
        return (
            "it ended without a word, and with success",
            "a hop must pass on the words behind it (`sh -c 'exec \"$@\"' x`, not `sh -c true`)",
        )
    return f"it ended with exit code {ending.exit_code}", "run the command by hand to see why"
