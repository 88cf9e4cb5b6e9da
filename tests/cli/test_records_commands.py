"""The commands about records, as a person types them, on a small ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.main import run_command
from orchestrator.core.records import Conclusion, Verdict
from orchestrator.ledger import open_ledger
from tests.ledger.ledger_story import Clock, Story

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A campaign with one crash and one open row."""
    with open_ledger(tmp_path / "state", clock=Clock()) as ledger:
        story = Story(ledger)
        crashed = Conclusion(verdict=Verdict.crashed, cause="boom", closes=True, depends_on={"driver": "580"})
        story.finish(story.begin("tree"), crashed)
        ledger.set_status("camp", "tree", "done")
    return tmp_path / "state"


@pytest.fixture
def run(state: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def typed(*words: str) -> tuple[int, str, str]:
        code = run_command([*words, "--state", str(state)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return typed


def data(run: Run, *words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_todo_says_why_each_row_stands_where_it_stands(run: Run) -> None:
    """Open rows first, the dead end with what it depends on."""
    code, out, _ = run("todo", "list")
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith(("fewer", "tree"))]
    assert rows[0].startswith("fewer-channels  open") and "never tried" in rows[0]
    assert "crashed (finding 1): boom; dead end until one of these changes: driver 580" in rows[1]


def test_a_hypothesis_can_be_added_ranked_shown_and_dropped(run: Run) -> None:
    """By words alone, each act answered with the reason; ranking and dropping without a reason is refused."""
    code, out, _ = run("todo", "add", "two", "--claim", "two are enough", "--env", "N=2", "--flag", "tp=4",
                       "--expect", "5%", "--requires", "sglang >=0.5", "--after", "fewer-channels",
                       "--bundle", "they go together")  # fmt: skip
    assert code == 0 and "+5.0 % expected" in out
    assert run("todo", "rank", "two")[0] == 2
    assert run("todo", "drop", "two")[0] == 2
    assert run("todo", "rank", "two", "--because", "cheap", "--finding", "1")[0] == 0
    shown = run("todo", "show", "two")[1]
    assert "two are enough" in shown and "change: N=2" in shown and "change: --tp 4" in shown
    [decision] = data(run, "decision", "list")["decisions"]
    assert decision["finding_ids"] == [1] and "cheap" in decision["text"]
    assert "dropped: too dear" in run("todo", "drop", "two", "--because", "too dear")[1]
    assert data(run, "todo", "drop", "two", "--take-up", "--because", "money came")["status"] == "open"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["todo", "show", "fewer-chanels"], "did you mean 'fewer-channels'?"),
        (["todo", "add", "x", "--claim", "c"], "changes nothing"),
        (["todo", "add", "tree", "--claim", "c", "--env", "A=1"], "already has a hypothesis tree"),
        (["todo", "add", "x", "--claim", "c", "--env", "A=1", "--expect", "5"], "percentage"),
        (["ledger", "export", "--format", "xml"], "no export format"),
        (["ledger", "export", "--format", "csv", "--rows", "launches"], "--rows findings or samples"),
        (["ledger", "export", "--only", "tre"], "did you mean 'tree'?"),
        (["ledger", "trail", "--format", "pdf"], "no form of the trail"),
        (["why", "99"], "there is no finding #99"),
        (["todo", "import", "nowhere.md"], "nowhere.md"),
    ],
)
def test_a_mistake_is_a_usage_error_that_says_what_to_do(run: Run, words: list[str], what: str) -> None:
    """Exit code 2, the word that was wrong, no traceback."""
    code, _, err = run(*words)
    assert code == 2 and what in err and "Traceback" not in err


def test_decisions_and_insights_are_in_every_export(run: Run, tmp_path: Path) -> None:
    """Linked to the finding that they rest on."""
    run("decision", "add", "leave the tree alone", "--finding", "tree")
    run("insight", "add", "trees need graphs", "--finding", "1")
    for form in ("md", "html", "json", "jsonl"):
        out = tmp_path / f"out.{form}"
        assert run("ledger", "export", "--format", form, "--out", str(out))[0] == 0
        assert "leave the tree alone" in out.read_text() and "trees need graphs" in out.read_text()
    exported = data(run, "ledger", "export")
    assert [d["finding_ids"] for d in (*exported["decisions"], *exported["insights"])] == [[1], [1]]
    assert [e["phase"] for e in exported["events"]] == ["decision", "insight"]


def test_a_plan_goes_out_and_comes_in(run: Run, tmp_path: Path) -> None:
    """What a person adds to the exported file is a row; a second export into it keeps the words."""
    plan = tmp_path / "plan.md"
    assert run("todo", "export", "--out", str(plan))[0] == 0
    plan.write_text(plan.read_text() + "- [ ] mine: by hand\n  - change: A=1\n  a remark\n")
    assert data(run, "todo", "import", str(plan))["added"] == ["mine"]
    assert run("todo", "export", "--out", str(plan))[0] == 0
    assert "  a remark\n" in plan.read_text()
    assert run("todo", "export")[1] == plan.read_text()


def test_why_answers_for_rows_findings_and_pairs(run: Run) -> None:
    """A row, a finding by its number, and a pair of findings."""
    assert "never tried" in run("why", "fewer-channels")[1]
    assert "driver 580" in run("why", "1")[1]
    assert "nothing that we know of" in run("why", "1", "1")[1]
    assert data(run, "finding", "compare", "1", "tree")["first"]["id"] == 1
    assert "proved clean: 1432 paths" in run("experiment", "show", "1", "--diff")[1]


def test_the_trail_names_the_person_and_the_command(run: Run) -> None:
    """What was typed is in it, in order."""
    run("decision", "add", "stop here")
    [act] = data(run, "ledger", "trail")
    assert act["what"] == "decision" and "@" in act["who"] and act["command"].startswith("orchestrator")
