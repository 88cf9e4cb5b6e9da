"""Why no agent spoke: causes and hints from what was left."""

from __future__ import annotations

import pytest

from orchestrator.hosts.failures import Ending, explain

ARGV = ("pct", "exec", "129", "--", "python3")


@pytest.mark.parametrize(
    ("stderr", "code", "cause", "hint"),
    [
        ("sudo: a password is required\n", 1, "passwordless sudo is not available", "NOPASSWD"),
        ("sudo: a terminal is required to read the password", 1, "passwordless sudo is not available", "NOPASSWD"),
        ("sudo: no tty present and no askpass program specified", 1, "passwordless sudo", "NOPASSWD"),
        ("bash: line 1: python3: command not found", 127, "there is no python3", "python:"),
        ('exec: "python3": executable file not found in $PATH', 126, "there is no python3", "python:"),
        ("sh: 1: pct: not found", 127, "pct is not installed", "hops"),
        ("too old: python 3.6", 1, "too old: 3.6", "python:"),
        ("bad archive: 4095", 1, "damaged (4095 bytes)", "pty"),
        ("CT 129 is not running", 1, "container", "start it"),
        ("Error: No such container: x", 1, "container", "start it"),
        ("the input device is not a TTY", 1, "asks for a terminal", "-t"),
        ("Host key verification failed.", 255, "does not know the next host's key", "known_hosts"),
        ("root@inner: Permission denied (publickey).", 255, "was not let in", "key"),
        ("OSError: [Errno 28] No space left on device", 1, "disk is full", "space"),
        ("This account is currently not available.", 1, "login shell", "account"),
        ("", 0, "without a word, and with success", "pass on the words"),
        ("", 3, "exit code 3", "by hand"),
        ("", None, "says nothing", "wait for input"),
    ],
)
def test_causes(stderr: str, code: int | None, cause: str, hint: str) -> None:
    """Each known ending gets its own sentence and a hint that helps with it."""
    said, advice = explain(Ending(ARGV, stderr, "", code, "python3"))
    assert cause in said and hint in advice


def test_a_word_inside_another_word_is_not_blamed() -> None:
    """`python3` is not missing because `/x/python3-config` is."""
    said, _ = explain(Ending(ARGV, "sh: /x/python3-config: not found", "", 127, "python3"))
    assert said == "it ended with exit code 127"
