"""A ledger that an older version wrote opens, keeps every row, and can do what is new."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

import orchestrator.ledger
from orchestrator.core import records
from orchestrator.ledger import open_ledger, tables
from orchestrator.ledger.base import columns
from tests.ledger.ledger_story import Clock, hypothesis

AT = "2026-03-01T12:00:00.000000Z"
ROWS = f"""
INSERT INTO campaign VALUES ('camp', 'An old one', '{{}}', '{AT}');
INSERT INTO host (name, state, reason, since) VALUES ('gpu1', 'clean', '', '{AT}');
INSERT INTO run VALUES (1, 'camp', 'gpu1', 'd', 'text', 1, '{{}}', 'done', '{AT}', '{AT}');
INSERT INTO hypothesis (number, campaign, id, status, origin, family, rank, reason, hypothesis, added_at) VALUES
  (1, 'camp', 'tree', 'done', 'playbook', 'nccl', 1.5, 'r',
   '{{"id": "tree", "claim": "c", "changes": [{{"env": {{"A": "1"}}}}]}}', '{AT}');
INSERT INTO experiment VALUES
  (1, 1, 'camp', 'gpu1', 'plain', 'tree', '[]', NULL, 'done', '', 'crashed', 'x', '{AT}', '{AT}');
INSERT INTO finding VALUES
  (1, 1, 'camp', 'gpu1', 'plain', 'tree', 'nccl', 'crashed', 's', 'output_tps', 'higher', NULL, NULL, NULL, NULL, NULL,
   NULL, 0, 0, 'x', '[]', 1, '{{"driver": "580"}}', '{AT}', NULL, NULL);
"""


def older(state_dir: Path, revision: str) -> None:
    state_dir.mkdir()
    config = Config()
    config.set_main_option("script_location", str(Path(orchestrator.ledger.__file__).parent / "migrations"))
    engine = create_engine(f"sqlite:///{state_dir / 'ledger.db'}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()
    with sqlite3.connect(state_dir / "ledger.db") as raw:
        raw.executescript(ROWS)
    raw.close()


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_an_older_ledger_opens_with_all_its_rows_and_learns_what_is_new(
    state_dir: Path, clock: Clock, revision: str
) -> None:
    """Rows of an earlier schema read as before; pins, plans and links to decisions work on them; `check` is content."""
    older(state_dir, revision)
    with open_ledger(state_dir, clock=clock) as ledger:
        [row] = ledger.todo("camp")
        assert (row.id, row.rank, row.pin, row.decision_id) == ("tree", 1.5, None, None)
        assert ledger.finding(1).is_dead_end
        assert ledger.plan("camp") is None
        decision = ledger.add_decision("first of all", campaign="camp")
        assert ledger.pin("camp", "tree", 9.0, decision.id).decision_id == decision.id
        ledger.keep_plan("camp", "# Plan\n")
        ledger.keep_plan("camp", "# Plan\n\nagain\n")
        assert ledger.plan("camp") == "# Plan\n\nagain\n"
        ledger.upsert_hypotheses("camp", [hypothesis("tree"), hypothesis("new")])
        assert ledger.todo_row("camp", "tree").pin == 9.0
        assert ledger.check() == []


PAIRS = [
    (tables.CampaignTable, records.CampaignRecord, set()), (tables.HostTable, records.HostRecord, set()),
    (tables.RunTable, records.RunRecord, set()), (tables.HypothesisTable, records.TodoRow, set()),
    (tables.FingerprintTable, records.FingerprintRecord, set()),
    (tables.ExperimentTable, records.ExperimentRecord, {"arms"}), (tables.ArmTable, records.ArmRecord, {"launches"}),
    (tables.LaunchTable, records.LaunchRecord, {"samples"}),
    (tables.SampleTable, records.Sample, {"id", "launch_id"}), (tables.FindingTable, records.FindingRecord, set()),
    (tables.DecisionTable, records.DecisionRecord, {"finding_ids"}),
    (tables.InsightTable, records.InsightRecord, {"finding_ids"}),
    (tables.ArtifactTable, records.ArtifactRecord, set()), (tables.EventTable, records.EventRecord, set()),
]  # fmt: skip


@pytest.mark.parametrize(("table", "cls", "apart"), PAIRS, ids=lambda v: getattr(v, "__name__", None))
def test_a_table_has_the_fields_of_its_record(
    table: type[tables.Table], cls: type[records.Model], apart: set[str]
) -> None:
    """A column that no record gives out, or a field that no column keeps, is named here or is a mistake; what may be
    absent in one may be absent in the other."""
    found = {c.name: c.nullable for c in columns(table).columns}
    stated = {name: None in _choices(field.annotation) for name, field in cls.model_fields.items()}
    assert found.keys() ^ stated.keys() == apart
    assert {n: found[n] for n in found.keys() - apart} == {n: stated[n] for n in found.keys() - apart}


def _choices(annotation: object) -> tuple[object, ...]:
    from types import NoneType
    from typing import get_args

    return tuple(None if arg is NoneType else arg for arg in get_args(annotation))


def test_a_dead_end_hangs_on_its_own_context_only(state_dir: Path, clock: Clock) -> None:
    """Facts of the other contexts are not kept with a finding."""
    with open_ledger(state_dir, clock=clock) as ledger:
        run = ledger.start_run("camp", "d", "gpu1", "text")
        ledger.upsert_hypotheses("camp", [hypothesis("tree")])
        experiment = ledger.start_experiment(run.id, "tree", "gpu1", "plain")
        facts = {"driver": "580", "context plain": "{}", "context fast": '{"args": 1}'}
        conclusion = records.Conclusion(verdict=records.Verdict.crashed, closes=True, depends_on=facts)
        finding = ledger.add_finding(experiment.id, conclusion)
        assert finding.depends_on == {"driver": "580", "context plain": "{}"}
