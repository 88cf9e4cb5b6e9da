from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.records import (
    ArmRecord,
    ArtifactRecord,
    CampaignRecord,
    CampaignView,
    DecisionRecord,
    EventRecord,
    ExperimentRecord,
    FindingRecord,
    FingerprintRecord,
    InsightRecord,
    LaunchRecord,
    RevertProof,
    RunRecord,
    Sample,
    TodoRow,
)
from orchestrator.errors import UsageError
from orchestrator.report import FORMATS, Format, export
from tests.report.report_story import AT, EVIL, PROOF, TREE, arm, experiment, finding, launch, view

RECORDS: dict[str, Any] = {
    "runs": RunRecord, "todo": TodoRow, "findings": FindingRecord, "decisions": DecisionRecord,
    "insights": InsightRecord, "fingerprints": FingerprintRecord, "events": EventRecord,
}  # fmt: skip


def written(of: CampaignView, format: str, **more: Any) -> str:
    out = io.StringIO()
    export(of, format, out, **more)
    return out.getvalue()


def test_json_reads_back_as_the_same_records() -> None:
    """Every record of the campaign comes out of the JSON equal to what went in."""
    data = json.loads(written(view(), "json"))
    assert (data["schema"], data["version"], data["exported_at"]) == ("orchestrator/ledger-export", 1, AT)
    assert CampaignRecord.model_validate(data["campaign"]) == view().campaign
    for name, cls in RECORDS.items():
        assert [cls.model_validate(row) for row in data[name]] == list(getattr(view(), name)), name
    artifacts = {e["id"]: [ArtifactRecord.model_validate(a) for a in e.pop("artifacts")] for e in data["experiments"]}
    assert [ExperimentRecord.model_validate(row) for row in data["experiments"]] == list(view().experiments)
    assert {k: v for k, v in artifacts.items() if v} == {41: view().artifacts(41)}
    assert data["best"] == [{"host": "gpu1", "context": "plain", "finding_id": 2}]


def test_json_lines_hold_the_same_as_json() -> None:
    """One typed record a line, the header first, nothing more and nothing less than the JSON."""
    lines = [json.loads(line) for line in written(view(), "jsonl").splitlines()]
    data = json.loads(written(view(), "json"))
    assert lines[0] == {"type": "header"} | {k: data[k] for k in ("schema", "version", "exported_at")}
    assert lines[1] == {"type": "campaign"} | data["campaign"]
    expected = [{"type": k.removesuffix("s")} | r for k, rows in data.items() if isinstance(rows, list) for r in rows]
    assert lines[2:] == expected


def test_csv_has_a_row_for_every_finding() -> None:
    """Findings come back from the CSV with their numbers unrounded."""
    rows = list(csv.DictReader(io.StringIO(written(view(), "csv"))))
    assert [r["hypothesis_id"] for r in rows] == ["tree", "ep"]
    assert (rows[0]["effect"], float(rows[1]["effect"]), rows[0]["closes"]) == ("", 0.093, "true")
    assert json.loads(rows[0]["depends_on"]) == {"nvidia-nccl-cu12": "2.27.5"}


def test_csv_has_a_row_for_every_sample() -> None:
    """Each sample carries its experiment, arm and launch."""
    rows = list(csv.DictReader(io.StringIO(written(view(), "csv", rows="samples"))))
    assert [(r["experiment_id"], r["kind"], r["launch_id"], r["repetition"]) for r in rows] == [
        ("41", "baseline", "L1", "0"), ("41", "baseline", "L1", "1"), ("41", "baseline", "L1", "2"),
        ("42", "treatment", "L3", "0"), ("42", "treatment", "L3", "1"),
    ]  # fmt: skip
    assert {float(r["ttft_s"]) for r in rows} == {0.12}


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t=", "\r="])
def test_csv_cells_are_no_formulas(first: str) -> None:
    """Text that a spreadsheet would carry out is quoted, a negative number stays a number."""
    bad = finding(1, "h", "regressed", effect=-0.05, low=-0.06, high=-0.04, cause=f"{first}1+1")
    (row,) = csv.DictReader(io.StringIO(written(view(findings=[bad]), "csv")))
    assert row["cause"].startswith("'")
    assert row["effect"] == "-0.05"


