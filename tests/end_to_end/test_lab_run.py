"""Whole runs on the simulated host: real agent, real files, real processes, real HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Bench, processes_of

EDIT = {"file": "sglang/launch_server.py", "find": "import sys", "replace": "import sys\nimport json", "count": 1}
MARKER = {"id": "marker", "changes": [{"patch": {"edits": [EDIT]}}]}


def test_a_change_is_measured_and_the_tree_comes_back_byte_for_byte(bench: Bench) -> None:
    """Content, mode and modification time of every file are as before; nothing runs; the ledger is well."""
    before = bench.tree()
    code, summary = bench.run("run", str(bench.write_playbook([MARKER])))
    assert code == 0
    finding = summary["findings"][0]
    assert finding["verdict"] in ("no_effect", "inconclusive")
    assert finding["treatment"] == pytest.approx(82, rel=0.15)
    assert summary["host_state"] == "clean"
    assert bench.tree() == before
    assert processes_of(bench.lab.root) == []
    assert bench.run("ledger", "check") == (0, {"problems": []})


def test_the_local_history_shows_found_patched_and_reverted(bench: Bench) -> None:
    """`git diff found reverted` is empty, and the patched commit holds exactly the change."""
    code, _ = bench.run("run", str(bench.write_playbook([MARKER])))
    assert code == 0
    git = ["git", "-C", str(bench.state / "history")]
    tags = subprocess.run([*git, "tag"], capture_output=True, text=True, check=True).stdout.split()
    found, patched, reverted = (next(t for t in tags if t.endswith(s)) for s in ("found", "patched", "reverted"))
    same = subprocess.run([*git, "diff", found, reverted], capture_output=True, text=True, check=True).stdout
    change = subprocess.run([*git, "diff", found, patched], capture_output=True, text=True, check=True).stdout
    assert same == ""
    assert "+import json" in change


def test_a_second_run_has_nothing_to_do_and_only_repeats(bench: Bench) -> None:
    """What has a finding under the present facts is not carried out again; `--only` does, and so do other changes."""
    playbook = str(bench.write_playbook([MARKER]))
    assert bench.run("run", playbook)[0] == 0
    code, summary = bench.run("run", playbook)
    assert code == 0
    assert summary["findings"] == []
    code, summary = bench.run("run", playbook, "--only", "marker")
    assert [f["hypothesis_id"] for f in summary["findings"]] == ["marker"]
    bench.write_playbook([{"id": "marker", "changes": [{"env": {"LAB_NOTE": "other"}}]}])
    code, summary = bench.run("run", playbook)
    assert [f["hypothesis_id"] for f in summary["findings"]] == ["marker"]


def test_a_crash_is_diagnosed_with_the_line_that_shows_it(bench: Bench) -> None:
    """An edit that breaks an import comes out as crashed, with its own error as the cause, and is reverted."""
    broken = {**EDIT, "replace": "import sys\nimport no_such_module_of_ours"}
    before = bench.tree()
    code, summary = bench.run(
        "run", str(bench.write_playbook([{"id": "b", "changes": [{"patch": {"edits": [broken]}}]}]))
    )
    assert code == 0
    finding = summary["findings"][0]
    assert finding["verdict"] == "crashed"
    assert "no_such_module_of_ours" in finding["cause"]
    assert finding["closes"]
    assert bench.tree() == before


def test_a_patch_that_does_not_fit_changes_and_launches_nothing(bench: Bench) -> None:
    """Exit code 4, the place and what was expected there; the server was never started."""
    misfit = {**EDIT, "find": "import nothing_of_the_kind"}
    before = bench.tree()
    code, shown = bench.run(
        "run", str(bench.write_playbook([{"id": "m", "changes": [{"patch": {"edits": [misfit]}}]}]))
    )
    assert code == 4
    assert shown["error"]["kind"] == "conflict"
    assert bench.tree() == before
    assert bench.run("experiment", "list")[1]["experiments"] == []


def test_an_unmet_requirement_is_not_applicable_without_a_launch(bench: Bench) -> None:
    """The evidence is the finding's cause, and no experiment launched anything."""
    row = {**MARKER, "requires": {"packages": {"sglang": ">=99"}}}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0
    assert summary["findings"][0]["verdict"] == "not_applicable"
    assert ">=99" in summary["findings"][0]["cause"]
    assert "server" not in str(summary["server_s"].keys())


