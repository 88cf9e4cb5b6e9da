"""A host that ends on the winning configuration: clean-kept for whoever comes, and taken back byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, processes_of

SURE = {"repetitions": 3, "launches": 3}
"""More launches than the small campaigns have: a verdict that a busy machine does not turn."""

FUSED = {"id": "fused", "changes": [{"patch": "patches/fused-all-reduce.patch"}]}


@pytest.fixture
def winning(bench: Bench) -> Bench:
    """A lab on which the fused all-reduce wins: its FlashInfer knows the architecture."""
    table = bench.lab.site / "flashinfer" / "jit" / "architectures.py"
    table.write_text(table.read_text().replace("[9, 10]", "[9, 10, 12]").replace("(9, 10)", "(9, 10, 12)"))
    return bench


def host(bench: Bench, *words: str) -> tuple[int, Any]:
    return bench.run("host", words[0], "lab", "--hosts", str(bench.lab.hosts_file), *words[1:])


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


@pytest.mark.parametrize("how", ["--keep-best", "at_end"])
def test_the_winner_stays_and_is_taken_back_byte_for_byte(winning: Bench, how: str) -> None:
    """Kept: verify is clean and says so, forget refuses. Taken back: every byte, mode and time as before."""
    before = winning.tree()
    more = {"at_end": "best"} if how == "at_end" else {}
    words = ["--keep-best"] if how == "--keep-best" else []
    code, summary = winning.run("run", str(winning.write_playbook([FUSED], measure=SURE, **more)), *words)
    assert code == 0, summary
    assert summary["host_state"] == "kept"
    assert summary["kept"]["hypothesis"] == "fused"
    assert "launch_server" in summary["kept"]["command"]
    kept = winning.tree()
    assert changed(before, kept) == {str(Path(f).relative_to(winning.lab.source)) for f in summary["kept"]["files"]}
    assert processes_of(winning) == []
    code, shown = host(winning, "verify")
    assert code == 0, shown
    assert "fused" in shown["kept"]
    assert all("is still ours" not in sentence for sentence in shown["residue"])
    assert host(winning, "recover")[0] == 0
    assert winning.tree() == kept
    assert host(winning, "forget")[0] == 5
    assert host(winning, "release", "--restore-found", "--dry-run")[0] == 0
    assert host(winning, "release", "--restore-found")[0] == 5
    assert winning.tree() == kept
    code, shown = host(winning, "release", "--restore-found", "--yes")
    assert code == 0, shown
    assert winning.tree() == before
    code, shown = host(winning, "verify")
    assert (code, shown["kept"]) == (0, None)
    assert host(winning, "forget")[0] == 0
    assert winning.run("ledger", "check")[0] == 0


def test_a_later_run_works_on_top_and_leaves_what_is_kept(winning: Bench) -> None:
    """An experiment on a kept host: reverted to what is kept, which is still taken back as a whole."""
    before = winning.tree()
    assert winning.run("run", str(winning.write_playbook([FUSED], measure=SURE)), "--keep-best")[0] == 0
    kept = winning.tree()
    code, summary = winning.run("run", str(winning.write_playbook([MARKER], campaign="later")))
    assert code == 0, summary
    assert summary["host_state"] == "kept"
    assert winning.tree() == kept
    assert host(winning, "release", "--restore-found", "--yes")[0] == 0
    assert winning.tree() == before


def test_an_edit_of_a_kept_file_is_held_when_it_is_taken_back(winning: Bench) -> None:
    """Somebody edits it meanwhile: exit code 7 with the three versions, their bytes stay."""
    code, summary = winning.run("run", str(winning.write_playbook([FUSED], measure=SURE)), "--keep-best")
    assert code == 0, summary
    target = Path(summary["kept"]["files"][0])
    theirs = target.read_bytes() + b"# theirs\n"
    target.write_bytes(theirs)
    assert host(winning, "verify")[0] == 1
    code, shown = host(winning, "release", "--restore-found", "--yes")
    assert code == 7, shown
    assert target.read_bytes() == theirs
    code, shown = host(winning, "release", "--merge", "--yes")
    assert code == 0, shown
    assert target.read_bytes().endswith(b"# theirs\n")
    assert host(winning, "verify")[0] == 0


def test_without_a_winner_the_host_is_as_found(bench: Bench) -> None:
    """Nothing improved: nothing is kept, and nothing is said to be."""
    before = bench.tree()
    code, summary = bench.run("run", str(bench.write_playbook([MARKER])), "--keep-best")
    assert code == 0, summary
    assert (summary["host_state"], summary["kept"]) == ("clean", None)
    assert bench.tree() == before


def test_a_copy_cannot_be_kept(bench: Bench) -> None:
    """Refused before anything is launched."""
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"] |= {"tree": "shadow", "shadow_dir": str(bench.lab.root / "copies")}
    bench.write_inventory(inventory)
    assert bench.run("run", str(bench.write_playbook([MARKER])), "--keep-best")[0] == 5
    assert bench.run("experiment", "list")[1]["experiments"] == []
