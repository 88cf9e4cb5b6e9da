"""A small campaign as records, written out by hand: reports know no ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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

AT = "2026-03-01T12:00:00.000000Z"
PROOF = RevertProof(clean=True, found_digest="f" * 64, now_digest="f" * 64, files=1432)
EVIL = "=cmd|'/c calc'!A1 | <script> `x` \x1b[31mred\x07\r\nnext \u202egnp.exe"


def launch(number: int, outcome: str, samples: int = 0, **more: Any) -> LaunchRecord:
    values = {
        "id": number, "arm_id": 1, "number": 1, "launch_id": f"L{number}", "started_at": AT, "ended_at": AT,
        "outcome": outcome, "samples": [Sample(repetition=n, ttft_s=0.12, output_tokens=256) for n in range(samples)],
    }  # fmt: skip
    return LaunchRecord.model_validate(values | more)


def arm(number: int, kind: str, *launches: LaunchRecord, **more: Any) -> ArmRecord:
    values = {"id": number, "experiment_id": 41, "number": number, "kind": kind, "started_at": AT, "ended_at": AT}
    return ArmRecord.model_validate(values | {"launches": launches} | more)


def experiment(number: int, hypothesis_id: str | None, verdict: str | None, **more: Any) -> ExperimentRecord:
    values = {
        "id": number, "run_id": 1, "campaign": "verify", "host": "gpu1", "context": "plain", "started_at": AT,
        "hypothesis_id": hypothesis_id, "verdict": verdict, "state": "done", "ended_at": AT,
    }  # fmt: skip
    return ExperimentRecord.model_validate(values | more)


def finding(number: int, hypothesis_id: str, verdict: str, **more: Any) -> FindingRecord:
    values = {
        "id": number, "experiment_id": 40 + number, "campaign": "verify", "host": "gpu1", "context": "plain",
        "hypothesis_id": hypothesis_id, "verdict": verdict, "created_at": AT,
    }  # fmt: skip
    return FindingRecord.model_validate(values | more)


TREE = [{"env": {"NCCL_ALGO": "Tree", "NCCL_PROTO": None}}]
EP = [{"args": {"ep-size": 8, "disable-radix-cache": True}}]


def todo(number: int, name: str, changes: list[dict[str, Any]], **more: Any) -> TodoRow:
    row = {"id": name, "claim": f"{name} is faster", "changes": changes}
    values = {"number": number, "campaign": "verify", "id": name, "hypothesis": row, "added_at": AT}
    return TodoRow.model_validate(values | more)


LOG = ArtifactRecord(
    id=1, kind="log", name="server.log", sha256="c" * 64, size=9, stored_size=9, path="cc/c.gz", keep="until_old",
    experiment_id=41, created_at=AT,
)  # fmt: skip


def view(**more: Any) -> CampaignView:
    crashed = arm(
        2, "treatment", launch(2, "exited", exit_code=1, cause="NCCL error: invalid usage"), changes=TREE, proof=PROOF
    )
    experiments = [
        experiment(41, "tree", "crashed", changes=TREE, cause="NCCL error: invalid usage",
                   arms=[arm(1, "baseline", launch(1, "measured", 3)), crashed]),
        experiment(42, "ep", "improved", changes=EP,
                   arms=[arm(1, "treatment", launch(3, "measured", 2), changes=EP, proof=PROOF)]),
        experiment(43, None, None, state="running", phase="measure", ended_at=None),
    ]  # fmt: skip
    findings = [
        finding(1, "tree", "crashed", cause="NCCL error: invalid usage", closes=True,
                depends_on={"nvidia-nccl-cu12": "2.27.5"}),
        finding(2, "ep", "improved", effect=0.093, low=0.081, high=0.105, baseline=82.0, treatment=89.6,
                baseline_launches=2, treatment_launches=2),
    ]  # fmt: skip
    values = CampaignView(
        campaign=CampaignRecord(name="verify", description="A faster verify pass", created_at=AT),
        exported_at=AT,
        runs=[RunRecord(id=1, campaign="verify", host="gpu1", playbook_digest="d", started_at=AT)],
        todo=[todo(1, "tree", TREE, status="done"), todo(2, "ep", EP, status="done"),
              todo(3, "mscclpp", EP, reason="never tried", origin="isolation", parent="fusion", rank=1.5)],
        findings=findings,
        decisions=[DecisionRecord(id=1, campaign="verify", text="test it alone", finding_ids=(1,), created_at=AT)],
        insights=[InsightRecord(id=1, campaign="verify", text="calls cost, not bytes", author="A", created_at=AT)],
        fingerprints=[
            FingerprintRecord(id=1, host="gpu1", digest="a", facts={"driver": "580"}, first_seen=AT, last_seen=AT)
        ],
        experiments=experiments,
        events=[EventRecord(seq=1, at=AT, kind="info", phase="connect", run_id=1, data={"ms": 3})],
        artifacts=lambda number: [LOG] if number == 41 else [],
    )  # fmt: skip
    return replace(values, **more)