def test_all_five_kinds_of_change_are_applied_and_reverted(bench: Bench) -> None:
    """Patch, environment, sitecustomize, flags and files at once, declared as a bundle."""
    before = bench.tree()
    site_before = bench.lab.sitecustomize.read_bytes()
    extra = bench.lab.source / "new" / "deep" / "note.txt"
    changes = [
        {"patch": {"edits": [EDIT]}},
        {"env": {"LAB_SOMETHING": "a b'c\"$d"}},
        {"sitecustomize": {"env": {"NCCL_NTHREADS": "64"}}},
        {"args": {"cuda-graph-max-bs": 64}},
        {"file": {"path": "sglang/new/deep/note.txt", "content": "hello", "mode": "0600"}},
    ]
    row = {"id": "all", "bundle": "to see them together", "changes": changes}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0
    assert summary["findings"][0]["verdict"] in ("no_effect", "inconclusive", "improved", "regressed")
    experiment = bench.run("experiment", "show", str(summary["findings"][0]["experiment_id"]))[1]
    checks = {c["what"]: c["holds"] for c in experiment["arms"][0]["launches"][0]["facts"]["checks"]}
    assert checks["environment LAB_SOMETHING"] is True
    assert checks["sitecustomize NCCL_NTHREADS"] is True
    assert checks["flag --cuda-graph-max-bs"] is True
    assert bench.tree() == before
    assert bench.lab.sitecustomize.read_bytes() == site_before
    assert not extra.parent.parent.exists()


def test_secrets_reach_neither_ledger_nor_exports_nor_output(bench: Bench) -> None:
    """The value of a token is in no file of the state directory and in nothing printed; a namesake that is no secret
    is kept."""
    secret = "hf_SuperSecretValue123"
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"]["env"] = {"HF_TOKEN": secret, "TOKENIZER_PATH": "/models/kept"}
    bench.write_inventory(inventory)
    playbook = str(bench.write_playbook([MARKER]))
    code, summary = bench.run("run", playbook)
    assert code == 0
    printed = json.dumps(summary)
    for form in ("md", "csv", "jsonl"):
        out = bench.state / f"export.{form}"
        assert bench.run("ledger", "export", "--format", form, "--out", str(out))[0] in (0,)
    printed += json.dumps(bench.run("plan", playbook, "--diff", "--only", "marker")[1])
    kept = b"".join(p.read_bytes() for p in bench.state.rglob("*") if p.is_file())
    assert secret not in printed
    assert secret.encode() not in kept
    assert b"/models/kept" in kept


def test_plan_changes_nothing_and_shows_the_exact_diff(bench: Bench) -> None:
    """The diff is against the tree as it is, and the host holds nothing of ours afterwards."""
    before = sorted(str(p) for p in bench.lab.root.rglob("*"))
    code, drawn = bench.run("plan", str(bench.write_playbook([MARKER])), "--diff")
    assert code == 0
    assert "+import json" in drawn["trials"][0]["diff"]
    assert drawn["minutes"] is None
    after = sorted(str(p) for p in bench.lab.root.rglob("*"))
    assert set(after) - set(before) <= {str(bench.lab.root / "bench.yaml")}


