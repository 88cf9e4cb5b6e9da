"""A lab's server in a test: started for real, watched through its log, gone at the end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.lab import Lab

READY = "fired up and ready to roll"
DEADLINE_S = 20.0


@dataclass(frozen=True)
class Stream:
    """One streamed answer: tokens per second after the first chunk, and the last event."""

    tps: float
    last: dict[str, Any]

    @property
    def meta(self) -> dict[str, Any]:
        return dict(self.last["meta_info"])


class Server:
    """A running server of `lab`."""

    def __init__(self, lab: Lab, process: subprocess.Popen[bytes]) -> None:
        self.lab = lab
        self.process = process
        self.log = ""
        self._selector = selectors.DefaultSelector()
        assert process.stderr is not None
        self._stderr = process.stderr.fileno()
        self._selector.register(self._stderr, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        return self.process.pid

    def await_log(self, text: str, deadline_s: float = DEADLINE_S) -> str:
        """The log once it holds `text`; fails when it ends or takes too long."""
        ends_at = time.monotonic() + deadline_s
        while text not in self.log:
            assert self._read(ends_at), f"the log ended without {text!r}:\n{self.log}"
        return self.log

    def await_ready(self) -> Server:
        self.await_log(READY)
        return self

    def await_exit(self, deadline_s: float = DEADLINE_S) -> int:
        """The exit status; the log is complete afterwards unless somebody who outlives the server holds it."""
        status = self.process.wait(deadline_s)
        while self._selector.select(0) and self._read(time.monotonic() + deadline_s):
            pass
        return status

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.await_exit()

    def get(self, path: str) -> tuple[int, Any]:
        return self._ask("GET", path, None)

    def post(self, path: str, body: object) -> tuple[int, Any]:
        return self._ask("POST", path, body)

    def generate(self, text: str, tokens: int = 16, *, ignore_eos: bool = True) -> dict[str, Any]:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": ignore_eos}
        status, answer = self.post("/generate", {"text": text, "sampling_params": sampling})
        assert status == 200, answer
        return dict(answer)

    def stream(self, text: str = "a river and a stone", tokens: int = 24) -> Stream:
        """Stream an answer and time it by the arrival of its chunks."""
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        with self._request("POST", "/generate", {"text": text, "stream": True, "sampling_params": sampling}) as answer:
            events = (line[6:] for line in answer if line.startswith(b"data: {"))
            arrivals = [(time.perf_counter(), json.loads(event)) for event in events]
        (first_s, first), (last_s, last) = arrivals[0], arrivals[-1]
        decoded = last["meta_info"]["completion_tokens"] - first["meta_info"]["completion_tokens"]
        return Stream(decoded / (last_s - first_s), last)

    def children(self) -> dict[int, list[bytes]]:
        """pid → command line of the direct children that run."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as file:
            pids = [int(pid) for pid in file.read().split()]
        return {pid: read_cmdline(pid) for pid in pids}

    def rank_pid(self, rank: int) -> int:
        title = f"sglang::scheduler_TP{rank}".encode()
        return next(pid for pid, words in self.children().items() if words[:1] == [title])

    def end(self) -> None:
        """Whatever happened: no process of this server is left, and none that it left behind."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pid in holder_pids(self.lab):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._selector.close()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _ask(self, method: str, path: str, body: object) -> tuple[int, Any]:
        with self._request(method, path, body) as answer:
            text = answer.read().decode()
            is_json = answer.getheader("Content-Type", "").startswith("application/json")
            return answer.status, json.loads(text) if is_json else text

    @contextlib.contextmanager
    def _request(self, method: str, path: str, body: object) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.lab.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            yield connection.getresponse()

    def _read(self, ends_at: float) -> bool:
        """Take in what the log brings; False at its end. Fails at the deadline."""
        if not self._selector.select(max(0.0, ends_at - time.monotonic())):
            raise AssertionError(f"nothing more in time; the log so far:\n{self.log}")
        data = os.read(self._stderr, 1 << 16)
        self.log += data.decode()
        return bool(data)


@contextlib.contextmanager
def launched(
    lab: Lab, flags: Sequence[str] = (), *, env: Mapping[str, str] | None = None, command: Sequence[str] | None = None
) -> Iterator[Server]:
    """The baseline with further flags and variables, or another command line."""
    process = subprocess.Popen(
        list(command or lab.server_command(*flags)),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **(env or {})},
        start_new_session=True,
    )
    server = Server(lab, process)
    try:
        yield server
    finally:
        server.end()


def read_cmdline(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return [word for word in file.read().split(b"\0") if word]


def holder_pids(lab: Lab) -> set[int]:
    """Processes that hold a GPU of the lab, as its own nvidia-smi lists them."""
    listed = query(lab, "--query-compute-apps=pid", "--format=csv,noheader")
    return {int(line) for line in listed.split()}


def query(lab: Lab, *arguments: str) -> str:
    """What the lab's nvidia-smi answers."""
    return subprocess.run([str(lab.nvidia_smi), *arguments], capture_output=True, text=True, check=True).stdout


def change_setting(lab: Lab, group: str, name: str, value: object) -> None:
    """Edit one value of `lab.json`, as a person would."""
    path = lab.root / "lab.json"
    settings = json.loads(path.read_text())
    settings[group][name]["value"] = value
    path.write_text(json.dumps(settings))


def replace_text(path: Any, find: str, put: str) -> None:
    """Edit a file whose text holds `find` once."""
    text = path.read_text()
    assert text.count(find) == 1
    path.write_text(text.replace(find, put))
