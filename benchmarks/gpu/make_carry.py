"""Assemble what a GPU machine without network needs to run the table: a small SGLang rig, and what we need ourselves.

    python benchmarks/gpu/make_carry.py DIRECTORY       # needs a package registry; about 35 MB

The wheels are for CPython 3.12 on x86-64. The machine brings torch for CUDA, triton, transformers, nvcc and ninja.
DIRECTORY is replaced, and also gets the project as last committed. There: `bash DIRECTORY/install.sh /tmp/rig`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GLIBC_MINORS = (39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 27, 24, 17, 12, 5)
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in GLIBC_MINORS), "manylinux2014_x86_64", "manylinux1_x86_64")
CONTEXT_LENGTH = 8192
MODELS: dict[str, dict[str, int]] = {
    # head_dim 128 in both: SGLang's fused rope and qk-norm need 64 or more.
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    # 1.2 billion parameters: a decode step takes milliseconds, and a long prompt hundreds of MiB.
    "mid": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
    },
}
LIMIT_MIB = 60


def download(wheels: Path, pins: Path) -> None:
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", *platforms, "-d", str(wheels), "-r", str(pins)]
    subprocess.run(command, check=True)


def copy_project(checkout: Path) -> None:
    checkout.mkdir()
    command = ["git", "-C", str(HERE.parents[1]), "archive", "HEAD", "orchestrator", "benchmarks", "tests/rig"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(checkout, filter="data")


def model_files(architecture: str) -> dict[str, dict[str, Any]]:
    """Config and tokenizer of the rig's own small model, by file name."""
    path = HERE.parents[1] / "tests" / "rig" / "tiny_model.py"
    spec = importlib.util.spec_from_file_location("tiny_model", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, dict[str, Any]] = module.json_files(architecture)
    return files


def write_models(directory: Path) -> None:
    for name, size in MODELS.items():
        files = model_files("qwen3")
        layers = size["num_hidden_layers"]
        files["config.json"] |= size | {
            "head_dim": 128,
            "max_position_embeddings": CONTEXT_LENGTH,
            "max_window_layers": layers,
        }
        files["tokenizer_config.json"]["model_max_length"] = CONTEXT_LENGTH
        (directory / name).mkdir(parents=True)
        for file, content in files.items():
            (directory / name / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def size_mib(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 2**20


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    destination = Path(sys.argv[1])
    if destination.exists() and not (destination / "install.sh").is_file():
        raise SystemExit(f"{destination} exists and was not made by this program")
    shutil.rmtree(destination, ignore_errors=True)
    download(destination / "wheels-rig", HERE / "wheels-rig.txt")
    download(destination / "wheels-own", HERE / "wheels-own.txt")
    write_models(destination / "models")
    copy_project(destination / "checkout")
    shutil.copytree(HERE / "stubs", destination / "stubs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "install.sh", destination / "install.sh")
    total = size_mib(destination)
    print(f"{destination}: {total:.1f} MiB")
    if total > LIMIT_MIB:
        raise SystemExit(f"more than {LIMIT_MIB} MiB")


if __name__ == "__main__":
    main()
