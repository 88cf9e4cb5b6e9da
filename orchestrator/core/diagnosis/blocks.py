"""Which lines belong together: tracebacks, chains of them, and who owns a line that has no prefix.

Writers interleave. Each writer therefore has its own open traceback; a line without a prefix continues whatever the
last writer was saying. Native writers (NCCL, torch's C++ side) and progress bars never break into that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from orchestrator.core.diagnosis.lines import Line, is_elision

TRACEBACK = "Traceback (most recent call last)"
_CHAIN_MARKERS = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_FRAME_FILE = re.compile(r'File "([^"]+)", line (\d+)')
_PYTHON_FRAME = re.compile(r'^\s+File "[^"]+", line \d+, in ')
_EXIT_FRAMES = ("resource_tracker.py", "uvicorn/protocols/", "starlette/middleware/", "multiprocessing/util.py")
_PYTHON_WARNING = re.compile(r"(?:^|:\d+: |\s)\w*Warning: ")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Timeout|OutOfResources|Warning|Failure)"
    r"|[a-z_][\w.]*\.[A-Z]\w+|Exception|Timeout)(?:\(\w+\))?(?::|$)"
)
_NATIVE_CLOCKS = ("torch", "nccl", "glog", "trt_cpp")


@dataclass(slots=True)
class Block:
    """One traceback: the numbers of its exception lines, its frames as text, and the chain it is a link of."""

    chain: int
    link: int
    header: int
    level: str
    noise: bool
    stamp: str = ""
    clock: str = ""
    frames: list[str] = field(default_factory=list)
    exceptions: list[int] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """Paths of the frames, outermost first."""
        return [match[1] for frame in self.frames if (match := _FRAME_FILE.search(frame))]


@dataclass(slots=True)
class _Writer:
    block: Block | None = None
    in_frames: bool = False
    place: str = ""
    level: str = ""
    noise: bool = False
    last_chain: Block | None = None
    chained: bool = False
    just_headed: bool = False
    just_harmless: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each line stands. All maps are by line number.

    `zone`: "frame", "exception" or "tail" for lines of tracebacks. `level` and `rank`: the line's own or inherited.
    `noisy`: lines that a harmless record owns.
    """

    blocks: tuple[Block, ...]
    block: dict[int, Block]
    zone: dict[int, str]
    level: dict[int, str]
    rank: dict[int, str | None]
    writer: dict[int, str]
    noisy: set[int]

    def chain(self, number: int) -> int | None:
        """The chain of tracebacks that a line is part of."""
        block = self.block.get(number)
        return None if block is None else block.chain


