"""Held files: what a person is shown, and each of the three decisions, on whole runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, processes_of, start_run, wait_for

THEIR_LINE = b"# a colleague was here\n"


def hold(bench: Bench, *, edit: bytes | None = None) -> tuple[bytes, bytes, str]:
    """A run whose patched file somebody edits while it serves: found bytes, their bytes, and the run's stderr."""
    target = bench.lab.source / "launch_server.py"
    found = target.read_bytes()
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    theirs = edit if edit is not None else target.read_bytes() + THEIR_LINE
    target.write_bytes(theirs)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert processes_of(bench) == []
    return found, theirs, err


def decide(bench: Bench, *words: str) -> tuple[int, dict[str, object]]:
    return bench.run("host", "release", "lab", "--hosts", str(bench.lab.hosts_file), *words)


def test_the_run_and_verify_show_all_three_versions(bench: Bench) -> None:
    """Exit code 7 with both diffs and the place of each version; verify says the same, and nothing changes by it."""
    _, theirs, err = hold(bench)
    assert "found → ours:" in err
    assert "+import json" in err
    assert "+# a colleague was here" in err
    assert "the two edits can be merged" in err
    assert "host release lab --keep-theirs | --restore-found | --merge" in err
    code, shown = bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 7
    held = shown["held"][0]
    assert held["can_merge"]
    assert "+import json" in held["found_to_ours"]
    assert "+# a colleague was here" in held["ours_to_theirs"]
    assert Path(held["found_at"]).is_file()
    assert (bench.lab.source / "launch_server.py").read_bytes() == theirs


def test_recover_cannot_go_around_the_decision(bench: Bench) -> None:
    """`host recover` of a held host: exit code 7 with the report, not a byte moved."""
    _, theirs, _ = hold(bench)
    code, shown = bench.run("host", "recover", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 7
    assert "found → ours:" in json.dumps(shown, ensure_ascii=False)
    assert (bench.lab.source / "launch_server.py").read_bytes() == theirs


@pytest.mark.parametrize("choice", ["--keep-theirs", "--restore-found", "--merge"])
def test_each_decision_is_carried_out_and_lifts_the_quarantine(bench: Bench, choice: str) -> None:
    """A dry run changes nothing, without --yes nothing happens; then the chosen bytes lie there, the others are kept,
    the host takes work again, and verify finds it clean."""
    target = bench.lab.source / "launch_server.py"
    before = bench.tree()
    found, theirs, _ = hold(bench)
    code, shown = decide(bench, choice, "--dry-run")
    assert code == 0, shown
    assert shown["dry_run"]
    code, shown = decide(bench, choice)
    assert code == 5
    assert target.read_bytes() == theirs
    code, shown = decide(bench, choice, "--yes")
    assert code == 0, shown
    wanted = {"--keep-theirs": theirs, "--restore-found": found, "--merge": found + THEIR_LINE}[choice]
    assert target.read_bytes() == wanted
    if choice == "--restore-found":
        assert bench.tree() == before
    everything = {Path(path).read_bytes() for path in shown["kept"]} | {wanted}
    assert {found, theirs} <= everything | {theirs if choice == "--keep-theirs" else found}
    code, proof = bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, proof
    assert bench.run("ledger", "check")[0] == 0


def test_keeping_theirs_says_that_ours_is_still_in_it(bench: Bench) -> None:
    """Their version was made from ours: the lines of ours that stay are named before anybody agrees."""
    hold(bench)
    _, shown = decide(bench, "--keep-theirs", "--dry-run")
    assert "still holds lines of ours" in json.dumps(shown)


def test_edits_that_meet_are_not_merged(bench: Bench) -> None:
    """They changed the line that we had added: exit code 4 with the three versions of the place, nothing moved."""
    source = (bench.lab.source / "launch_server.py").read_bytes()
    edited = source.replace(b"import sys", b"import sys\nimport json as theirs")
    _, theirs, _ = hold(bench, edit=edited)
    code, shown = decide(bench, "--merge", "--yes")
    assert code == 4
    facts = shown["error"]["problems"][0]["facts"]
    assert "import json as theirs" in facts["theirs"]
    assert (bench.lab.source / "launch_server.py").read_bytes() == theirs
    code, _ = decide(bench, "--restore-found", "--yes")
    assert code == 0
    assert (bench.lab.source / "launch_server.py").read_bytes() == source


def test_releasing_a_clean_host_is_harmless(bench: Bench) -> None:
    """Nothing is held: exit code 0, and it says so."""
    assert bench.run("run", str(bench.write_playbook([MARKER])))[0] == 0
    code, shown = decide(bench, "--restore-found", "--yes")
    assert code == 0, shown
    assert "nothing is held there" in shown["remarks"]


def test_one_choice_has_to_be_said(bench: Bench) -> None:
    """None or two of them is a usage error."""
    assert decide(bench)[0] == 2
    assert decide(bench, "--merge", "--keep-theirs")[0] == 2
