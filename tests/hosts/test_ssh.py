"""Real sshd, real agent: logging in, and every way in which that fails."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import Refused, Unreachable
from orchestrator.hosts import connect
from tests.sshd import Sshd, SshdFactory, keygen, start_sshd


def test_login_and_the_second_connection_sends_no_archive(sshd: Sshd) -> None:
    """The first connection carries the agent, the second one finds it: under 100 bytes go out for a request."""
    with connect(sshd.route(), name="gpu1") as first:
        assert first.hello["home"] == str(sshd.home)
    with connect(sshd.route(), name="gpu1") as second:
        assert second.hello["protocol"] == 1
        assert not second.traffic.archive_sent
        assert second.traffic.bytes_sent < 100
        assert second.traffic.round_trips == 1


def test_no_process_stays_when_the_connection_is_closed(sshd: Sshd) -> None:
    """The agent has left when `close` returns."""
    with connect(sshd.route(), name="gpu1") as connection:
        pid = connection.hello["pid"]
    assert not Path(f"/proc/{pid}").exists()


def test_no_pty_and_no_shell_of_ours(sshd: Sshd) -> None:
    """Words with every awkward character arrive unchanged at a program on the far side."""
    awkward = ["a b", "'", '"', "$HOME", "\\", "\n", "{}", "`id`"]
    with connect(sshd.route(), name="gpu1") as connection:
        argv = ["/bin/sh", "-c", 'for w; do printf "%s\\0" "$w"; done; test -t 0 || echo no tty', "x", *awkward]
        done = connection.call("run", {"commands": [{"name": "n", "argv": argv, "timeout_s": 10}]})["n"]
    assert done["stdout"].split("\0") == [*awkward, "no tty\n"]


# ---------------------------------------------------------------- keys and logins


def test_a_wrong_key_names_the_keys_tried(sshd: Sshd, tmp_path: Path) -> None:
    """An unknown client key ends in `authentication failed`, with the file that was offered."""
    key = keygen(tmp_path / "other")
    with pytest.raises(Unreachable, match="authentication failed") as caught:
        connect(sshd.route(key=str(key)), name="gpu1")
    assert caught.value.facts["tried"] == f"{key}: not accepted"
    assert caught.value.hint and "ssh -v" in caught.value.hint


def test_a_missing_key_file_is_named(sshd: Sshd, tmp_path: Path) -> None:
    """A key that is not there is said to be not there."""
    with pytest.raises(Unreachable) as caught:
        connect(sshd.route(key=str(tmp_path / "nokey")), name="gpu1")
    assert "there is no file" in caught.value.facts["tried"]


@pytest.fixture
def locked(sshd: Sshd, tmp_path: Path) -> Iterator[Path]:
    """A key with a passphrase, let in for the time of a test."""
    key = keygen(tmp_path / "locked", passphrase="open sesame")
    allowed = sshd.base / "authorized_keys"
    before = allowed.read_text()
    allowed.write_text(before + key.with_suffix(".pub").read_text())
    yield key
    allowed.write_text(before)


@pytest.fixture
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("ORCHESTRATOR_SSH_PASSPHRASE", raising=False)


@pytest.mark.usefixtures("no_agent")
def test_a_passphrase_comes_from_the_prompt(sshd: Sshd, locked: Path) -> None:
    """The prompt is asked once, by the name of the file."""
    asked: list[str] = []

    def prompt(text: str) -> str:
        asked.append(text)
        return "open sesame"

    connect(sshd.route(key=str(locked)), name="gpu1", prompt=prompt).close()
    assert asked == [f"passphrase of {locked}"]


@pytest.mark.usefixtures("no_agent")
def test_a_passphrase_comes_from_the_environment(sshd: Sshd, locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ORCHESTRATOR_SSH_PASSPHRASE opens a key where nobody can be asked; a wrong one is said to be wrong."""
    monkeypatch.setenv("ORCHESTRATOR_SSH_PASSPHRASE", "open sesame")
    connect(sshd.route(key=str(locked)), name="gpu1").close()
    monkeypatch.setenv("ORCHESTRATOR_SSH_PASSPHRASE", "wrong")
    with pytest.raises(Unreachable) as caught:
        connect(sshd.route(key=str(locked)), name="gpu1")
    assert "the passphrase is wrong" in caught.value.facts["tried"]


@pytest.mark.usefixtures("no_agent")
def test_a_passphrase_that_nobody_gives_is_a_clear_error(sshd: Sshd, locked: Path) -> None:
    """Without prompt and variable the error names both ways to give it."""
    with pytest.raises(Unreachable) as caught:
        connect(sshd.route(key=str(locked)), name="gpu1")
    assert "ssh-add" in caught.value.facts["tried"] and "ORCHESTRATOR_SSH_PASSPHRASE" in caught.value.facts["tried"]