def test_markdown_tells_what_a_reviewer_asks() -> None:
    """Best configuration, effect with interval, dead end with what reopens it, cause line and proof of revert."""
    text = written(view(), "md")
    for expected in (
        "# Campaign verify",
        "1 run on gpu1; 2 findings; as of 2026-03-01T12:00:00Z.",
        "| gpu1 | plain | ep: `--ep-size 8 --disable-radix-cache` | 89.6 (output\\_tps) | +9.3 % | +8.1 … +10.5 % |",
        "| 42 | ep | plain | **improved** | +9.3 % | +8.1 … +10.5 % | 82 → 89.6 | 2 + 2 | – |",
        "| 41 | tree | plain | **crashed** | – | – | – → – | 0 + 0 | `NCCL error: invalid usage` |",
        "Reopens when `nvidia-nccl-cu12` is no longer `2.27.5`.",
        "- test it alone (findings 1)",
        "- calls cost, not bytes – A",
        "- mscclpp: mscclpp is faster (never tried)",
        "- change: `NCCL_ALGO=Tree unset NCCL_PROTO`",
        "- cause: `NCCL error: invalid usage`",
        "- treatment arm 2: exited, exit code 1",
        "- revert: arm 2 proved, 1432 paths as found (manifest ffffffffffff)",
        "- kept files: `server.log` (log, sha256 cccccccccccc)",
        "### Experiment 43, baseline: running measure",
    ):
        assert expected in text, expected
    assert not text.endswith("\n\n\n")


def test_markdown_says_where_a_revert_is_not_proved() -> None:
    """A missing proof and a dirty one stand out, with the paths."""
    dirty = PROOF.model_copy(update={"clean": False, "differences": ({"path": "/opt/x.py", "what": "changed"},)})
    bad = experiment(
        41, "tree", "aborted", state="quarantined",
        arms=[arm(1, "treatment", changes=TREE), arm(2, "treatment", changes=TREE, proof=dirty)],
    )  # fmt: skip
    assert "arm 1 **not proved**; arm 2 **not clean**: `/opt/x.py`" in written(view(experiments=[bad]), "md")


def test_an_empty_campaign_can_be_reported() -> None:
    """Nothing measured is a report too, in every format."""
    empty = view(runs=[], todo=[], findings=[], decisions=[], insights=[], fingerprints=[], experiments=[], events=[])
    assert "None yet." in written(empty, "md")
    assert json.loads(written(empty, "json"))["findings"] == []
    assert len(written(empty, "jsonl").splitlines()) == 2
    assert len(written(empty, "csv").splitlines()) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_words_of_a_host_act_on_nothing(format: Format) -> None:
    """Control characters, direction changes, HTML, table bars and formulas of a log line are shown, not obeyed."""
    bad = experiment(
        41, "tree", "crashed", cause=EVIL, changes=[{"env": {"X": EVIL}}],
        arms=[arm(1, "treatment", launch(1, "exited"), changes=TREE, proof=PROOF)],
    )  # fmt: skip
    text = written(view(experiments=[bad], findings=[finding(1, EVIL, "crashed", cause=EVIL, closes=True)]), format)
    assert not [c for c in text if c in "\x1b\x07\r\u202e"]
    if format == "md":
        assert [line for line in text.splitlines() if line.lstrip().startswith(("next", "<script"))] == []
        table = [line for line in text.splitlines() if line.startswith("| 4")]
        assert [line.replace("\\|", "").count("|") for line in table] == [10]


def test_an_unknown_format_is_a_usage_error() -> None:
    """The hint names the formats there are."""
    with pytest.raises(UsageError, match="no export format") as caught:
        written(view(), "xml")
    assert "jsonl" in (caught.value.hint or "")


class Many:
    """Experiments that are made when asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[ExperimentRecord]:
        for number in range(1, self.count + 1):
            yield experiment(number, "tree", "crashed", arms=[arm(1, "baseline", launch(number, "measured", 20))])


@pytest.mark.parametrize(("format", "rows"), [("json", "findings"), ("jsonl", "findings"), ("csv", "samples")])
def test_a_large_ledger_is_written_as_it_is_read(format: Format, rows: Any, tmp_path: Path) -> None:
    """Ten times the experiments need no more memory."""

    def peak(count: int) -> int:
        with (tmp_path / "out").open("w") as out:
            tracemalloc.start()
            export(view(experiments=Many(count)), format, out, rows=rows)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        return most

    peak(5)
    assert peak(200) < peak(20) * 1.5


def test_the_documentation_lists_every_key_and_field() -> None:
    """The tables of docs/ledger.md name the keys of the JSON and the fields of each record, in order."""
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text().split("## Export", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    keys, records = rows[1 : rows.index(["record", "fields"])], rows[rows.index(["record", "fields"]) + 1 :]
    assert [key.strip("`") for key, _ in keys] == list(json.loads(written(view(), "json")))
    documented = {name: [field.strip("`") for field in fields.split()] for name, fields in records}
    classes = {
        "campaign": CampaignRecord, "run": RunRecord, "todo": TodoRow, "finding": FindingRecord,
        "decision, insight": InsightRecord, "fingerprint": FingerprintRecord, "experiment": ExperimentRecord,
        "arm": ArmRecord, "proof": RevertProof, "launch": LaunchRecord, "sample": Sample,
        "artifact": ArtifactRecord, "event": EventRecord,
    }  # fmt: skip
    assert documented == {name: list(cls.model_fields) for name, cls in classes.items()}