class Scan:
    """The layout of a log while it is being read, line by line."""

    def __init__(self, harmless: Collection[int]) -> None:
        self.harmless = harmless
        self.layout = Layout((), {}, {}, {}, {}, {}, set())
        self.blocks: list[Block] = []
        self.writers: dict[str, _Writer] = {}
        self.ranks: dict[str, str | None] = {}
        self.current = ""
        self.chains = 0

    def forget(self, number: int) -> None:
        """Drop what is known of one line; open tracebacks stay open."""
        layout = self.layout
        for known in (layout.block, layout.zone, layout.level, layout.rank, layout.writer):
            known.pop(number, None)
        layout.noisy.discard(number)
        self.blocks.clear()

    def take(self, line: Line) -> None:
        """Place the next line."""
        key = self._key(line)
        writer = self.writers.setdefault(key, _Writer())
        native = line.clock in _NATIVE_CLOCKS
        headed = line.starts and not native and self._opens(writer, line)
        if line.number in self.harmless:
            self.layout.noisy.add(line.number)
        self._place_in_block(writer, line, headed, native)
        self._inherit(writer, line, key)
        announces = line.text.rstrip().endswith(":")
        writer.just_headed = headed and announces
        writer.just_harmless = line.number in self.harmless and (announces or TRACEBACK not in line.text)

    def _key(self, line: Line) -> str:
        if not (line.starts or line.writer):
            return self.current
        if line.clock in _NATIVE_CLOCKS:
            return f"native {line.writer}"
        self.current = line.writer
        if line.rank:
            self.ranks[line.writer] = line.rank
        return line.writer

    def _opens(self, writer: _Writer, line: Line) -> bool:
        """Whether this line is the head of a new record, not one more line of a record printed line by line."""
        if line.place and line.place == writer.place:
            return False
        writer.block, writer.in_frames, writer.place = None, False, line.place
        writer.level, writer.noise = line.level, line.number in self.harmless
        return True

    def _place_in_block(self, writer: _Writer, line: Line, headed: bool, native: bool) -> None:
        text, number = line.text, line.number
        if TRACEBACK in text:
            self._open_block(writer, line, headed)
        elif any(marker in text for marker in _CHAIN_MARKERS):
            writer.chained = True
            writer.block = None
        elif writer.block is None and not native and _PYTHON_FRAME.match(text):
            block = self._open_block(writer, line, headed)  # an excerpt that begins inside a traceback
            self._continue_frames(writer, block, line)
        elif writer.block is None or native:
            if not line.starts and writer.noise and text[:1].isspace():
                self.layout.noisy.add(number)
        elif writer.in_frames:
            self._continue_frames(writer, writer.block, line)
        elif not text.strip():
            writer.block = None
        elif text.startswith('  File "'):
            writer.in_frames = True
            self._mark(writer.block, number, "frame")
            writer.block.frames.append(text)
        else:
            self._mark(writer.block, number, "tail")
            if _EXCEPTION.match(text):
                writer.block.exceptions.append(number)

    def _open_block(self, writer: _Writer, line: Line, headed: bool) -> Block:
        before = writer.last_chain if writer.chained else None
        writer.chained = False
        noise = (
            (before is not None and before.noise)
            or (writer.noise and (headed or writer.just_headed or line.starts))
            or writer.just_harmless
        )
        if before is None:
            self.chains += 1
        level = line.level or (writer.level if headed or writer.just_headed else "")
        block = Block(
            self.chains if before is None else before.chain,
            0 if before is None else before.link + 1,
            line.number,
            level,
            noise,
            *((line.stamp, line.clock) if line.stamp or before is None else (before.stamp, before.clock)),
        )
        if noise:
            self.layout.noisy.add(line.number)
        self.blocks.append(block)
        writer.block = writer.last_chain = block
        writer.in_frames = True
        self.layout.block[line.number] = block
        return block

    def _continue_frames(self, writer: _Writer, block: Block, line: Line) -> None:
        text = line.text
        if is_elision(text):
            return
        if not text.strip():
            writer.in_frames = bool(block.frames) and writer.in_frames
            return
        if text[0].isspace() or text.startswith(("|", "+", "File ")):
            self._mark(block, line.number, "frame")
            block.frames.append(text)
            if not block.noise and any(part in text for part in _EXIT_FRAMES):
                block.noise = True  # the end of a process, or one request that failed
            return
        self._mark(block, line.number, "exception")
        block.exceptions.append(line.number)
        writer.in_frames = False

    def _mark(self, block: Block, number: int, zone: str) -> None:
        self.layout.block[number] = block
        self.layout.zone[number] = zone
        if block.noise:
            self.layout.noisy.add(number)

    def _inherit(self, writer: _Writer, line: Line, key: str) -> None:
        layout, number, text = self.layout, line.number, line.text
        level = line.level
        if not level and "Warning: " in text and _PYTHON_WARNING.search(text[:400]):
            level = "WARNING"
        if not level and number in layout.block:
            level = layout.block[number].level
        elif not level and not line.starts and text[:1].isspace():
            level = writer.level
        layout.level[number] = level
        layout.rank[number] = line.rank or self.ranks.get(key)
        layout.writer[number] = key


def arrange(lines: Sequence[Line], harmless: Collection[int]) -> Layout:
    """Lay out a log. `harmless`: numbers of lines that are known noise; they own the traceback they open."""
    scan = Scan(harmless)
    for line in lines:
        scan.take(line)
    layout = scan.layout
    return Layout(tuple(scan.blocks), layout.block, layout.zone, layout.level, layout.rank, layout.writer, layout.noisy)
