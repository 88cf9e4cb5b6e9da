"""What was changed, seen and proved in an experiment: diffs, log excerpts, proofs. Text for people, not yet escaped."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.core.records import ArmRecord, ArtifactRecord, LaunchRecord
from orchestrator.core.secrets import MASK, is_secret

CONTEXT_LINES = 3
AROUND = 12
"""Lines of a log that are shown before and after the one with the cause."""

_LONGEST_DIFF = 4000  # lines
_ASSIGNED = re.compile(r"""([A-Za-z_][A-Za-z0-9_-]*)(["'\]]*\s*(?:=|:|,)\s*)(?!\s)("[^"]*"|'[^']*'|[^\s,;)\]}]+)""")


@dataclass(frozen=True)
class LogLine:
    number: int
    text: str
    is_cause: bool


def file_diffs(
    artifacts: Sequence[ArtifactRecord], content: Callable[[int], bytes | None]
) -> Iterator[tuple[str, str]]:
    """Path → unified diff of found to patched, of the files whose bytes are kept. The bytes are those of the host, so
    values of names that are secret are masked here."""
    images: dict[str, dict[str, bytes]] = {}
    for artifact in artifacts:
        if artifact.kind in ("found", "patched"):
            data = content(artifact.id)
            if data is not None:
                images.setdefault(artifact.name, {})[artifact.kind] = data
    for path, both in images.items():
        yield path, mask_assigned(_diff(path, both.get("found"), both.get("patched")))


def _diff(path: str, found: bytes | None, patched: bytes | None) -> str:
    if b"\0" in (found or b"") + (patched or b""):
        return "binary\n"
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (found, patched))
    names = (path if found is not None else "/dev/null", path if patched is not None else "/dev/null")
    lines = list(difflib.unified_diff(before, after, *names, n=CONTEXT_LINES, lineterm=""))
    cut = [f"… {len(lines) - _LONGEST_DIFF} lines more"] if len(lines) > _LONGEST_DIFF else []
    return "\n".join([*lines[:_LONGEST_DIFF], *cut]) + "\n"


def mask_assigned(text: str) -> str:
    """`HF_TOKEN = "…"`, `"api_key": "…"`, `setdefault("X_TOKEN", "…")` with the value masked."""

    def masked(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{MASK}" if is_secret(found[1]) else found[0]

    return _ASSIGNED.sub(masked, text)


def log_excerpt(launch: LaunchRecord, content: Callable[[int], bytes | None]) -> list[LogLine]:
    """The lines around the cause, it marked; without a cause the last ones. Empty where the log is not kept."""
    data = content(launch.log_artifact) if launch.log_artifact is not None else None
    if data is None:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    cause = _cause_line(launch, lines)
    end = len(lines) if cause is None else min(len(lines), cause + AROUND + 1)
    start = max(0, len(lines) - AROUND) if cause is None else max(0, cause - AROUND)
    return [LogLine(at + 1, mask_assigned(lines[at]), at == cause) for at in range(start, end)]


def _cause_line(launch: LaunchRecord, lines: Sequence[str]) -> int | None:
    """Index of the line with the cause: where the diagnosis saw it, else where its words stand."""
    diagnosis = launch.facts.get("diagnosis") or {}
    number = diagnosis.get("cause_lineno")
    if isinstance(number, int) and 0 < number <= len(lines):
        return number - 1
    if launch.cause:
        return next((at for at, line in enumerate(lines) if launch.cause in line), None)
    return None


def proof_sentence(arm: ArmRecord) -> str:
    """What is proved of an arm's way back."""
    proof = arm.proof
    if proof is None:
        return "not proved" if arm.changes else "no proof (nothing was changed)"
    if not proof.clean:
        paths = ", ".join(str(d.get("path", d)) for d in proof.differences)
        return f"NOT clean: {paths or 'no path named'}"
    foreign = f"; {len(proof.differences)} differences of others, left alone" if proof.differences else ""
    seconds = f" in {proof.seconds:.2f} s" if proof.seconds is not None else ""
    return f"proved clean: {proof.files} paths as found{seconds}, manifest {proof.found_digest[:12]}{foreign}"
