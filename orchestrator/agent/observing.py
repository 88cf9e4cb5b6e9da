"""What else was going on while a server was measured: its own counters, the GPUs, and requests that were not ours."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any, Dict, List, Mapping, Optional

from orchestrator.agent import probes
from orchestrator.agent.errors import AgentError
from orchestrator.agent.web import Exchange

_COUNTERS_S = 5.0
_GPU_S = 10.0
_FIRST_GPU_S = 0.2
_MAX_LOG = 32 << 20
_ANSWERED = re.compile(rb'"POST /(?:generate|v1/completions|v1/chat/completions)[ ?]')


class Observer:
    """From `begin` to `end`; both may be called once. What cannot be seen is None in the report, never a zero.

    `spec`: `counters_path` of the server's metrics, `gpu_argvs`: commands that print the GPUs, of which the first that
    succeeds is used, `gpu_every_s`. `log`: the server's log, whose access lines are counted.
    """

    def __init__(self, spec: Mapping[str, Any], base: str, headers: Mapping[str, str], log: str) -> None:
        self._base, self._headers, self._log = base, dict(headers), log
        self._counters_path: Optional[str] = spec.get("counters_path")
        self._gpu_argvs: List[List[str]] = [list(argv) for argv in spec.get("gpu_argvs") or ()]
        self._gpu_every_s = float(spec.get("gpu_every_s") or 2.0)
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._gpu: List[Dict[str, Any]] = []
        self._began_at = 0.0
        self._offset: Optional[int] = None
        self._before: Optional[str] = None

    def begin(self) -> None:
        self._before = self._counters()
        self._offset = self._log_size()
        self._began_at = time.monotonic()
        if self._gpu_argvs:
            self._thread = threading.Thread(target=self._watch_gpus, name="gpus", daemon=True)
            self._thread.start()

    def end(self) -> Dict[str, Any]:
        """The report. `requests_logged`: requests for text that the server's access log shows in between."""
        seconds = time.monotonic() - self._began_at
        self._over.set()
        logged = self._requests_logged()
        after = self._counters()
        if self._thread is not None:
            self._thread.join(_GPU_S)
        counters = {"before": self._before, "after": after}
        return {"seconds": seconds, "counters": counters, "requests_logged": logged, "gpus": list(self._gpu)}

    def _counters(self) -> Optional[str]:
        """Lines of the metrics that are single numbers; None where the server tells none."""
        if self._counters_path is None:
            return None
        exchange = Exchange("GET", self._base + self._counters_path, headers=self._headers, timeout_s=_COUNTERS_S)
        try:
            status, _, content = exchange.run()
        except AgentError:
            return None
        if status != 200:
            return None
        lines = content.decode("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines if line and not line.startswith("#") and "_bucket" not in line)

    def _log_size(self) -> Optional[int]:
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return None

    def _requests_logged(self) -> Optional[int]:
        size = self._log_size()
        if self._offset is None or size is None or size - self._offset > _MAX_LOG:
            return None
        with open(self._log, "rb") as file:
            file.seek(self._offset)
            return len(_ANSWERED.findall(file.read()))

    def _watch_gpus(self) -> None:
        wait_s = _FIRST_GPU_S
        while not self._over.wait(wait_s):
            wait_s = self._gpu_every_s
            at_s = time.monotonic() - self._began_at
            text = self._ask_gpus()
            if text is not None:
                self._gpu.append({"at_s": round(at_s, 3), "stdout": text})

    def _ask_gpus(self) -> Optional[str]:
        """A driver that does not know one of the fields refuses the whole question: the next one asks for fewer."""
        while self._gpu_argvs:
            command = {"name": "gpus", "argv": self._gpu_argvs[0], "timeout_s": _GPU_S}
            reply = probes.run_commands([command])["gpus"]
            if reply["rc"] == 0:
                return str(reply["stdout"])
            del self._gpu_argvs[0]
        self._over.set()
        return None