def start_run(bench: Bench, playbook: Path) -> subprocess.Popen[str]:
    """A run in a process of its own, so that it can be interrupted and killed."""
    command = [sys.executable, "-m", "orchestrator.cli.main", "run", str(playbook), "--state", str(bench.state)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """Read the run's narration until a line holds `text`."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise AssertionError(f"{text!r} never came:\n{''.join(seen)}")


PHASES = ["apply ok", "launch ok", "server is at weights", "ready ok", "gate ok", "stop ok"]


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_at_any_phase_puts_the_host_back(bench: Bench, phase: str) -> None:
    """Exit code 130, every byte back, no process left, and the next command finds the host clean."""
    before = bench.tree()
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    wait_for(process, phase)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert bench.tree() == before
    assert processes_of(bench.lab.root) == []
    code, proof = bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, proof
    assert bench.run("ledger", "check")[0] == 0


@pytest.mark.parametrize("phase", ["apply ok", "server is at weights", "gate ok"])
def test_a_killed_controller_is_recovered_by_the_next(bench: Bench, phase: str) -> None:
    """SIGKILL of the controller leaves the change in place until `host recover`, which puts everything back."""
    before = bench.tree()
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    wait_for(process, phase)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, recovery = bench.run("host", "recover", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, recovery
    assert recovery["state"] == "clean"
    assert bench.tree() == before
    assert processes_of(bench.lab.root) == []
    assert bench.run("run", str(bench.lab.root / "bench.yaml"))[0] == 0
    assert bench.run("ledger", "check")[0] == 0


def test_a_run_recovers_what_the_last_one_left(bench: Bench) -> None:
    """A plain `run` after a SIGKILL puts the host back first, and then does its work."""
    before = bench.tree()
    playbook = bench.write_playbook([MARKER])
    process = start_run(bench, playbook)
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, summary = bench.run("run", str(playbook))
    assert code == 0, summary
    assert summary["findings"][0]["hypothesis_id"] == "marker"
    assert bench.tree() == before


def test_a_second_controller_is_told_who_holds_the_host(bench: Bench, tmp_path: Path) -> None:
    """Exit code 6 with holder, since and until; the first run goes on undisturbed."""
    playbook = bench.write_playbook([MARKER])
    process = start_run(bench, playbook)
    wait_for(process, "treatment 1")
    other = Bench(bench.lab, tmp_path / "other-state", bench.capsys)
    code, shown = other.run("run", str(playbook))
    assert code == 6
    facts = shown["error"]["problems"][0]["facts"]
    assert {"holder", "since", "until"} <= facts.keys()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_third_partys_edit_is_never_overwritten(bench: Bench) -> None:
    """A file edited while it is patched is held: exit code 7, their bytes kept, the host quarantined."""
    target = bench.lab.source / "launch_server.py"
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    theirs = target.read_bytes() + b"# a colleague was here\n"
    target.write_bytes(theirs)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert target.read_bytes() == theirs
    assert processes_of(bench.lab.root) == []
    code, shown = bench.run("run", str(bench.lab.root / "bench.yaml"))
    assert code == 7
    assert "quarantined" in shown["error"]["problems"][0]["what"]


def test_a_stranger_on_the_port_is_named_and_left_alone(bench: Bench) -> None:
    """Exit code 5 before anything is launched; the stranger lives on."""
    listen = f"s = socket.create_server(('127.0.0.1', {bench.lab.port}))"
    code = f"import socket, sys; {listen}; print('up', flush=True); sys.stdin.read()"
    stranger = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stranger.stdout is not None
    stranger.stdout.readline()
    exit_code, shown = bench.run("run", str(bench.write_playbook([MARKER])))
    assert exit_code == 5
    assert str(stranger.pid) in json.dumps(shown)
    assert stranger.poll() is None
    stranger.communicate("")


def test_a_server_killed_while_it_is_measured_is_a_crash(bench: Bench) -> None:
    """SIGKILL of a rank during the benchmark ends the measurement at once, and no number is booked."""
    process = start_run(bench, bench.write_playbook([MARKER], workload={"prompt_tokens": 8, "output_tokens": 120}))
    wait_for(process, "treatment 1")
    wait_for(process, "gate ok")
    ranks = [p for p in Path("/proc").iterdir() if p.name.isdigit() and b"sglang::scheduler_TP3" in _cmdline(p)]
    mine = next(p for p in ranks if str(bench.lab.root).encode() in _cmdline(_parent(p)))
    os.kill(int(mine.name), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    findings = bench.run("finding", "list")[1]["findings"]
    assert [f["verdict"] for f in findings] == ["crashed"]
    assert findings[0]["effect"] is None


def _cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _parent(process: Path) -> Path:
    """The server's main process: its title is not overwritten as its ranks' are."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return Path("/proc") / fields[1]
