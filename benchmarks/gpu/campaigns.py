"""The inventory and the playbooks of the table, written for the rig that is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QWEN3 = "sglang/srt/models/qwen3.py"
FORWARD = "        hidden_states = self.model(\n            input_ids,\n"
SPIN_CYCLES = 60 * 1_900_000_000  # a minute of an H200's clock
# NVLink multicast can put the cards of a shared host out of service. A server's environment is ours alone.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
STAND_IN_FLAGS: dict[str, Any] = {
    "load-format": "dummy",
    "attention-backend": "triton",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "disable-custom-all-reduce": True,
    "disable-piecewise-cuda-graph": True,
}
SMALL: dict[str, Any] = {"max-total-tokens": 16384, "mem-fraction-static": 0.3, "cuda-graph-max-bs": 4}
CPU_FLAGS: dict[str, Any] = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "sampling-backend": "pytorch",
    "disable-cuda-graph": True,
    "disable-piecewise-cuda-graph": True,
    "max-total-tokens": 4096,
    "max-running-requests": 8,
    "mem-fraction-static": 0.2,
}


@dataclass(frozen=True)
class Rig:
    """A directory with a venv whose python starts SGLang: as install.sh makes it, or tests/rig for `cpu`."""

    root: Path
    work: Path
    port: int
    cpu: bool = False

    @property
    def python(self) -> Path:
        return self.root / "venv" / "bin" / "python"

    @property
    def site(self) -> Path:
        return next((self.root / "venv" / "lib").glob("python3*/site-packages"))

    @property
    def flag(self) -> Path:
        """While this file exists, the patch that spins does so."""
        return self.work / "spin"

    @property
    def device(self) -> Path:
        """Without a card an ordinary file is the device that others hold."""
        return self.work / "device0"


def target(rig: Rig, args: dict[str, Any], env: dict[str, str], gpus: list[int]) -> dict[str, Any]:
    common = {
        "engine": "sglang",
        "python": str(rig.python),
        "source": str(rig.site / "sglang"),
        "port": rig.port,
        "ready": {"limit": "4m", "stall": "2m"},
        "stop_grace": "10s",
    }
    if not rig.cpu:
        model = str(rig.root / "models" / "mid")
        return {**common, "model": model, "gpus": gpus, "args": args, "env": OFFLINE | WITHOUT_MULTICAST | env}
    alone = {"PYTHONPATH": str(rig.root / "stubs"), "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    return {**common, "model": str(rig.root / "model"), "args": CPU_FLAGS, "env": OFFLINE | alone}


def inventory(rig: Rig) -> dict[str, Any]:
    """`rig`: one card, graphs on. `greedy`: nearly all memory for the cache. `pair`: two cards, no peer to peer."""
    targets = {
        "small": target(rig, STAND_IN_FLAGS | SMALL, {}, [0]),
        "greedy": target(rig, STAND_IN_FLAGS | {"mem-fraction-static": 0.995}, {}, [0]),
        "pair": target(rig, STAND_IN_FLAGS | SMALL | {"tp-size": 2}, {"NCCL_P2P_DISABLE": "1"}, [0, 1]),
    }
    more = {"gpu_devices": [str(rig.device)]} if rig.cpu else {}
    hosts = {"rig": "small", "greedy": "greedy", "pair": "pair"}
    return {"hosts": {h: {"route": "local", "target": t, **more} for h, t in hosts.items()}, "targets": targets}


def edit(body: str) -> dict[str, Any]:
    return {"patch": {"edits": [{"file": QWEN3, "find": FORWARD, "replace": body + FORWARD}]}}


def spin(rig: Rig) -> dict[str, Any]:
    wait = "__import__('time').sleep(60)" if rig.cpu else f"torch.cuda._sleep({SPIN_CYCLES})"
    body = f"        if __import__('os').path.exists({str(rig.flag)!r}):\n            {wait}\n"
    return {
        "id": "spin",
        "claim": "a kernel that does not come back ends by the engine's watchdog",
        "bundle": "the watchdog's usual five minutes are too long for a table",
        "changes": [edit(body), {"args": {"watchdog-timeout": 20 if rig.cpu else 10}}],
    }


def first_two(rig: Rig) -> list[dict[str, Any]]:
    """An arm that serves, and a patch that breaks the start (on a card: the capture of its graphs)."""
    if rig.cpu:
        broken = "        input_ids = input_ids + no_such_offset\n"
        arm = {
            "id": "no-graphs",
            "claim": "fewer requests at a time",
            "changes": [{"args": {"max-running-requests": 4}}],
        }
    else:
        broken = '        if input_ids.max().item() < 0:\n            raise ValueError("negative token id")\n'
        arm = {"id": "no-graphs", "claim": "without CUDA graphs", "changes": [{"args": {"disable-cuda-graph": True}}]}
    return [arm, {"id": "capture-sync", "claim": "a look at the ids on the host", "changes": [edit(broken)]}]


def chained(hypotheses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each after the one before it, so that the order of the rows is fixed."""
    ids = [h["id"] for h in hypotheses]
    return [{**h, "after": ids[:i]} for i, h in enumerate(hypotheses)]


def playbooks(rig: Rig) -> dict[str, dict[str, Any]]:
    measure = {"metric": "output_tps", "min_effect": "5%", "repetitions": 3, "launches": 1}
    arms = first_two(rig)
    short = {"prompt_tokens": 48, "output_tokens": 32} if rig.cpu else {"prompt_tokens": 128, "output_tokens": 128}
    long = {"prompt_tokens": 48, "output_tokens": 300} if rig.cpu else {"prompt_tokens": 128, "output_tokens": 2000}
    tree = {"id": "nccl-tree", "claim": "tree all-reduce", "changes": [{"env": {"NCCL_ALGO": "Tree"}}]}
    return {
        "arms": {"workload": short, "measure": measure, "hypotheses": chained([*arms, spin(rig)])},
        "long": {"workload": long, "measure": measure | {"repetitions": 5}, "hypotheses": arms[:1]},
        "greedy": {
            "workload": {"prompt": "q" * 7000, "prompt_tokens": 7000, "output_tokens": 16, "warmup": 0},
            "measure": measure,
            "hypotheses": arms[:1],
        },
        "pair": {"workload": {"output_tokens": 1024}, "measure": measure, "hypotheses": [tree]},
    }


def write(rig: Rig) -> None:
    """`hosts.yaml` and one file for each playbook, in the rig's working directory."""
    rig.work.mkdir(parents=True, exist_ok=True)
    rig.device.touch()
    (rig.work / "hosts.yaml").write_text(json.dumps(inventory(rig), indent=1), encoding="utf-8")
    for name, playbook in playbooks(rig).items():
        host = name if name in ("greedy", "pair") else "rig"
        body = {"campaign": f"gpu-{name}", "host": host, **playbook}
        (rig.work / f"{name}.yaml").write_text(json.dumps(body, indent=1), encoding="utf-8")
