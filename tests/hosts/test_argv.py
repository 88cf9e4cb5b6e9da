"""Routes as argument vectors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.model import Route, SshHop
from orchestrator.errors import UsageError
from orchestrator.hosts.argv import route_argv, route_command

SHOW = [sys.executable, "-c", "import json,sys; print(json.dumps(sys.argv[1:]))"]
AWKWARD = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "$HOME",
    "`id`",
    "\\",
    "\\n",
    "\n",
    "{}",
    '{"a": [1, "b c"]}',
    "*",
    "~",
    "!x",
    "ä€",
    "-n",
]


def sshd_runs(command: str) -> list[str]:
    """What a program at the end sees of its words when sshd hands `command` to the login shell."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def fake_ssh(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with an `ssh` that does to its words what ssh and sshd do: join them by blanks, run them by a shell."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "ssh"
    script.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec sh -c "$*"\n')
    script.chmod(0o755)
    return str(folder)


words = st.lists(
    st.one_of(st.sampled_from(AWKWARD), st.text(st.characters(codec="utf-8", exclude_characters="\0"))), max_size=5
)
prefixes = st.lists(st.sampled_from([("env",), ("env", "A=b c"), ("sh", "-c", 'exec "$@"', "x y"), "ssh"]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(words=words, chain=prefixes)
def test_words_arrive_unchanged_through_any_chain(words: list[str], chain: list[object], fake_ssh: str) -> None:
    """Through up to four nested shells and shell-less prefixes, every word arrives byte for byte."""
    hops = tuple(SshHop(ssh="user@inner") if hop == "ssh" else hop for hop in chain)
    command = route_command(Route.model_validate({"hops": hops}), [*SHOW, *words])
    assert sshd_runs(f"PATH={fake_ssh}:$PATH; {command}") == words


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox", "zsh", "fish", "tcsh"])
def test_the_bootstrap_reads_alike_in_every_shell(shell: str, tmp_path: Path) -> None:
    """The bootstrap's argument survives whichever login shell is installed here."""
    from orchestrator.hosts.bootstrap import program

    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    command = route_command(Route(), [*SHOW, program(), "a"])
    argv = [shell, "sh", "-c", command] if shell == "busybox" else [shell, "-c", command]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, env={"HOME": str(tmp_path), "PATH": "/bin:/usr/bin"}
    )
    assert json.loads(done.stdout) == [program(), "a"]


def test_hops_are_prefixes_in_order_and_sudo_is_last() -> None:
    """Shell-less hops stand before the words unquoted; `sudo -n` stands right before the interpreter."""
    route = Route.model_validate({"hops": ["pct exec 129 --", ["docker", "exec", "-i", "a b"]], "sudo": True})
    assert route_argv(route, ["python3", "x y"]) == [
        *["pct", "exec", "129", "--", "docker", "exec", "-i", "a b", "sudo", "-n", "--", "python3", "x y"]
    ]


def test_an_ssh_hop_gets_one_quoted_word_and_never_asks() -> None:
    """What follows an ssh hop is one word for the shell at its far side, and a password prompt is ruled out."""
    route = Route.model_validate({"hops": [{"ssh": "inner", "options": ["-p", "2222"]}]})
    assert route_argv(route, ["python3", "a b"]) == [
        *["ssh", "-T", "-o", "BatchMode=yes", "-p", "2222", "--", "inner", "python3 'a b'"]
    ]


@pytest.mark.parametrize("name", ["-oProxyCommand=evil", ""])
def test_an_ssh_hop_cannot_be_an_option(name: str) -> None:
    """A destination that ssh would take for an option is refused."""
    with pytest.raises(UsageError):
        route_argv(Route(hops=(SshHop(ssh=name),)), ["python3"])
