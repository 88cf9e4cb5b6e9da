"""The thread that reads for the screen: workers post, handlers paint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textual.message import Message

from orchestrator.errors import OrchestratorError
from orchestrator.ledger.live import LiveLine, LiveReader
from orchestrator.ledger.watching import Watch
from orchestrator.tui.log import Marked, marked
from orchestrator.tui.picture import Filters, Picture, take

EVERY_S = 0.1
LIVENESS_EVERY = 10
"""Looks after which the picture is taken anew although nobody wrote: a killed run writes nothing."""


@dataclass
class Live:
    """What the live file of a run says of its present state."""

    run_id: int
    memory: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)

    def take(self, line: LiveLine) -> None:
        if line.kind == "gpu":
            self.memory = _memory(line.text) or self.memory
        elif line.kind == "phase":
            self.state.update(phase=line.text.partition("\t")[0], phase_at=line.at)
            if self.state["phase"] in ("reap", "stop"):
                self.state.pop("server", None)
        elif line.kind == "server":
            self.state["server"] = line.text
        elif line.kind == "state":
            self.state["paused"] = line.text == "paused"


def _memory(text: str) -> dict[str, tuple[int, int | None]]:
    try:
        pairs = json.loads(text).items()
        return {str(index): (int(used), None if total is None else int(total)) for index, (used, total) in pairs}
    except (ValueError, TypeError, AttributeError):
        return {}


class PictureTaken(Message):
    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self.picture = picture


class LinesRead(Message):
    """`is_new`: of another source than the lines before, which are to be taken away."""

    def __init__(self, title: str, lines: Sequence[Marked], live: Live | None, *, is_new: bool) -> None:
        super().__init__()
        self.title = title
        self.lines = lines
        self.live = live
        self.is_new = is_new


class ReadFailed(Message):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what


class Reader:
    """Reads until `stop`; `filters` and `wanted` are set by the screen."""

    def __init__(self, state_dir: Path, post: Callable[[Message], object]) -> None:
        self.filters = Filters()
        self.wanted = 0
        self._state_dir = state_dir
        self._post = post
        self._done = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="reader", daemon=True)
        self._seen: tuple[int, Filters] | None = None
        self._picture: Picture | None = None
        self._source: object = None
        self._live: Live | None = None
        self._reader: LiveReader | None = None

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._done.set()
        self._wake.set()
        self._thread.join(timeout=5.0)

    def _read_on(self) -> None:
        watch: Watch | None = None
        looks = 0
        while not self._done.is_set():
            try:
                watch = watch or Watch(self._state_dir)
                self._look(watch, anew=looks % LIVENESS_EVERY == 0)
            except OrchestratorError as error:
                self._post(ReadFailed(error.what))
            looks += 1
            self._wake.wait(EVERY_S)
            self._wake.clear()
        if watch is not None:
            watch.close()

    def _look(self, watch: Watch, *, anew: bool) -> None:
        seen = (watch.version(), self.filters)
        if seen != self._seen or (anew and self._picture is not None and bool(self._picture.now)):
            picture = take(watch, seen[1])
            if picture != self._picture:
                self._picture = picture
                self._post(PictureTaken(picture))
            self._seen = seen
        if self._picture is not None:
            self._read_log(watch, self._picture)

    def _read_log(self, watch: Watch, picture: Picture) -> None:
        if picture.now:
            run = picture.now[self.wanted % len(picture.now)].run
            is_new = self._source != ("run", run.id)
            if is_new or self._reader is None or self._live is None:
                self._source = ("run", run.id)
                self._reader, self._live = LiveReader(self._state_dir, run.id), Live(run.id)
            lines = self._reader.read()
            for line in lines:
                self._live.take(line)
            if lines or is_new:
                shown = [shown for line in lines if (shown := marked(line)) is not None]
                self._post(LinesRead(f"run {run.id} on {run.host}", shown, self._live, is_new=is_new))
            return
        last = watch.last_experiment()
        if self._source != ("experiment", last):
            self._source, self._live = ("experiment", last), None
            text = watch.last_log(last) if last is not None else None
            lines_of_it: list[Marked] = [(line, "") for line in (text or "").splitlines()]
            title = f"last log: experiment #{last}" if last is not None else "no log yet"
            self._post(LinesRead(title, lines_of_it, None, is_new=True))
