"""known_hosts, judged as strictly as OpenSSH does."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from orchestrator.hosts.knownhosts import fingerprint, judge, parse
from tests.sshd import keygen

KEY = base64.b64encode(b"the key").decode()
OTHER = base64.b64encode(b"another key").decode()


def verdict(text: str, host: str = "gpu1", port: int = 22, key: bytes = b"the key") -> str:
    return judge(parse(text, "known_hosts"), host, port, key)[0]


@pytest.mark.parametrize(
    ("line", "host", "port", "expected"),
    [
        (f"gpu1 ssh-ed25519 {KEY}", "gpu1", 22, "known"),
        (f"gpu1 ssh-ed25519 {KEY} comment here", "GPU1", 22, "known"),
        (f"other,gpu1 ssh-ed25519 {KEY}", "gpu1", 22, "known"),
        (f"gpu* ssh-ed25519 {KEY}", "gpu1", 22, "known"),
        (f"gpu*,!gpu1 ssh-ed25519 {KEY}", "gpu1", 22, "unknown"),
        (f"gpu2 ssh-ed25519 {KEY}", "gpu1", 22, "unknown"),
        (f"gpu1 ssh-ed25519 {OTHER}", "gpu1", 22, "changed"),
        (f"[gpu1]:2222 ssh-ed25519 {KEY}", "gpu1", 2222, "known"),
        (f"[gpu1]:2222 ssh-ed25519 {OTHER}", "gpu1", 2222, "changed"),
        (f"[gpu1]:2223 ssh-ed25519 {KEY}", "gpu1", 2222, "unknown"),
        (f"[gpu1]:2222 ssh-ed25519 {KEY}", "gpu1", 22, "unknown"),
        (f"gpu1 ssh-ed25519 {KEY}", "gpu1", 2222, "known"),
        (f"gpu1 ssh-ed25519 {OTHER}", "gpu1", 2222, "unknown"),
        (f"@revoked * ssh-ed25519 {KEY}\ngpu1 ssh-ed25519 {KEY}", "gpu1", 22, "revoked"),
        (f"@cert-authority gpu1 ssh-ed25519 {KEY}", "gpu1", 22, "unknown"),
        (f"# gpu1 ssh-ed25519 {KEY}", "gpu1", 22, "unknown"),
        ("gpu1 ssh-ed25519 not*base64\ngpu1", "gpu1", 22, "unknown"),
        (f"gpu1 ssh-rsa {OTHER}\ngpu1 ssh-ed25519 {KEY}", "gpu1", 22, "known"),
        ("|1|bad|hash ssh-ed25519 " + KEY, "gpu1", 22, "unknown"),
    ],
)
def test_verdicts(line: str, host: str, port: int, expected: str) -> None:
    """Names, patterns, negation, ports, markers and damaged lines are judged as ssh judges them."""
    assert verdict(line, host, port) == expected


def test_names_hashed_by_ssh_keygen_are_found(tmp_path: Path) -> None:
    """A file that `ssh-keygen -H` has hashed still speaks of its hosts, and of no others."""
    public = keygen(tmp_path / "key").with_suffix(".pub").read_text().split()
    known = tmp_path / "known_hosts"
    known.write_text(f"gpu1 {public[0]} {public[1]}\n[gpu2]:2222 {public[0]} {public[1]}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", str(known)], check=True, capture_output=True)
    text, key = known.read_text(), base64.b64decode(public[1])
    assert text.startswith("|1|")
    assert [verdict(text, "gpu1", 22, key), verdict(text, "gpu2", 2222, key)] == ["known", "known"]
    assert [verdict(text, "gpu3", 22, key), verdict(text, "gpu2", 22, key)] == ["unknown", "unknown"]


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    """What we print can be compared with `ssh-keygen -l` letter by letter."""
    key = keygen(tmp_path / "key")
    shown = subprocess.run(["ssh-keygen", "-lf", str(key)], check=True, capture_output=True, text=True).stdout.split()[
        1
    ]
    assert fingerprint(base64.b64decode(key.with_suffix(".pub").read_text().split()[1])) == shown
