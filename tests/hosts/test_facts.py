"""Probes: what recorded outputs of hosts mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.model import Route, Target
from orchestrator.errors import Dirty
from orchestrator.hosts import connect
from orchestrator.hosts.facts import (
    Space,
    count_range,
    parse_df,
    parse_facts,
    parse_limits,
    parse_memory,
    probe_commands,
)
from orchestrator.hosts.gputool import parse_gpus, parse_links
from orchestrator.hosts.interpreter import interpreter_command, parse_interpreter

RECORDED = Path(__file__).parent.parent / "fixtures" / "probes"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def said(stdout: str = "", rc: int | None = 0, **rest: object) -> dict[str, Any]:
    return {"rc": rc, "stdout": stdout, "stderr": "", "timed_out": False, **rest}


ABSENT = said(rc=None, error="[Errno 2] No such file or directory: 'nvidia-smi'")
WEDGED = said(rc=None, timed_out=True)


def gpu_outputs(query: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> dict[str, Mapping[str, Any]]:
    return {
        "gpu_query": query,
        "gpu_query_old": old or query,
        "gpu_table": said(recorded("table-575")),
        "gpu_links": said(recorded("topo-two-cards")),
    }


def test_two_cards() -> None:
    """Index, name, capability, memory, PCIe, driver, CUDA and the links between the cards."""
    report = parse_gpus(gpu_outputs(said(recorded("query-rtx-pro-6000"))))
    assert [(g.index, g.compute_cap, g.memory_total_mib, g.memory_used_mib) for g in report.gpus] == [
        (0, "12.0", 97887, 2),
        (1, "12.0", 97887, 95210),
    ]
    assert [(g.pcie_gen, g.pcie_width) for g in report.gpus] == [(5, 16), (5, 8)]
    assert (report.driver, report.cuda, report.problem) == ("575.57.08", "12.9", None)
    assert report.links == (("X", "NODE"), ("NODE", "X"))


def test_values_that_are_not_available_are_none() -> None:
    """A card with unified memory reports `[N/A]`: unknown, and not zero."""
    (gpu,) = parse_gpus(gpu_outputs(said(recorded("query-gb10")))).gpus
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.pcie_gen, gpu.compute_cap) == (None, None, None, "12.1")


def test_an_old_driver_is_asked_less() -> None:
    """A driver that refuses the query for one unknown field still tells name, driver and memory."""
    outputs = gpu_outputs(said(recorded("query-unknown-field"), rc=2), said(recorded("query-old-driver")))
    report = parse_gpus(outputs)
    assert [(g.name, g.compute_cap, g.memory_total_mib) for g in report.gpus] == [
        ("NVIDIA A100-SXM4-80GB", None, 81251)
    ]
    assert report.driver == "470.223.02"


def test_a_card_that_fell_off_the_bus_does_not_hide_the_others() -> None:
    """A line that is an error is no card; unknown values of a sick card are None."""
    gpus = parse_gpus(gpu_outputs(said(recorded("query-lost-card")))).gpus
    assert [(g.index, g.memory_used_mib, g.pcie_gen) for g in gpus] == [(0, 1, 5), (2, None, None)]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ABSENT, "cannot be started"),
        (WEDGED, "the driver is wedged"),
        (said(recorded("smi-failed"), rc=9), "couldn't communicate with the NVIDIA driver"),
        (said(recorded("smi-mismatch"), rc=18), "Driver/library version mismatch"),
        (said(recorded("smi-no-devices"), rc=6), "No devices were found"),
        (said(recorded("smi-no-devices")), "finds no device"),
        (said(rc=-11), "says nothing"),
    ],
)
def test_a_tool_that_fails_is_a_fact(answer: Mapping[str, Any], problem: str) -> None:
    """Missing, hanging, failing: each is a sentence, no exception, and no invented cards."""
    report = parse_gpus(gpu_outputs(answer))
    assert report.gpus == () and report.problem is not None and problem in report.problem


def test_memory_that_cannot_be_seen_is_not_free() -> None:
    """Waiting for idle memory must not take a wedged driver for an empty card."""
    assert parse_memory({"gpu_memory": said("0, 2\n1, [N/A]\n")}) == {0: 2}
    with pytest.raises(Dirty, match="wedged"):
        parse_memory({"gpu_memory": WEDGED})


def test_links_need_a_whole_table() -> None:
    """No table, or one of another size, gives no links rather than wrong ones."""
    assert parse_links("", 0) == () and parse_links("", 2) == ()
    assert parse_links(recorded("topo-two-cards"), 3) == ()


def test_a_host_from_recorded_outputs() -> None:
    """CPU, NUMA, governor, kernel, system, limits and space are read from one `run`."""
    outputs = {
        **gpu_outputs(ABSENT),
        "interpreter": said(rc=None, error="no such file"),
        "files": said(recorded("files-debian"), rc=1),
        "lscpu": said(rc=None, error="no such file"),
        "shm": said(recorded("df-shm")),
        "disk": said(recorded("df-long-name")),
    }
    facts = parse_facts(outputs)
    assert (facts.cpu, facts.cpu_count, facts.numa_nodes) == ("AMD EPYC 9575F 64-Core Processor", 128, 2)
    assert (facts.governor, facts.kernel, facts.os) == ("performance", "6.8.12-9-pve", "Debian GNU/Linux 12 (bookworm)")
    assert facts.driver == "575.57.08", "the kernel module tells it where nvidia-smi is missing"
    assert facts.limits is not None
    assert (facts.limits.open_files, facts.limits.memlock_bytes) == (1024, None)
    assert facts.shm is not None and facts.shm.free_kib == 65532
    assert len(facts.problems) == 2
    assert json.loads(json.dumps(facts.as_json()))["cpu_count"] == 128


def test_small_parsers() -> None:
    """Ranges, `df` of a path with blanks, and empty outputs."""
    assert [count_range(t) for t in ("0", "0-3,8-11", "", "\n")] == [1, 8, None, None]
    assert parse_df(recorded("df-long-name")) == Space(103081248, 0, "/mnt/with blank")
    assert parse_df("") is None and parse_df("df: /x: No such file or directory") is None
    assert parse_limits("") is None


# ---------------------------------------------------------------- the interpreter, for real


def ask(tmp_path: Path, env: Mapping[str, str], package: str | None = None, python: str = sys.executable) -> Any:
    command = interpreter_command(python, ["pydantic", "not-there"], package, env, str(tmp_path))
    done = subprocess.run(command["argv"], env=command["env"], cwd=command["cwd"], capture_output=True, text=True)
    return parse_interpreter(said(done.stdout, done.returncode, stderr=done.stderr), python)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment of its own, with an engine package in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    (site / "engine").mkdir()
    (site / "engine" / "__init__.py").write_text("raise SystemExit('imported!')\n")
    return site


def test_versions_as_the_interpreter_sees_them(tmp_path: Path) -> None:
    """Installed packages have their version, others None; nothing is written."""
    seen = ask(tmp_path, {})
    assert seen.packages["pydantic"] and seen.packages["not-there"] is None
    assert seen.version == ".".join(map(str, sys.version_info[:3]))
    assert list(tmp_path.iterdir()) == []


def test_the_engine_is_found_and_not_imported(tmp_path: Path, venv: Path) -> None:
    """Its origin is told without running a line of it, and no bytecode appears beside it."""
    seen = ask(tmp_path, {}, "engine", str(tmp_path / "venv/bin/python"))
    assert seen.package_origin == str(venv / "engine" / "__init__.py")
    assert [p.name for p in (venv / "engine").iterdir()] == ["__init__.py"]


def test_a_namespace_package_from_the_working_directory_is_no_engine(tmp_path: Path) -> None:
    """A checkout's folder of the same name in the working directory has no origin."""
    (tmp_path / "engine").mkdir()
    assert ask(tmp_path, {}, "engine").package_origin is None


