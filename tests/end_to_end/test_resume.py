"""`run --resume` after a SIGKILL of the controller: the server is gone on with, and nothing is measured twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, processes_of, start_run, wait_for

SLOW = {"prompt_tokens": 8, "output_tokens": 64}


def cut_off(bench: Bench, playbook: Path, *phases: str) -> None:
    """SIGKILL of the controller once its narration has come to these phases, in order."""
    process = start_run(bench, playbook)
    for phase in phases:
        wait_for(process, phase)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def launches(bench: Bench) -> list[dict[str, Any]]:
    found = []
    for row in bench.run("experiment", "list")[1]["experiments"]:
        shown = bench.run("experiment", "show", str(row["id"]))[1]
        for arm in shown["experiment"]["arms"] if "experiment" in shown else shown["arms"]:
            found += [{**launch, "kind": arm["kind"]} for launch in arm["launches"]]
    return found


def outcomes(bench: Bench) -> list[tuple[str, str]]:
    return [(launch["kind"], launch["outcome"]) for launch in launches(bench)]


@pytest.mark.parametrize("phase", ["launch ok", "server is at weights", "ready ok", "gate ok"])
def test_a_treatment_that_loads_or_serves_is_adopted(bench: Bench, phase: str) -> None:
    """No further launch: the server of the killed run is measured, stopped and reverted, and its baseline still
    counts."""
    before = bench.tree()
    playbook = bench.write_playbook([MARKER], workload=SLOW)
    cut_off(bench, playbook, "treatment 1", phase)
    code, summary = bench.run("run", str(playbook), "--resume")
    assert code == 0, summary
    assert summary["launches"] == 0
    assert summary["findings"][0]["hypothesis_id"] == "marker"
    assert summary["findings"][0]["treatment_launches"] == 1
    assert outcomes(bench) == [("baseline", "measured"), ("treatment", "measured")]
    assert bench.tree() == before
    assert processes_of(bench) == []
    assert bench.run("ledger", "check")[0] == 0
    assert bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))[0] == 0


def test_a_baseline_that_serves_is_adopted(bench: Bench) -> None:
    """The baseline's launch is gone on with; the treatment follows as usual."""
    before = bench.tree()
    playbook = bench.write_playbook([MARKER], workload=SLOW)
    cut_off(bench, playbook, "baseline 1", "ready ok")
    code, summary = bench.run("run", str(playbook), "--resume")
    assert code == 0, summary
    assert summary["launches"] == 1
    assert outcomes(bench) == [("baseline", "measured"), ("treatment", "measured")]
    assert bench.tree() == before
    assert bench.run("ledger", "check")[0] == 0


def test_what_was_on_its_way_back_is_taken_back(bench: Bench) -> None:
    """Killed after the stop: nothing is there to adopt, the host is recovered, the recorded baseline is not measured
    again."""
    before = bench.tree()
    playbook = bench.write_playbook([MARKER], workload=SLOW)
    cut_off(bench, playbook, "treatment 1", "stop ok")
    code, summary = bench.run("run", str(playbook), "--resume")
    assert code == 0, summary
    assert summary["launches"] == 1
    assert [kind for kind, outcome in outcomes(bench) if outcome == "measured"] == ["baseline", "treatment"]
    assert bench.tree() == before
    assert bench.run("ledger", "check")[0] == 0


def test_a_changed_playbook_is_not_gone_on_with(bench: Bench) -> None:
    """The server is ended and the host put back before the new playbook is carried out from its beginning."""
    before = bench.tree()
    cut_off(bench, bench.write_playbook([MARKER], workload=SLOW), "treatment 1", "ready ok")
    playbook = bench.write_playbook([MARKER], workload={"prompt_tokens": 9, "output_tokens": 32})
    code, summary = bench.run("run", str(playbook), "--resume")
    assert code == 0, summary
    assert summary["launches"] == 2
    assert bench.tree() == before


def test_a_server_that_died_meanwhile_is_not_adopted(bench: Bench) -> None:
    """All of its processes are killed between the two runs: recovered, and launched again."""
    before = bench.tree()
    playbook = bench.write_playbook([MARKER], workload=SLOW)
    cut_off(bench, playbook, "treatment 1", "ready ok")
    main = [p for p in Path("/proc").iterdir() if p.name.isdigit() and is_server(p, bench)]
    assert main
    for process in main:
        os.kill(int(process.name), signal.SIGKILL)
    code, summary = bench.run("run", str(playbook), "--resume")
    assert code == 0, summary
    assert summary["launches"] == 1
    assert bench.tree() == before
    assert bench.run("ledger", "check")[0] == 0


def is_server(process: Path, bench: Bench) -> bool:
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return b"launch_server" in line and str(bench.lab.root).encode() in line


def test_a_file_that_somebody_edited_is_held_and_not_gone_on_with(bench: Bench) -> None:
    """The treatment does not check out: exit code 7 with the report, the server is ended, their bytes stay."""
    playbook = bench.write_playbook([MARKER], workload=SLOW)
    cut_off(bench, playbook, "treatment 1", "ready ok")
    target = bench.lab.source / "launch_server.py"
    theirs = target.read_bytes() + b"# theirs\n"
    target.write_bytes(theirs)
    code, shown = bench.run("run", str(playbook), "--resume")
    assert code == 7, shown
    assert target.read_bytes() == theirs
    assert processes_of(bench) == []


def test_another_state_directory_cannot_adopt(bench: Bench, tmp_path: Path) -> None:
    """Without the holder's token the host is busy while the lease runs, with --resume as without."""
    playbook = bench.write_playbook([MARKER], workload=SLOW)
    cut_off(bench, playbook, "treatment 1", "ready ok")
    other = Bench(bench.lab, tmp_path / "other", bench.capsys)
    assert other.run("run", str(playbook))[0] == 6
    assert bench.run("run", str(playbook), "--resume")[0] == 0
