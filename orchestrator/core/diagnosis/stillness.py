"""Standing still without an error: a start that goes nowhere, a peer that is only slow, work that no longer moves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.core.diagnosis.lines import Line
from orchestrator.core.diagnosis.reading import Hit, Reading

_STEP = re.compile(r"(?<![\d./])(\d{1,6}) ?/ ?(\d{1,6})(?![\d/.])")
_BAR = re.compile(r"(\d{1,3})%(?: Completed)? ?\|")
_IDLE = re.compile(r"throughput: 0\.0 tokens/s.*throughput: 0\.0 tokens/s, Running: (?!0 )\d+ reqs")
_BUSY_BUILD = re.compile(
    r"JIT[ -](?:Pre-)?[Cc]ompil|[Cc]ompiling|Dynamo bytecode transform|torch\.compile takes|[Aa]utotun|Downloading|"
    r"Loading (?:safetensors|pt|model)|Try DeepGEMM|\d+%\|"
)
_HEARTBEATS = re.compile(r"core engine proc|No available shared memory broadcast block|\"GET /|Waiting for \d+ local")


def slow_peer(reading: Reading, timeout: Hit) -> Line | None:
    """The last step of a rank that was still counting up while the one with the timeout waited."""
    steps: dict[str, dict[str, tuple[int, int, Line]]] = {}
    for line in reading.lines[: timeout.number - 1]:
        if not line.writer or reading.layout.level.get(line.number) == "ERROR":
            continue
        found = _STEP.search(line.text)
        if found and int(found[2]) > 0 and int(found[1]) <= int(found[2]):
            kind = line.text[: found.start()]
            steps.setdefault(kind, {})[line.writer] = (int(found[1]), int(found[2]), line)
    waiting = reading.layout.writer.get(timeout.number)
    for ranks in steps.values():
        behind = [line for writer, (done, total, line) in ranks.items() if done < total and writer != waiting]
        if len(ranks) > 1 and behind:
            return behind[-1]
    return None


def idle_since(reading: Reading) -> Line | None:
    """The first of at least three reports, the last ones of the log, of running requests that produce nothing."""
    idle: list[Line] = []
    for number in reading.numbers_with("throughput:"):
        line = reading.line(number)
        if _IDLE.search(line.text):
            idle.append(line)
        else:
            idle = []
    return idle[0] if len(idle) >= 3 else None


def _last_words(reading: Reading) -> Iterator[Line]:
    for line in reversed(reading.lines):
        if line.text.strip() and not _HEARTBEATS.search(line.text):
            yield line


def is_still_moving(reading: Reading) -> bool:
    """Whether the log ends in work that was getting on: a bar that advances, a build, a download."""
    last = next(_last_words(reading), None)
    if last is None:
        return False
    bar = _BAR.search(last.text)
    if bar is None:
        return bool(_BUSY_BUILD.search(last.text))
    return int(bar[1]) > 0


def standing_line(reading: Reading) -> Line | None:
    """The last line that announced a phase: where the start stands."""
    return reading.line(reading.timeline[-1][0]) if reading.timeline else None
