"""What a run says while it runs: one plain file a run, `STATE/live/run-N`, for those who watch.

It is not durable and nothing rests on it: a launch's log is kept as an artifact when its arm ends. The runner holds an
exclusive lock on the file for as long as it lives, which the kernel takes back however it ends: so others learn
whether a run is alive without asking it.

A line is `KIND TAB EPOCH TAB TEXT`, without control characters in the text. Kinds:

| kind | text |
|---|---|
| `log` | a line of the server's log |
| `server` | the server's log says that it reached this phase |
| `phase` | the run begins this phase: `NAME TAB DETAIL` |
| `done` | a phase is over: `NAME TAB SECONDS TAB RESULT` |
| `note`, `warn` | a sentence for people |
| `gpu` | JSON: card → [MiB used, MiB in all or null] |
| `state` | `paused` or `running` |
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.errors import Refused

LARGEST_BYTES = 16 << 20
"""A larger file begins anew; a reader sees that it became shorter."""
LONGEST_LINE = 4000
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class LiveLine:
    kind: str
    at: float
    text: str


def live_path(state_dir: Path, run_id: int) -> Path:
    return state_dir / "live" / f"run-{run_id}"


def is_alive(state_dir: Path, run_id: int) -> bool:
    """Whether a process of this machine carries the run out just now."""
    try:
        with live_path(state_dir, run_id).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except OSError:
        return False
    return False


class LiveWriter:
    """Of any thread. What cannot be written is dropped: a full disk must not stop a run."""

    def __init__(self, state_dir: Path, run_id: int, now: Callable[[], float], mask: Callable[[str], str]) -> None:
        self._now, self._mask = now, mask
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        path = live_path(state_dir, run_id)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.truncate(0)
        except OSError as error:
            raise Refused(f"{error.filename or path}: {error.strerror}", facts={"file": str(path)}) from error

    def write(self, kind: str, *texts: str) -> None:
        """Each text is a line of its own, masked."""
        head = f"{kind}\t{self._now():.3f}\t"
        lines = "".join(f"{head}{_flat(self._mask(text))}\n" for text in texts)
        with self._lock:
            if self._file is None:
                return
            try:
                if os.fstat(self._file.fileno()).st_size > LARGEST_BYTES:
                    self._file.truncate(0)
                self._file.write(lines.encode("utf-8", "backslashreplace"))
            except OSError:
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _flat(text: str) -> str:
    """Tabs part fields; line ends would part lines."""
    return text[:LONGEST_LINE].replace("\n", "⏎").replace("\r", "⏎")


class LiveReader:
    """Reads on from where it was."""

    def __init__(self, state_dir: Path, run_id: int) -> None:
        self.run_id = run_id
        self._path = live_path(state_dir, run_id)
        self._offset = 0
        self._rest = b""

    def read(self) -> list[LiveLine]:
        """What is new, at most about 1 MiB of it; ask again for more."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return _parse(whole)


def _parse(lines: Iterable[bytes]) -> list[LiveLine]:
    return [line for raw in lines if (line := _line(raw.decode("utf-8", "replace").split("\t", 2))) is not None]


def _line(fields: Sequence[str]) -> LiveLine | None:
    """None for what is no line of ours, such as the half of one after a truncation."""
    if len(fields) != 3:
        return None
    try:
        return LiveLine(fields[0], float(fields[1]), fields[2])
    except ValueError:
        return None
