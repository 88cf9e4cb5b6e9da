"""Reading along: speak as soon as a line says that the server is lost, and know how far the start got.

Two thousand lines a second must cost little. Lines of running servers (batches, access lines, bars) are recognised
by a few literals and passed over. Logs use few words, so what a word can be part of is worked out once and
remembered; a line is then looked at with patterns only if it holds a whole literal of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from orchestrator.core.diagnosis.blocks import Block, Scan
from orchestrator.core.diagnosis.lines import Line, parse_line, without_colours
from orchestrator.core.diagnosis.model import Phase
from orchestrator.core.diagnosis.phases import ANSWER_MARKS, LOST_MARKS, PHASE_MARKS, PHASES, READY_MARKS, STARTED
from orchestrator.core.diagnosis.reading import BY_LITERAL, WORD, admits, longest_word
from orchestrator.core.diagnosis.signature import Role, Signature

_SPECIFIC = 3
_REMEMBERED = 400
"""Lines that are kept in mind for their place in a traceback."""

_BULK = ("Decode batch", "Prefill batch", ' HTTP/1.1" 200', '"GET /health', "%|")
_TEARDOWN = ("exit code: -15", "exit code -15")
_LOST = frozenset(LOST_MARKS)
_READY = frozenset((*READY_MARKS, *ANSWER_MARKS[:-3]))
_PHASE_OF: dict[str, Phase] = dict(PHASE_MARKS)
_LITERALS = dict.fromkeys((*BY_LITERAL, *_PHASE_OF, *_READY, *_LOST, STARTED))
_LONGEST_WORDS = tuple((literal, longest_word(literal)) for literal in _LITERALS if longest_word(literal))
_WORDLESS = tuple(literal for literal in _LITERALS if not longest_word(literal))


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A line that matters at once.

    "lost": the engine itself says it is gone, or it cannot bind its port. "cause": a line that is the cause if the
    server is lost; a server may still survive it. `lineno` counts the lines fed so far, from 1.
    """

    kind: Literal["lost", "cause"]
    lineno: int
    line: str
    rank: str | None
    category: str | None
    signature: str | None


class LiveWatch:
    """An incremental reader of one server's log.

    Feed whole lines, in order, in batches of any size. It keeps a bounded memory and no text.
    """

    def __init__(self) -> None:
        self._scan = Scan(set())
        self._recent: deque[int] = deque()
        self._number = 0
        self._phase: Phase | None = None
        self._lost = False

    @property
    def phase(self) -> Phase | None:
        """The last phase that was announced; None before the first."""
        return self._phase

    @property
    def is_lost(self) -> bool:
        """Whether a "lost" event was given out."""
        return self._lost

    @property
    def lineno(self) -> int:
        """Number of lines fed so far."""
        return self._number

    def feed(self, lines: Iterable[str]) -> list[WatchEvent]:
        """Take the next lines, without or with their newlines; the events they give rise to, in order."""
        events: list[WatchEvent] = []
        for raw in lines:
            self._number += 1
            self._take(raw.rstrip("\n"), events)
        return events

    def _take(self, raw: str, events: list[WatchEvent]) -> None:
        plain = without_colours(raw)
        if self._phase == "ready" and any(mark in plain for mark in _BULK) and "rror" not in plain:
            return
        found = _literals_in(plain)
        self._follow_phase(plain, found)
        line = parse_line(self._number, raw)
        signatures = {s.id: s for literal in found for s in BY_LITERAL.get(literal, ())}
        harmless = any(s.role is Role.NOISE and s.regex.search(line.text) for s in signatures.values())
        self._scan.harmless = {self._number} if harmless else set()
        self._scan.take(line)
        self._recent.append(self._number)
        if len(self._recent) > _REMEMBERED:
            self._scan.forget(self._recent.popleft())
        if found and not harmless:
            self._report(line, found, tuple(signatures.values()), events)

    def _follow_phase(self, plain: str, found: set[str]) -> None:
        started = STARTED in found and parse_line(self._number, plain).clock != "sglang"
        if started or not _READY.isdisjoint(found):
            self._phase = "ready"
            return
        phases = [_PHASE_OF[literal] for literal in found if literal in _PHASE_OF]
        if not phases:
            return
        phase = max(phases, key=PHASES.index)
        restarts = phase in ("import", "args")
        if restarts or self._phase is None or PHASES.index(phase) >= PHASES.index(self._phase):
            self._phase = phase

    def _report(self, line: Line, found: set[str], signatures: Sequence[Signature], events: list[WatchEvent]) -> None:
        roots = [
            s
            for s in signatures
            if s.role is Role.ROOT and s.weight >= _SPECIFIC and admits(s, line, self._scan.layout, _frames)
        ]
        best = max(roots, key=lambda s: s.weight, default=None)
        says_lost = not _LOST.isdisjoint(found) and not any(mark in line.text for mark in _TEARDOWN)
        rank = self._scan.layout.rank.get(line.number)
        if says_lost or (best is not None and best.id == "port.bind"):
            self._lost = True
            events.append(
                WatchEvent(
                    "lost",
                    line.number,
                    line.raw.strip(),
                    rank,
                    best.category if best else None,
                    best.id if best else None,
                )
            )
        elif best is not None:
            events.append(WatchEvent("cause", line.number, line.raw.strip(), rank, best.category, best.id))


def _frames(block: Block) -> list[str]:
    return block.frames


@lru_cache(maxsize=8192)
def _of_word(word: str) -> tuple[str, ...]:
    """The literals that may stand where this word stands."""
    return tuple(literal for literal, longest in _LONGEST_WORDS if longest in word)


def _literals_in(plain: str) -> set[str]:
    found = {literal for literal in _WORDLESS if literal in plain}
    for word in set(WORD.findall(plain[:4000])):
        found.update(literal for literal in _of_word(word) if literal in plain)
    return found
