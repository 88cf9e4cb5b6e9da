"""What known_hosts files say about one host: pure, and as strict as OpenSSH (hashes, patterns, ports, revocation)."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

SSH_PORT = 22

Verdict = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True)
class Entry:
    """One key of a file. `marker` is empty, `@revoked` or `@cert-authority`."""

    names: str
    key_type: str
    key: bytes
    marker: str
    file: str
    line: int


def parse(text: str, file: str) -> list[Entry]:
    """Every readable line; comments and lines that are not keys are left out, as OpenSSH does."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue
        entries.append(Entry(words[0], words[1], key, marker, file, number))
    return entries


def lookup_name(host: str, port: int) -> str:
    """`host`, or `[host]:port` away from port 22."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def matches(names: str, wanted: str) -> bool:
    """Whether the first field of a line speaks of `wanted`."""
    if names.startswith("|1|"):
        return _matches_hash(names, wanted)
    found = False
    for pattern in names.split(","):
        body = pattern.removeprefix("!")
        # Brackets are part of `[host]:port` here, not a set of characters.
        if fnmatch.fnmatchcase(wanted.lower(), body.lower().replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _matches_hash(names: str, wanted: str) -> bool:
    try:
        _, _, salt, digest = names.split("|")
        made = hmac.new(base64.b64decode(salt), wanted.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def entries_for(entries: Iterable[Entry], host: str, port: int) -> list[Entry]:
    """Keys on record for this host and port."""
    wanted = lookup_name(host, port)
    return [e for e in entries if matches(e.names, wanted)]


def judge(entries: list[Entry], host: str, port: int, key: bytes) -> tuple[Verdict, Entry | None]:
    """What the files say about the key that the host presented, with the line that decides it.

    A key on record under the bare name is good for any port of that host; a different one there says nothing about
    this port. Certificate authorities are not followed.
    """
    ours = entries_for(entries, host, port)
    bare = entries_for(entries, host, SSH_PORT)
    for entry in [*ours, *bare]:
        if entry.marker == "@revoked" and entry.key == key:
            return "revoked", entry
    plain = [e for e in ours if not e.marker]
    for entry in [*plain, *(e for e in bare if not e.marker)]:
        if entry.key == key:
            return "known", entry
    return ("changed", plain[0]) if plain else ("unknown", None)


def fingerprint(key: bytes) -> str:
    """As `ssh-keygen -l` shows it: `SHA256:…`."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
