"""Whether the ledger tells a consistent story. Each complaint is one `Problem`; none means all is well.

The rows are read as they are, not as records: a row that no record would accept is what is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection

from orchestrator.core.records import LaunchOutcome, Verdict, effect_problem
from orchestrator.errors import Problem
from orchestrator.ledger.artifacts import read_packed
from orchestrator.ledger.database import Database, as_ours

Check = Callable[[Connection], Iterator[str]]


def check(database: Database) -> list[Problem]:
    with database.read() as connection:
        damage = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check") if row[0] != "ok"]
        if damage:  # what the other checks would read is not to be trusted
            return [Problem(f"the file is damaged: {d}", facts={"file": str(database.path)}) for d in damage]
        found = [what for each in CHECKS for what in each(connection)]
        with as_ours(database.path):
            found += _artifacts(connection, database.path.parent / "artifacts")
    return [Problem(what, facts={"file": str(database.path)}) for what in found]


def _foreign_keys(connection: Connection) -> Iterator[str]:
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to a {parent} that does not exist"


def _sequence(connection: Connection) -> Iterator[str]:
    query = "SELECT seq, ROW_NUMBER() OVER (ORDER BY seq) AS place FROM event ORDER BY seq"
    for seq, place in connection.exec_driver_sql(query):
        if seq != place:
            yield f"events are missing: where {place} should be, {seq} follows"
            return


def _settled(connection: Connection) -> Iterator[str]:
    query = """
        SELECT o.seq, o.settles FROM event o LEFT JOIN event i ON i.seq = o.settles
        WHERE o.kind = 'outcome' AND (i.kind IS NOT 'intent' OR i.seq >= o.seq)"""
    for seq, settles in connection.exec_driver_sql(query):
        yield f"event {seq} is the outcome of {settles}, which is no earlier intent"


def _runs(connection: Connection) -> Iterator[str]:
    for (run,) in connection.exec_driver_sql("SELECT id FROM run WHERE (state = 'running') != (ended_at IS NULL)"):
        yield f"run #{run} has a state and an end that disagree"
    query = """
        SELECT e.id, r.id, r.state FROM experiment e JOIN run r ON r.id = e.run_id
        WHERE e.state = 'running' AND r.state != 'running'"""
    for experiment, run, state in connection.exec_driver_sql(query):
        yield f"experiment #{experiment} still runs, but its run #{run} has ended ({state})"


def _experiments(connection: Connection) -> Iterator[str]:
    query = "SELECT id, state, verdict, ended_at, hypothesis_id FROM experiment"
    for number, state, verdict, ended_at, hypothesis in connection.exec_driver_sql(query):
        if (state == "running") != (ended_at is None):
            yield f"experiment #{number} is {state}, and its end is {ended_at}"
        elif (state == "running") != (verdict is None) and not (state == "done" and hypothesis is None):
            yield f"experiment #{number} is {state}, and its verdict is {verdict}"
        elif verdict is not None and verdict not in list(Verdict):
            yield f"experiment #{number} has an unknown verdict, {verdict}"
        elif state == "aborted" and Verdict(verdict).is_measured:
            yield f"experiment #{number} was aborted, and its verdict is {verdict}"
    query = """
        SELECT e.id FROM experiment e JOIN run r ON r.id = e.run_id
        WHERE e.campaign IS NOT r.campaign OR e.host IS NOT r.host"""
    for (number,) in connection.exec_driver_sql(query):
        yield f"experiment #{number} has another campaign or host than its run"


def _arms(connection: Connection) -> Iterator[str]:
    query = """
        SELECT a.id, e.id FROM arm a JOIN experiment e ON e.id = a.experiment_id
        WHERE a.ended_at IS NULL AND e.state != 'running'"""
    for arm, experiment in connection.exec_driver_sql(query):
        yield f"arm {arm} is open, but its experiment #{experiment} has ended"
    query = """
        SELECT a.id, e.id FROM arm a JOIN experiment e ON e.id = a.experiment_id
        WHERE e.state = 'done' AND json_array_length(a.changes) > 0
          AND (a.proof IS NULL OR json_extract(a.proof, '$.clean') IS NOT 1)"""
    for arm, experiment in connection.exec_driver_sql(query):
        yield f"experiment #{experiment} is done, but its arm {arm} is not proved reverted"


def _launches(connection: Connection) -> Iterator[str]:
    query = """
        SELECT l.id, l.outcome, l.ended_at, e.id, e.state FROM launch l
        JOIN arm a ON a.id = l.arm_id JOIN experiment e ON e.id = a.experiment_id"""
    for number, outcome, ended_at, experiment, state in connection.exec_driver_sql(query):
        if outcome is None and state != "running":
            yield f"launch {number} has no outcome, but its experiment #{experiment} has ended"
        elif (outcome is None) != (ended_at is None):
            yield f"launch {number} has outcome {outcome}, and its end is {ended_at}"
        elif outcome is not None and outcome not in list(LaunchOutcome):
            yield f"launch {number} has an unknown outcome, {outcome}"
    query = """
        SELECT l.id FROM launch l WHERE l.outcome = 'measured'
          AND NOT EXISTS (SELECT 1 FROM sample s WHERE s.launch_id = l.id)"""
    for (number,) in connection.exec_driver_sql(query):
        yield f"launch {number} was measured, but has no samples"


def _findings(connection: Connection) -> Iterator[str]:
    query = """
        SELECT f.id, f.verdict, f.effect, f.low, f.high, e.id, e.state, e.verdict,
               f.campaign IS e.campaign AND f.host IS e.host AND f.context IS e.context
               AND f.hypothesis_id IS e.hypothesis_id
        FROM finding f JOIN experiment e ON e.id = f.experiment_id"""
    for row in connection.exec_driver_sql(query):
        number, verdict, effect, low, high, experiment, state, of_experiment, same_place = row
        if state == "running":
            yield f"finding {number} refers to experiment #{experiment}, which has not ended"
        elif verdict != of_experiment:
            yield f"finding {number} says {verdict}, its experiment #{experiment} says {of_experiment}"
        if not same_place:
            yield f"finding {number} has another campaign, host, context or hypothesis than experiment #{experiment}"
        if verdict not in list(Verdict):
            yield f"finding {number} has an unknown verdict, {verdict}"
            continue
        problem = effect_problem(Verdict(verdict), effect, low, high)
        if problem:
            yield f"finding {number}: {problem}"


def _artifacts(connection: Connection, folder: Path) -> Iterator[str]:
    query = "SELECT MIN(id), sha256, path FROM artifact WHERE pruned_at IS NULL GROUP BY sha256, path"
    for number, sha256, path in connection.exec_driver_sql(query):
        problem, _ = read_packed(folder / path, sha256)
        if problem:
            yield f"artifact {number} ({path}) {problem}"


CHECKS: Sequence[Check] = (_foreign_keys, _sequence, _settled, _runs, _experiments, _arms, _launches, _findings)
