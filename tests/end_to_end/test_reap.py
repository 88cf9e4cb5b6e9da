"""`host reap` on the lab: who holds GPUs and port, what may end, and what stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, start_run, wait_for


@contextmanager
def holding(path: Path, *, python: str = sys.executable, env: dict[str, str] | None = None) -> Iterator[int]:
    """A process that has a GPU's device file open."""
    code = f"import sys; f = open({str(path)!r}); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def reap(bench: Bench, *words: str) -> dict[str, object]:
    code, shown = bench.run("host", "reap", "lab", "--hosts", str(bench.lab.hosts_file), *words)
    assert code == 0, shown
    return dict(shown)


def test_a_foreign_holder_is_shown_and_left_and_ends_only_when_named(bench: Bench) -> None:
    """User, age, memory, command and the reason are told; `ours --yes` and `engine --yes` leave it, `--pid` ends it."""
    with holding(bench.lab.root / "dev" / "nvidia3") as pid:
        (seen,) = reap(bench)["holders"]  # type: ignore[misc]
        assert seen["pid"] == pid and seen["would_end"] is False and seen["gpu_mib"] == 1024
        assert seen["user"] and seen["age_s"] >= 0 and "nvidia3" in seen["command"] and seen["rss_mib"] > 0
        assert "nothing shows that it is ours" in seen["why"]
        assert reap(bench)["ended"] == []
        for policy in ("ours", "engine"):
            assert reap(bench, "--policy", policy, "--yes")["ended"] == []
        assert is_alive(pid)
        done = reap(bench, "--pid", str(pid), "--yes")
        assert done["ended"] == [pid] and done["above_idle_mib"] == {}
        assert not is_alive(pid)


@pytest.mark.parametrize("called", ["by path", "by name"])
def test_engine_ends_what_runs_from_the_targets_interpreter_on_its_gpus(bench: Bench, called: str) -> None:
    """An old server of somebody, started as /…/venv/bin/python or as `python` from an activated environment, is shown
    first and then ended; a stranger beside it lives."""
    python = str(bench.lab.python)
    env = {"PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    name = python if called == "by path" else os.path.basename(python)
    device = str(bench.lab.root / "dev" / "nvidia0")
    code = f"import sys; f = open({device!r}); print('up', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    old = subprocess.Popen([name, "-c", code], executable=python, env=env, **pipes)
    try:
        assert old.stdout is not None
        old.stdout.readline()
        with holding(bench.lab.root / "dev" / "nvidia1") as stranger:
            assert reap(bench, "--yes")["ended"] == []
            shown = reap(bench, "--policy", "engine")
            fates = {h["pid"]: h["would_end"] for h in shown["holders"]}  # type: ignore[attr-defined]
            assert fates == {old.pid: True, stranger: False}
            assert reap(bench, "--policy", "engine", "--yes")["ended"] == [old.pid]
            assert old.wait(10) is not None and is_alive(stranger)
    finally:
        old.kill()
        old.communicate()


def test_a_level_seen_before_names_what_was_there_when_we_came(bench: Bench) -> None:
    """The idle level is the lowest ever seen, not the one at which we come: a holder that was there first is seen."""
    assert reap(bench)["above_idle_mib"] == {}
    with holding(bench.lab.root / "dev" / "nvidia3"):
        assert reap(bench)["above_idle_mib"] == {"3": 1024}
    events = bench.run("host", "reap", "lab", "--hosts", str(bench.lab.hosts_file))[1]
    assert events["above_idle_mib"] == {}


def test_a_pid_of_another_namespace_is_shown_and_never_ended(bench: Bench) -> None:
    """S10: the driver names the pid of a harmless process here; it survives every policy but its own name."""
    with subprocess.Popen(["sleep", "600"]) as harmless:
        try:
            tool = bench.lab.root / "bin" / "nvidia-smi"
            real = tool.rename(tool.with_name("real-smi"))
            line = f"{harmless.pid}, 81000, GPU-1, python3"
            tool.write_text(f'#!/bin/sh\ncase "$*" in *compute-apps*) echo "{line}";; *) exec {real} "$@";; esac\n')
            tool.chmod(0o755)
            for words in ([], ["--yes"], ["--policy", "engine", "--yes"]):
                (seen,) = reap(bench, *words)["holders"]  # type: ignore[misc]
                assert seen["pid"] == harmless.pid and seen["would_end"] is False and seen["gpu_mib"] == 81000
                assert "another pid namespace" in seen["why"] and "sleep 600" in seen["why"]
            assert harmless.poll() is None
        finally:
            harmless.kill()


def test_a_wedged_driver_is_a_finding_and_no_hang(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """S08: a GPU tool that never answers ends with the reason within its limit."""
    from orchestrator.hosts import gputool

    monkeypatch.setattr(gputool, "_TIMEOUT_S", 0.5)
    tool = bench.lab.root / "bin" / "nvidia-smi"
    real = tool.rename(tool.with_name("real-smi"))
    tool.write_text(f'#!/bin/sh\ncase "$*" in *compute-apps*) exec sleep 60;; *) exec {real} "$@";; esac\n')
    tool.chmod(0o755)
    monkeypatch.setattr(gputool, "_TIMEOUT_S", 3.0)
    code, shown = bench.run("host", "reap", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 7
    assert "wedged" in shown["error"]["problems"][0]["what"]


def test_what_a_dead_launch_left_is_removed_and_what_looks_alike_is_not(bench: Bench) -> None:
    """Controller and guard were killed, and the server after them: its temporary directory goes with `host reap`."""
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    foreign = Path("/tmp/orc-not-ours-at-all")
    foreign.mkdir(exist_ok=True)
    try:
        ended = reap(bench, "--yes")["ended"]
        assert len(ended) >= 9  # type: ignore[arg-type]
        code, shown = bench.run("host", "recover", "lab", "--hosts", str(bench.lab.hosts_file))
        assert code == 0, shown
        assert foreign.is_dir()
    finally:
        foreign.rmdir()
