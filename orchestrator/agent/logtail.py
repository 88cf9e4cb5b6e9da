"""Follows the log of a launch: every line once, in order, within 50 ms, to the end.

`Lines` is the pure part: bytes in, lines out, however the bytes are cut.
"""

from __future__ import annotations

import os
import re
import select
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from orchestrator.agent import kernel

BATCH_S = 0.05
MAX_LINE = 16 << 10
_BLOCK = 256 << 10
_ENDS = re.compile(rb"\r\n|\n|\r")


class Lines:
    """Cuts bytes into lines at LF, CR and CR LF. A line longer than `MAX_LINE` bytes keeps its head and a mark."""

    def __init__(self) -> None:
        self.lineno = 1  # of the next line
        self.offset = 0  # of the next line's first byte
        self._partial = b""
        self._cut = 0  # bytes of the partial line beyond its head
        self._after_cr = False

    def feed(self, block: bytes) -> Tuple[List[str], int, int]:
        """(complete lines, number of the first, its byte offset)."""
        start = 0
        if self._after_cr and block[:1] == b"\n":
            start = 1  # the second half of a CR LF that was cut in two
            self.offset += 1
        first, offset = self.lineno, self.offset
        lines = []
        for end in _ENDS.finditer(block, start):
            self._grow(block[start : end.start()])
            lines.append(self._take(end.end() - end.start()))
            start = end.end()
        self._grow(block[start:])
        self._after_cr = block[-1:] == b"\r" if block else self._after_cr
        self.lineno += len(lines)
        return lines, first, offset

    def finish(self) -> Tuple[List[str], int, int]:
        """The line that never ended, if there is one."""
        first, offset = self.lineno, self.offset
        if not self._partial:
            return [], first, offset
        self.lineno += 1
        return [self._take(0)], first, offset

    def _grow(self, piece: bytes) -> None:
        room = MAX_LINE - len(self._partial)
        self._partial += piece[:room]
        self._cut += max(len(piece) - room, 0)

    def _take(self, terminator: int) -> str:
        self.offset += len(self._partial) + self._cut + terminator
        text = self._partial.decode("utf-8", "replace")
        if self._cut:
            text += f" … [{self._cut} bytes cut]"
        self._partial, self._cut = b"", 0
        return text


Emit = Callable[[str, Dict[str, Any]], None]


class LogTail:
    """A thread that sends `log` events for one file. `flush` returns when all that was written before is sent."""

    def __init__(self, launch_id: str, path: str, emit: Emit) -> None:
        self._launch_id, self._path, self._emit = launch_id, path, emit
        self._lines = Lines()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._watch = kernel.watch_file(path)
        self._wake_read, self._wake_write = os.pipe()
        self._closing = False
        self._lock = threading.Lock()  # one reader of the file at a time: this thread or `flush`
        self.last_line = ""
        self._thread = threading.Thread(target=self._follow, name=f"log {launch_id}", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._fd).st_size

    def flush(self) -> None:
        """Send everything up to the present end of the file, an unfinished line included."""
        with self._lock:
            self._drain(self.size)
            self._send(*self._lines.finish())

    def close(self) -> None:
        """Flush and end the thread."""
        self._closing = True
        os.write(self._wake_write, b".")
        self._thread.join()
        self.flush()
        for fd in (self._fd, self._watch, self._wake_read, self._wake_write):
            if fd is not None:
                os.close(fd)

    def _follow(self) -> None:
        pause, poller = select.poll(), select.poll()
        for one in (pause, poller):
            one.register(self._wake_read, select.POLLIN)
        if self._watch is not None:
            poller.register(self._watch, select.POLLIN)
        while not self._closing:
            # A look once a second costs nothing and covers file systems that do not tell of other nodes' writes.
            poller.poll(1000 if self._watch is not None else BATCH_S * 1000)
            self._clear_watch()
            with self._lock:
                self._drain(None)
            pause.poll(BATCH_S / 2 * 1000)  # lets a burst gather into few events, and ends with `close`

    def _clear_watch(self) -> None:
        if self._watch is not None:
            try:
                os.read(self._watch, 65536)
            except BlockingIOError:
                return

    def _drain(self, limit: Optional[int]) -> None:
        """Read to the end, or to `limit`: a server that writes without pause must not hold up its exit event."""
        while limit is None or os.lseek(self._fd, 0, os.SEEK_CUR) < limit:
            block = os.read(self._fd, _BLOCK)
            if not block:
                return
            self._send(*self._lines.feed(block))
            if limit is None and len(block) < _BLOCK:
                return

    def _send(self, lines: List[str], first: int, offset: int) -> None:
        if lines:
            self.last_line = next((line for line in reversed(lines) if line.strip()), self.last_line)
            data = {"launch_id": self._launch_id, "lines": lines, "first_lineno": first, "offset": offset}
            self._emit("log", data)