def test_a_key_of_the_ssh_agent_is_used(
    sshd: Sshd, locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked key that a real ssh-agent holds needs no passphrase."""
    path = str(tmp_path / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE)
    assert agent.stdout is not None and agent.stdout.readline()
    try:
        ask = tmp_path / "ask"
        ask.write_text("#!/bin/sh\necho open sesame\n")
        ask.chmod(0o755)
        env = {**os.environ, "SSH_AUTH_SOCK": path, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", str(locked)], check=True, env=env)
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        connect(sshd.route(key=str(locked)), name="gpu1").close()
    finally:
        agent.terminate()
        agent.wait()


def test_an_ssh_agent_that_hangs_is_left_alone(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead forwarded agent costs seconds, not the connection: the key file is used."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "silent"))
        connect(sshd.route(), name="gpu1").close()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_host_keys(kind: str, sshd_factory: SshdFactory) -> None:
    """RSA (with SHA-2 signatures) and ECDSA host keys are recognised."""
    connect(sshd_factory(key_kind=kind).route(), name="gpu1").close()


# ---------------------------------------------------------------- host keys


def test_an_unknown_host_key_is_refused_with_its_fingerprint(sshd: Sshd, tmp_path: Path) -> None:
    """Nothing is added; the error has the fingerprint of `ssh-keygen -l` and the exact line that adds the key."""
    known = tmp_path / "empty"
    with pytest.raises(Refused, match="not known") as caught:
        connect(sshd.route(known_hosts=str(known)), name="gpu1")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(sshd.base / "host_key")], capture_output=True, text=True, check=True
    )
    error = caught.value
    assert error.facts["fingerprint"] == shown.stdout.split()[1]
    assert error.facts["key_type"] == "ssh-ed25519"
    assert error.hint and error.hint.endswith(f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> {known}")
    assert not known.exists()


def test_the_hint_for_an_unknown_key_works(sshd: Sshd, tmp_path: Path) -> None:
    """Running the command of the hint makes the next connection succeed."""
    route = sshd.route(known_hosts=str(tmp_path / "new"))
    with pytest.raises(Refused) as caught:
        connect(route, name="gpu1")
    assert caught.value.hint
    subprocess.run(["sh", "-c", caught.value.hint.partition("then: ")[2]], check=True, capture_output=True)
    connect(route, name="gpu1").close()


def test_a_changed_host_key_is_refused_with_the_way_to_forget_it(sshd: Sshd, tmp_path: Path) -> None:
    """A different key on record is neither a login nor a network problem, and the hint's command repairs it."""
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text().split()
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{sshd.port} {other[0]} {other[1]}\n")
    route = sshd.route(known_hosts=str(known))
    with pytest.raises(Refused, match="has changed") as caught:
        connect(route, name="gpu1")
    hint = caught.value.hint or ""
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {known}" in hint
    assert caught.value.facts["expected"] != caught.value.facts["fingerprint"]
    subprocess.run(["sh", "-c", hint.partition("then: ")[2]], check=True, capture_output=True)
    connect(route, name="gpu1").close()


def test_a_hashed_known_hosts_file_will_do(sshd: Sshd, tmp_path: Path) -> None:
    """Debian hashes names by default: those lines count."""
    known = tmp_path / "known"
    known.write_text(sshd.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-H", "-f", str(known)], check=True, capture_output=True)
    connect(sshd.route(known_hosts=str(known)), name="gpu1").close()


# ---------------------------------------------------------------- jumps and configuration


def test_two_jump_hosts(sshd: Sshd, sshd_factory: SshdFactory) -> None:
    """A route through two jumps reaches the host; each leg's key is checked against the same file."""
    middle = sshd_factory()
    (middle.base / "authorized_keys").write_text((sshd.base / "id.pub").read_text())
    sshd_known = sshd.base / "known_both"
    sshd_known.write_text(sshd.known_hosts.read_text() + middle.known_hosts.read_text())
    jump = (f"root@127.0.0.1:{middle.port}", f"root@127.0.0.1:{sshd.port}")
    with connect(sshd.route(jump=jump, known_hosts=str(sshd_known)), name="gpu1") as connection:
        assert connection.hello["protocol"] == 1


def test_a_jump_that_does_not_reach_the_host(sshd: Sshd) -> None:
    """The error names both the jump host and what it could not reach."""
    with pytest.raises(Unreachable, match=r"jump host .* does not reach 127\.0\.0\.1:1: Connect failed"):
        connect(sshd.route(jump=(f"root@127.0.0.1:{sshd.port}",), port=1), name="gpu1")


def test_a_name_from_the_ssh_configuration(sshd: Sshd, tmp_path: Path) -> None:
    """An alias with HostName, Port, User, IdentityFile, UserKnownHostsFile and ProxyJump is all a route needs."""
    config = tmp_path / "config"
    config.write_text(
        f"Host gpu bastion\n HostName 127.0.0.1\n Port {sshd.port}\n User root\n IdentityFile {sshd.key}\n"
        f" UserKnownHostsFile {sshd.known_hosts}\nHost gpu\n ProxyJump bastion\n"
    )
    route = sshd.route(ssh="gpu", port=None, key=None, known_hosts=None, config=str(config))
    with connect(route, name="gpu") as connection:
        assert connection.hello["protocol"] == 1


def test_a_proxy_command(sshd: Sshd, tmp_path: Path) -> None:
    """ProxyCommand is run as ssh runs it."""
    config = tmp_path / "config"
    relay = (
        "import os,socket,sys,threading\n"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def copy(read,write):\n for data in iter(read,b''):write(data)\n"
        "back=threading.Thread(target=copy,args=(lambda:s.recv(9999),lambda b:os.write(1,b)),daemon=True)\n"
        "back.start()\n"
        "copy(lambda:os.read(0,9999),s.sendall)\n"
    )
    (tmp_path / "relay.py").write_text(relay)
    config.write_text(f"Host *\n ProxyCommand python3 {tmp_path}/relay.py %h %p\n")
    with connect(sshd.route(config=str(config)), name="gpu1") as connection:
        assert connection.hello["protocol"] == 1


# ---------------------------------------------------------------- nothing there


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_closed_port(sshd: Sshd) -> None:
    """Refused is told apart from silence, with host and port."""
    port = free_port()
    with pytest.raises(Unreachable, match="refuses the connection") as caught:
        connect(sshd.route(port=port), name="gpu1")
    assert caught.value.facts["port"] == str(port) and caught.value.facts["reason"] == "refused"


def test_an_unknown_name(sshd: Sshd) -> None:
    """A name that does not resolve is told apart from a host that does not answer."""
    with pytest.raises(Unreachable, match=r"name nowhere\.invalid is not known"):
        connect(sshd.route(ssh="root@nowhere.invalid"), name="gpu1")


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_is_not_ssh_ends_within_the_deadline(sshd: Sshd, greeting: bytes) -> None:
    """A listener that says nothing, or something else, costs no more than the connect timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                client.sendall(greeting)
                held.append(client)

        threading.Thread(target=serve, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"says nothing|no ssh connection"):
            connect(sshd.route(port=server.getsockname()[1], connect_timeout=1.0), name="gpu1")
        assert time.monotonic() - began < 4
        server.shutdown(socket.SHUT_RDWR)
        for client in held:
            client.close()


def test_a_host_that_comes_up_while_we_try(sshd_factory: SshdFactory, tmp_path: Path) -> None:
    """A connection closed before the banner (a booting or overloaded sshd) is tried again."""
    real = sshd_factory()
    with socket.create_server(("127.0.0.1", 0)) as front:
        port = front.getsockname()[1]

        def serve() -> None:
            front.accept()[0].close()  # the first visitor is turned away
            client, _ = front.accept()
            back = socket.create_connection(("127.0.0.1", real.port))
            ends = ((client, back), (back, client))
            threads = [threading.Thread(target=_copy, args=pair, daemon=True) for pair in ends]
            for thread in threads:
                thread.start()

        threading.Thread(target=serve, daemon=True).start()
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{port} {real.public_line()}\n")
        connect(real.route(port=port, known_hosts=str(known)), name="gpu1").close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def test_a_server_that_allows_no_commands(sshd_factory: SshdFactory) -> None:
    """A login that may only forward is told, within the deadline."""
    server = sshd_factory(extra="ForceCommand /bin/false")
    with pytest.raises(Unreachable, match="exit code 1"):
        connect(server.route(), name="gpu1")
    limited = sshd_factory(extra="MaxSessions 0")
    with pytest.raises(Unreachable, match="refuses to run a command"):
        connect(limited.route(), name="gpu1")


def test_two_servers_side_by_side(tmp_path: Path, sshd: Sshd) -> None:
    """The fixture is parallel-safe: another server takes another port."""
    other = start_sshd(tmp_path / "other")
    try:
        assert other.port != sshd.port
        connect(other.route(), name="gpu2").close()
    finally:
        other.stop()
