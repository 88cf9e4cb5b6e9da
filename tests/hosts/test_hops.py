"""Hops, shells and start-up files between the login and the agent, on a real sshd."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from orchestrator.errors import Unreachable
from orchestrator.hosts import Connection, connect
from tests.sshd import Sshd, SshdFactory


@pytest.mark.parametrize(
    "hops",
    [
        [["sh", "-c", 'exec "$@"', "x"]],
        [["env", "A=b c 'd' \"e\" $HOME \\ {}"]],
        ["nice -n 1", ["sh", "-c", 'echo "banner {\\"id\\": 1}"; exec "$@"', "a b"], "env -u NOTHING"],
    ],
)
def test_chains_of_prefixes(sshd: Sshd, hops: list[object]) -> None:
    """Shell-less prefixes, a shell that execs its words, quotes and blanks: the agent answers behind all of them."""
    with connect(sshd.route(hops=hops), name="gpu1") as connection:
        assert connection.hello["protocol"] == 1


def variable(connection: Connection, name: str) -> str:
    """A variable of the agent's own environment, as its children get it."""
    command = {"name": "it", "argv": ["printenv", "--null", name], "timeout_s": 10.0}
    return str(connection.call("run", {"commands": [command]})["it"]["stdout"]).removesuffix("\0")


def test_the_environment_of_a_hop_arrives_exactly(sshd: Sshd) -> None:
    """A value with blank, quotes, dollar, backslash and newline is what the agent has in its environment."""
    value = "b c 'd' \"e\" $HOME \\ {}\nx"
    with connect(sshd.route(hops=[["env", f"A={value}"]]), name="gpu1") as connection:
        assert variable(connection, "A") == value


def test_an_inner_ssh(sshd: Sshd) -> None:
    """A further ssh run on the host, with its own options, leads on; its shell gets one quoted word."""
    options = ["-p", str(sshd.port), "-i", str(sshd.key), "-o", f"UserKnownHostsFile={sshd.known_hosts}", "-F", "none"]
    hops = [{"ssh": "root@127.0.0.1", "options": options}, ["env", "A=b 'c' $d"]]
    with connect(sshd.route(hops=hops), name="gpu1") as connection:
        assert variable(connection, "A") == "b 'c' $d"
        assert len(variable(connection, "SSH_CONNECTION").split()) == 4


def test_an_inner_ssh_that_does_not_know_the_host(sshd: Sshd, tmp_path: Path) -> None:
    """The inner ssh never asks: its refusal is explained."""
    options = ["-p", str(sshd.port), "-o", f"UserKnownHostsFile={tmp_path}/none", "-F", "none"]
    with pytest.raises(Unreachable, match="does not know the next host's key") as caught:
        connect(sshd.route(hops=[{"ssh": "root@127.0.0.1", "options": options}]), name="gpu1")
    assert "Host key verification failed" in caught.value.facts["stderr"]


# ---------------------------------------------------------------- noise


@pytest.fixture
def noisy(sshd_factory: SshdFactory) -> Sshd:
    """A server with a HOME of its own, for start-up files. bash reads ~/.bashrc for every command of an ssh."""
    return sshd_factory(extra="Banner none")


def test_banners_with_braces_and_a_noisy_bashrc(noisy: Sshd) -> None:
    """Half a megabyte of start-up chatter, JSON and a stray marker before ours do no harm."""
    (noisy.home / ".bashrc").write_text(
        'echo \'{"id": 1, "ok": {}}\'\n'
        "printf '\\n\\0ORC1 deadbeef have\\n'; head -c 500000 /dev/zero | tr '\\0' '{'; "
        "echo 'to stderr {' >&2\n"
    )
    with connect(noisy.route(), name="gpu1") as connection:
        assert connection.hello["home"] == str(noisy.home)


def test_endless_noise_ends_it(noisy: Sshd) -> None:
    """More than 1 MiB before the marker is an error, at once and not at the deadline."""
    (noisy.home / ".bashrc").write_text("yes '{'\n")
    began = time.monotonic()
    with pytest.raises(Unreachable, match="more than 1 MiB") as caught:
        connect(noisy.route(), name="gpu1")
    assert time.monotonic() - began < 10
    assert "{\n{" in caught.value.facts["output"]


def test_a_shell_that_closes(noisy: Sshd) -> None:
    """A start-up file that exits is an ending with its words and exit code."""
    (noisy.home / ".bashrc").write_text("echo maintenance until noon >&2; exit 9\n")
    with pytest.raises(Unreachable, match="exit code 9") as caught:
        connect(noisy.route(), name="gpu1")
    assert caught.value.facts["stderr"] == "maintenance until noon"
    assert caught.value.facts["ran"] == "python3"


# ---------------------------------------------------------------- nothing at the end


def test_a_hop_that_prints_nothing(sshd: Sshd) -> None:
    """A hop that swallows everything is given up at the deadline, and its command is named."""
    began = time.monotonic()
    with pytest.raises(Unreachable, match="says nothing") as caught:
        connect(sshd.route(hops=[["sh", "-c", "exec cat > /dev/null"]]), name="gpu1", deadline_s=1.5)
    assert time.monotonic() - began < 4
    assert caught.value.facts["ran"].startswith("sh -c 'exec cat")


def test_a_hop_that_does_nothing(sshd: Sshd) -> None:
    """Exit code 0 without an agent is no success."""
    with pytest.raises(Unreachable, match="without a word"):
        connect(sshd.route(hops=["true"]), name="gpu1")


def test_no_python(sshd: Sshd) -> None:
    """A missing interpreter is named, with the setting that changes it."""
    with pytest.raises(Unreachable, match="there is no python9") as caught:
        connect(sshd.route(python="python9"), name="gpu1")
    assert caught.value.hint and "python:" in caught.value.hint


def test_sudo(sshd: Sshd) -> None:
    """`sudo: true` ends as root where sudo is there, and says so where it is not."""
    if shutil.which("sudo"):
        with connect(sshd.route(sudo=True), name="gpu1") as connection:
            assert connection.hello["uid"] == 0
        return
    with pytest.raises(Unreachable, match="sudo is not installed"):
        connect(sshd.route(sudo=True), name="gpu1")


def test_a_sudo_that_wants_a_password(sshd: Sshd, tmp_path: Path) -> None:
    """sudo's refusal without a terminal is told at once as what it is."""
    fake = tmp_path / "sudo"
    fake.write_text('#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\necho "sudo: a password is required" >&2\nexit 1\n')
    fake.chmod(0o755)
    hops = [["env", f"PATH={tmp_path}:{os.environ['PATH']}"]]
    with pytest.raises(Unreachable, match="passwordless sudo is not available"):
        connect(sshd.route(hops=hops, sudo=True), name="gpu1")


def test_a_home_that_cannot_be_written(sshd: Sshd) -> None:
    """Without a usable cache the agent comes along each time, and works."""
    with connect(sshd.route(hops=[["env", "XDG_CACHE_HOME=/proc"]]), name="gpu1") as connection:
        assert connection.hello["protocol"] == 1
