"""A baseline that does not come up: tried once more where that can help, and told with what is not as it was."""

from __future__ import annotations

from orchestrator.controller.clock import SystemClock
from orchestrator.ledger import open_ledger
from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER

_ONCE = """import os, sys
_mark = {mark!r}
if not os.path.exists(_mark):
    open(_mark, "w").close()
    sys.exit("[2026-11-30 10:00:00] ERROR:    [Errno 98] error while attempting to bind on address "
             "('127.0.0.1', 30000): address already in use")
"""


def _prepend(bench: Bench, text: str) -> None:
    server = bench.lab.source / "launch_server.py"
    content = server.read_text()
    at = content.index("import ", content.index("from __future__") + 30) if "from __future__" in content else 0
    server.write_text(content[:at] + text + content[at:])


def _baselines(bench: Bench) -> list[tuple[str, list[str]]]:
    """State of each experiment, and the outcomes of its launches, oldest first."""
    with open_ledger(bench.state, clock=SystemClock(), create=False) as ledger:
        rows = [ledger.experiment(row.id) for row in ledger.experiments("bench")]
        return [(row.state, [str(one.outcome) for arm in row.arms for one in arm.launches]) for row in rows]


def test_a_port_that_somebody_was_quicker_to_take_is_tried_once_more(bench: Bench) -> None:
    """What lay beside the server may be gone at the next start: the campaign goes on, and both launches are kept."""
    _prepend(bench, _ONCE.format(mark=str(bench.lab.root / "mark")))
    code, summary = bench.run("run", str(bench.write_playbook([MARKER])), "--baseline-only")
    assert code == 0, summary
    assert _baselines(bench) == [("done", ["exited", "measured"])]


def test_an_error_in_the_code_is_not_tried_again(bench: Bench) -> None:
    """The same start would end the same way: one launch, and the cause with its category and remedy."""
    _prepend(bench, "import no_such_module\n")
    code, error = bench.run("run", str(bench.write_playbook([MARKER])), "--baseline-only")
    assert code == 5, error
    assert "No module named 'no_such_module'" in error["error"]["problems"][0]["what"]
    assert error["error"]["problems"][0]["facts"]["category"] and error["error"]["problems"][0]["facts"]["remedy"]
    assert _baselines(bench) == [("aborted", ["exited"])]


def test_what_changed_since_the_baseline_last_served_is_told(bench: Bench) -> None:
    """S36: the variable that was not there when it last worked, by name, with both values."""
    code, summary = bench.run("run", str(bench.write_playbook([MARKER])), "--baseline-only")
    assert code == 0, summary
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"].setdefault("env", {})["LAB_FAULT"] = "crash_at_load"
    bench.write_inventory(inventory)
    code, error = bench.run("run", str(bench.write_playbook([MARKER])), "--baseline-only")
    assert code == 5, error
    differs = error["error"]["problems"][0]["facts"]["differs"]
    assert "since the last good launch (#1) environment: LAB_FAULT: absent → crash_at_load" in differs


def test_a_crashed_treatment_says_that_nothing_else_differs(bench: Bench) -> None:
    """Its own variable is the treatment and no difference: the finding says that the rest is as it was."""
    row = {"id": "faulty", "changes": [{"env": {"LAB_FAULT": "crash_at_load"}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0, summary
    finding = summary["findings"][0]
    assert finding["verdict"] == "crashed"
    assert "as at the last good launch (in this run): environment" in finding["evidence"]
