"""One log, read: its lines, the signatures that matched, and how far the server got by each line.

Regular expressions are slow and logs are long, but logs use few words. A literal whose longest word is in none of
them is not looked for at all; the others are searched in the text as a whole; and only lines that hold the literal
of a signature are looked at with its pattern.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from orchestrator.core.diagnosis.blocks import Block, Layout, arrange
from orchestrator.core.diagnosis.lines import Line, parse, without_colours
from orchestrator.core.diagnosis.model import Phase
from orchestrator.core.diagnosis.phases import (
    ANSWER_MARKS,
    LOST_MARKS,
    PHASE_MARKS,
    READY_MARKS,
    SHUTDOWN_MARKS,
    STARTED,
)
from orchestrator.core.diagnosis.signature import Role, Signature
from orchestrator.core.diagnosis.signatures import SIGNATURES

_PER_LITERAL = 3000
"""No more lines than this are looked at for one literal; a line that repeats more often is not a cause."""

_CHAIN_LINKS = 20

_LONGEST = 4000
"""Characters of a line that patterns see; longer lines are dumps."""

_FRAME_LINE = re.compile(r'^\s+File "|^#\d+ |^\s+\^+\s*$')
_QUOTED = ("Receive: obj=", "Received request ", "Finish: obj=", "server_args=", "non-default args", "prompt: '")
_ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/\d(?:\.\d)?" \d{3}')


def _by_literal(signatures: Iterable[Signature]) -> dict[str, tuple[Signature, ...]]:
    table: dict[str, list[Signature]] = {}
    for signature in signatures:
        for literal in signature.literals:
            table.setdefault(literal, []).append(signature)
    return {literal: tuple(found) for literal, found in table.items()}


WORD = re.compile(r"[A-Za-z_]{3,}")


@lru_cache(maxsize=4096)
def longest_word(literal: str) -> str:
    """The longest run of letters in a literal, "" if it has none of three or more."""
    return max(WORD.findall(literal), key=len, default="")


BY_LITERAL = _by_literal(SIGNATURES)


@dataclass(frozen=True, slots=True)
class Hit:
    """One signature on one line, with the traceback the line is part of."""

    line: Line
    signature: Signature
    block: Block | None

    @property
    def number(self) -> int:
        """The number of the line."""
        return self.line.number

    @property
    def time(self) -> tuple[str, str]:
        """(stamp, clock) of the line or of the record it belongs to; "" where none was printed."""
        if self.line.stamp or self.block is None:
            return self.line.stamp, self.line.clock
        return self.block.stamp, self.block.clock


def _may_speak(line: Line, layout: Layout) -> bool:
    """Frames quote code, access lines and echoed requests quote users: none of them reports anything."""
    if layout.zone.get(line.number) == "frame" or _FRAME_LINE.match(line.text):
        return False
    if any(mark in line.text for mark in _QUOTED):
        return False
    return not ("HTTP/" in line.text and _ACCESS.search(line.text))


def admits(signature: Signature, line: Line, layout: Layout, frames: Callable[[Block], Sequence[str]]) -> bool:
    """Whether a line matches a signature and stands where it may say so: not in noise, not below an ERROR."""
    number = line.number
    if not _may_speak(line, layout):
        return False
    if signature.role in (Role.ROOT, Role.SYMPTOM):
        quiet = layout.level.get(number) in ("INFO", "WARNING") and not signature.loud
        if quiet or number in layout.noisy:
            return False
    if signature.frames_regex is not None:
        block = layout.block.get(number)
        if block is None or not any(signature.frames_regex.search(frame) for frame in frames(block)):
            return False
    return bool(signature.regex.search(line.text[:_LONGEST]))


class Reading:
    """A log and what was found in it. Numbers are line numbers, counted from 1."""

    def __init__(self, text: str) -> None:
        self.text = without_colours(text)
        self._vocabulary = "\n".join(set(WORD.findall(self.text)))
        self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        candidates = self._candidates()
        self.lines: list[Line] = list(parse(text))
        harmless = {
            number
            for number, signatures in candidates.items()
            if any(s.role is Role.NOISE and s.regex.search(self.lines[number - 1].text) for s in signatures)
        }
        self.layout: Layout = arrange(self.lines, harmless)
        self.hits: list[Hit] = sorted(self._hits(candidates), key=lambda hit: hit.number)

    def line(self, number: int) -> Line:
        return self.lines[number - 1]

    def numbers_with(self, literal: str, limit: int = _PER_LITERAL) -> Iterator[int]:
        """Numbers of the lines that hold a literal, in order, each once."""
        if longest_word(literal) not in self._vocabulary:
            return
        text, starts, position = self.text, self._starts, -1
        for _ in range(limit):
            position = text.find(literal, position + 1)
            if position < 0:
                return
            number = bisect_right(starts, position)
            yield number
            if number >= len(starts):
                return
            position = starts[number] - 1

    def _candidates(self) -> dict[int, list[Signature]]:
        found: dict[int, list[Signature]] = {}
        for literal, signatures in BY_LITERAL.items():
            for number in self.numbers_with(literal):
                known = found.setdefault(number, [])
                known.extend(s for s in signatures if s not in known)
        return found

    def _hits(self, candidates: dict[int, list[Signature]]) -> Iterator[Hit]:
        for number, signatures in candidates.items():
            line = self.lines[number - 1]
            for signature in signatures:
                if admits(signature, line, self.layout, self.frames):
                    yield Hit(line, signature, self.layout.block.get(number))

    def frames(self, block: Block) -> list[str]:
        """Frames of a traceback and of those it is chained to, up to itself; of a very long chain the nearest."""
        nearest = self._chains[block.chain][max(0, block.link - _CHAIN_LINKS) : block.link + 1]
        return [frame for link in nearest for frame in link.frames]

    @cached_property
    def _chains(self) -> dict[int, list[Block]]:
        chains: dict[int, list[Block]] = {}
        for block in self.layout.blocks:
            chains.setdefault(block.chain, []).append(block)
        return chains

    @cached_property
    def timeline(self) -> list[tuple[int, Phase]]:
        """(number, phase) of each line that announces a phase, in order."""
        marks: dict[int, Phase] = {}
        for literal, phase in PHASE_MARKS:
            marks.update((number, phase) for number in self.numbers_with(literal))
        marks.update((number, "ready") for number in self.ready_numbers)
        return sorted(marks.items())

    @cached_property
    def ready_numbers(self) -> list[int]:
        """First and last lines of each kind that only a serving process prints."""
        found: set[int] = set()
        for literal in READY_MARKS:
            found.update(self._ends(literal))
        for number in self.numbers_with(STARTED):
            if self.line(number).clock != "sglang":
                found.add(number)
        found.update(self.answer_numbers)
        return sorted(found)

    @cached_property
    def answer_numbers(self) -> list[int]:
        """First and last lines of each kind that show an answered generation."""
        found: set[int] = set()
        for literal in ANSWER_MARKS:
            numbers = list(self._ends(literal))
            found.update(n for n in numbers if not literal.startswith('"') or "| 200 |" in self.line(n).raw)
        return sorted(found)

    def _ends(self, literal: str) -> Iterator[int]:
        if longest_word(literal) not in self._vocabulary:
            return
        first, last = self.text.find(literal), self.text.rfind(literal)
        for position in {first, last} - {-1}:
            yield bisect_right(self._starts, position)

    @cached_property
    def lost_numbers(self) -> list[int]:
        """Lines by which an engine says that it is lost, noise aside."""
        found = {
            number
            for literal in LOST_MARKS
            for number in self.numbers_with(literal)
            if "exit code: -15" not in self.line(number).text and "exit code -15" not in self.line(number).text
        }
        return sorted(found)

    @cached_property
    def shutdown_number(self) -> int | None:
        """The first line that shows an end somebody asked for."""
        found = [number for literal in SHUTDOWN_MARKS for number in self.numbers_with(literal, 1)]
        return min(found, default=None)

    def phase_at(self, number: int) -> Phase | None:
        """The phase the start was in when this line was printed."""
        last: Phase | None = None
        for marked, phase in self.timeline:
            if marked > number:
                break
            last = phase
        return last

    @property
    def last_phase(self) -> Phase | None:
        return self.timeline[-1][1] if self.timeline else None
