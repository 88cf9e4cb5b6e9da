"""The dashboard in a real terminal, beside a real run."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 90.0
LOOK_EVERY_S = 0.1
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux server of its own, with one window of 100×30."""

    def __init__(self, folder: Path) -> None:
        self._base = ["tmux", "-S", str(folder / "tmux.socket"), "-f", os.devnull]

    def start(self, command: str) -> None:
        self._tmux("new-session", "-d", "-x", "100", "-y", "30", command)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def end(self) -> None:
        subprocess.run([*self._base, "kill-server"], capture_output=True, check=False)

    def await_text(self, holds: Callable[[str], bool]) -> str:
        """tmux tells nobody that a screen changed: it is asked, against a deadline."""
        deadline = time.monotonic() + WITHIN_S
        while not holds(shown := self.text()):
            assert time.monotonic() < deadline, f"never came:\n{shown}"
            select.select([], [], [], LOOK_EVERY_S)
        return shown

    def _tmux(self, *words: str) -> str:
        return subprocess.run([*self._base, *words], capture_output=True, text=True, check=True).stdout


def await_that(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        select.select([], [], [], LOOK_EVERY_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.end()


@pytest.mark.timeout(300)
def test_the_demo_is_watched_and_stopped_from_the_dashboard_and_the_host_is_proved_clean(
    tmp_path: Path, terminal: Terminal
) -> None:
    """Beside `demo` in another process, the dashboard shows what runs; `s` then `x` stop it, it ends with 130, the
    screen says clean, and so does `host verify`. Closing the dashboard changes nothing."""
    state = tmp_path / "state"
    command = [sys.executable, "-m", "orchestrator.cli.main"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    said = tmp_path / "demo.log"
    with said.open("wb") as file:
        demo = subprocess.Popen([*command, "demo", "--dir", str(tmp_path)], env=environment, stderr=file, stdout=file)
    try:
        await_that(lambda: b"measure" in said.read_bytes(), demo, said)
        terminal.start(f"PYTHONPATH={ROOT} {' '.join(command)} tui --write --state {state}")
        shown = terminal.await_text(lambda text: "▶ busy lab" in text and "phase" in text and "GPU 0" in text)
        assert "to go" in shown
        terminal.press("s")
        terminal.await_text(lambda text: "stops at its next safe moment" in text)
        terminal.press("x")
        assert demo.wait(WITHIN_S) == 130, said.read_text()
        terminal.await_text(lambda text: "✓ clean lab" in text and "nothing runs now" in text)
        terminal.press("q")
    finally:
        if demo.poll() is None:
            demo.terminate()
            demo.wait(WITHIN_S)
    proved = subprocess.run(
        [*command, "host", "verify", "lab", "--state", str(state), "--json"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert proved.returncode == 0, proved.stdout + proved.stderr
    assert json.loads(proved.stdout)["host"] == "lab"
