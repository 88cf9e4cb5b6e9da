"""The real SGLang of tests/rig, as an inventory of ours describes it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

VERSION = "0.5.10.post1"


@dataclass(frozen=True)
class Rig:
    root: Path

    @property
    def site(self) -> Path:
        return self.root / "venv" / "lib" / "python3.11" / "site-packages"

    @property
    def source(self) -> Path:
        return self.site / "sglang"

    def differences_from_wheel(self) -> str:
        """Every file below sglang/ that is not as the wheel's RECORD says; empty when all are."""
        check = Path(__file__).parents[1] / "rig" / "check_tree.py"
        done = subprocess.run([sys.executable, str(check), str(self.site)], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def target(self, port: int) -> dict[str, object]:
        """As tests/rig/launch.sh starts it, with tensor parallel 2."""
        return {
            "engine": "sglang",
            "python": str(self.root / "venv" / "bin" / "python"),
            "source": str(self.source),
            "model": str(self.root / "model"),
            "port": port,
            "args": {
                "device": "cpu",
                "attention-backend": "torch_native",
                "sampling-backend": "pytorch",
                "disable-cuda-graph": True,
                "disable-piecewise-cuda-graph": True,
                "max-total-tokens": 4096,
                "max-running-requests": 8,
                "mem-fraction-static": 0.2,
                "tp-size": 2,
            },
            "env": {
                "PYTHONPATH": str(self.root / "stubs"),
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "TORCHDYNAMO_DISABLE": "1",
                "OMP_NUM_THREADS": "1",
                "SGLANG_CACHE_DIR": str(self.root / "cache"),
                "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
            },
            "ready": {"limit": "5m", "stall": "2m"},
            "stop_grace": "15s",
        }


def find_rig() -> Rig:
    """The rig named by ORCHESTRATOR_TEST_RIG. Skips with the reason where there is none."""
    named = os.environ.get("ORCHESTRATOR_TEST_RIG")
    if not named:
        pytest.skip("no ORCHESTRATOR_TEST_RIG; scripts/test builds one")
    rig = Rig(Path(named))
    if not (rig.source / "version.py").is_file() and not rig.source.is_dir():
        pytest.skip(f"{named} holds no SGLang {VERSION}; tests/rig/make_rig.sh {named} builds it")
    return rig


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
