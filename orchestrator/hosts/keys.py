"""Private keys to offer: the agent's and files, in the order of OpenSSH, loaded one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.hosts.legs import Leg

if TYPE_CHECKING:
    from paramiko.pkey import PKey

PASSPHRASE_VARIABLE = "ORCHESTRATOR_SSH_PASSPHRASE"  # noqa: S105 - the name of it

Prompt = Callable[[str], str | None]
"""Asks a person for a secret; None means that nobody answered."""


class Unusable(Exception):
    """A key that cannot be offered; the text says why."""


@dataclass(frozen=True)
class Candidate:
    """A key under the name it is reported by. `load` may ask for a passphrase; raises `Unusable`."""

    label: str
    load: Callable[[], PKey]


def candidates(leg: Leg, agent_keys: Sequence[PKey], prompt: Prompt | None) -> Iterator[Candidate]:
    """Keys of the agent that the leg names, then its files, then (unless told otherwise) the agent's other keys."""
    files = [path for path in leg.keys if path.exists()]
    by_public = {key.asbytes(): key for key in agent_keys}
    named = {path: key for path in files if (key := by_public.pop(_public_part(path), None))}
    for path, key in named.items():
        yield Candidate(f"{path} (from the agent)", lambda key=key: key)  # type: ignore[misc]
    if not leg.only_these_keys:
        for key in by_public.values():
            yield Candidate(f"agent key {key.fingerprint}", lambda key=key: key)  # type: ignore[misc]
    for path in files:
        if path not in named:
            yield Candidate(str(path), lambda path=path: load_file(path, prompt))  # type: ignore[misc]
    if leg.only_these_keys:
        for path in leg.keys:
            if path not in files:
                yield Candidate(str(path), lambda path=path: _missing(path))  # type: ignore[misc]


def _missing(path: Path) -> PKey:
    raise Unusable(f"there is no file {path}")


def _public_part(path: Path) -> bytes:
    """The key in PATH.pub, empty when there is none."""
    from paramiko.pkey import PublicBlob

    try:
        return bytes(PublicBlob.from_file(str(path) + ".pub").key_blob)
    except (OSError, ValueError):
        return b""


def load_file(path: Path, prompt: Prompt | None) -> PKey:
    """The private key in a file, with its certificate if there is one beside it. Asks for a passphrase if it must."""
    from paramiko.ssh_exception import PasswordRequiredException

    try:
        return _load(path, None)
    except PasswordRequiredException:
        passphrase = os.environ.get(PASSPHRASE_VARIABLE) or (prompt and prompt(f"passphrase of {path}"))
    if not passphrase:
        raise Unusable(f"it has a passphrase: load it with `ssh-add {path}`, or set {PASSPHRASE_VARIABLE}")
    return _load(path, passphrase)


def _load(path: Path, passphrase: str | None) -> PKey:
    from paramiko import ECDSAKey, Ed25519Key, PasswordRequiredException, RSAKey, SSHException

    reason = ""
    for kind in (Ed25519Key, ECDSAKey, RSAKey):
        try:
            key: PKey = kind.from_private_key_file(str(path), password=passphrase)
        except PasswordRequiredException:
            raise
        except OSError as error:
            raise Unusable(f"it cannot be read: {error.strerror}") from error
        except (SSHException, ValueError, TypeError) as error:
            reason = reason or str(error)
            continue
        certificate = Path(f"{path}-cert.pub")
        if certificate.exists():
            key.load_certificate(str(certificate))
        return key
    if passphrase is not None:
        raise Unusable("the passphrase is wrong")
    raise Unusable(f"it is not a private key that can be used here: {reason}")
