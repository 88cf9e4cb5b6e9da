"""The product's command line as a child process: its JSON, and its narration with the time of every line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ARM = re.compile(r"reap #(\d+) (\S+) \((\S+)\), (baseline|treatment) (\d+)")
_STEP = re.compile(r": (\w+) (.*?)\s*\((\d+\.\d+) s\)$")
_FORWARD = frozenset({"reap", "apply", "launch", "ready", "check", "gate", "measure"})


@dataclass
class Said:
    at: float
    text: str


@dataclass
class ArmSpan:
    """One arm as the narration tells it. `declared_at`: when a step on the way forward was first not ok."""

    experiment: int
    hypothesis: str
    kind: str
    begin_at: float
    end_at: float | None = None
    declared_at: float | None = None
    failed_step: str | None = None
    steps: dict[str, tuple[float, str]] = field(default_factory=dict)


class Command:
    """One invocation. `wait_for` sees the narration as it comes."""

    def __init__(self, words: Sequence[str], transcript: Path) -> None:
        self.words = list(words)
        self.begin_at = time.monotonic()
        self.said: list[Said] = []
        self._news = threading.Condition()
        self._stdout: list[bytes] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.pid = self._process.pid
        self._transcript = transcript
        self._threads = [threading.Thread(target=f, daemon=True) for f in (self._read_out, self._read_err)]
        for thread in self._threads:
            thread.start()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        self._stdout.append(self._process.stdout.read())

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        with self._transcript.open("a", encoding="utf-8") as transcript:
            transcript.write(f"\n$ orchestrator {' '.join(self.words)}\n")
            for raw in self._process.stderr:
                now = time.monotonic()
                text = raw.decode("utf-8", "replace").rstrip("\n")
                transcript.write(f"{now - self.begin_at:8.2f} {text}\n")
                transcript.flush()
                with self._news:
                    self.said.append(Said(now, text))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def wait_for(self, pattern: str, timeout_s: float, *, since: float = 0.0) -> Said | None:
        """The first line that matches, or None when the command ended or the time is over without one."""
        deadline = time.monotonic() + timeout_s
        expression = re.compile(pattern)
        with self._news:
            while True:
                for said in self.said:
                    if said.at >= since and expression.search(said.text):
                        return said
                left = deadline - time.monotonic()
                if left <= 0 or (self.is_over and not self._threads[1].is_alive()):
                    return None
                self._news.wait(min(left, 0.2))

    def finish(self, timeout_s: float) -> tuple[int, Any]:
        """Exit code and JSON. Past the limit it is interrupted, which puts the host back, and then killed."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(40.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        for thread in self._threads:
            thread.join(5.0)
        text = b"".join(self._stdout).decode("utf-8", "replace")
        with self._transcript.open("a", encoding="utf-8") as transcript:
            transcript.write(f"exit code {code} after {time.monotonic() - self.begin_at:.1f} s\n{text}\n")
        try:
            return code, json.loads(text)
        except ValueError:
            return code, {"text": text[-2000:]}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def arms(self) -> list[ArmSpan]:
        """The arms so far, in order."""
        spans: list[ArmSpan] = []
        for said in list(self.said):
            if begun := _ARM.search(said.text):
                spans.append(ArmSpan(int(begun[1]), begun[2], begun[4], said.at))
            elif spans and (step := _STEP.search(said.text)):
                self._note(spans[-1], said.at, step[1], step[2])
        return spans

    @staticmethod
    def _note(arm: ArmSpan, at: float, step: str, word: str) -> None:
        arm.steps.setdefault(step, (at, word))
        arm.end_at = at
        if arm.declared_at is None and step in _FORWARD and word != "ok":
            arm.declared_at, arm.failed_step = at, step