def test_sitecustomize_of_the_environment_is_ours_to_edit(tmp_path: Path, venv: Path) -> None:
    """Where there is none yet, the place for one is in the environment; an existing one there is found."""
    python = str(tmp_path / "venv/bin/python")
    before = ask(tmp_path, {}, None, python)
    assert before.would_be_sitecustomize == str(venv / "sitecustomize.py")
    if before.sitecustomize is None:
        assert before.is_sitecustomize_inside_environment
        (venv / "sitecustomize.py").write_text("print('noise {')\n")
        after = ask(tmp_path, {}, None, python)
        assert after.sitecustomize == str(venv / "sitecustomize.py") and after.is_sitecustomize_inside_environment


def test_sitecustomize_on_the_path_belongs_to_others_too(tmp_path: Path, venv: Path) -> None:
    """One that PYTHONPATH brings wins, and is not of the environment."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "sitecustomize.py").write_text("import sys; print('banner'); sys.stderr.write('x')\n")
    seen = ask(tmp_path, {"PYTHONPATH": str(tmp_path / "elsewhere")}, None, str(tmp_path / "venv/bin/python"))
    assert seen.sitecustomize == str(tmp_path / "elsewhere" / "sitecustomize.py")
    assert not seen.is_sitecustomize_inside_environment


def test_an_interpreter_that_breaks_is_a_fact(tmp_path: Path) -> None:
    """A start-up file that fails, or a hang, becomes a sentence."""
    assert "exit code 3" in (parse_interpreter(said(rc=3), "python").problem or "")
    assert "does not answer" in (parse_interpreter(WEDGED, "python").problem or "")
    assert "cannot be started" in (parse_interpreter(ABSENT, "python").problem or "")


def test_a_gpu_tool_that_hangs_costs_its_own_limit_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real agent: `nvidia-smi` hangs, everything else is known, and the call returns."""
    from orchestrator.hosts import gputool

    monkeypatch.setattr(gputool, "_TIMEOUT_S", 0.5)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    target = Target(engine="command", launch=("x",), python=sys.executable, source=str(tmp_path))
    with connect(Route(), name="here") as connection:
        commands = probe_commands(
            target, engine_package=None, packages=[], gpu_tool=str(tool), env=dict(os.environ), cwd=str(tmp_path)
        )
        facts = parse_facts(connection.call("run", {"commands": commands}))
    assert facts.gpus == () and "wedged" in facts.problems[0]
    assert facts.boot_id and facts.cpu_count and facts.disk and facts.python
