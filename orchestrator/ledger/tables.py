"""The tables. They stay in this room: rows go in as mappings, records come out.

The DDL that counts is in `migrations`; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Column, ForeignKey, ForeignKeyConstraint, Index, Integer, UniqueConstraint, text
from sqlmodel import Field, SQLModel

JSON_TEXT = JSON(none_as_null=True)


class Table(SQLModel):
    """Base of the tables below."""


class CampaignTable(Table, table=True):
    __tablename__ = "campaign"
    name: str = Field(primary_key=True)
    description: str
    measure: dict[str, Any] = Field(sa_type=JSON_TEXT)
    created_at: str


class HostTable(Table, table=True):
    __tablename__ = "host"
    name: str = Field(primary_key=True)
    state: str
    reason: str
    since: str
    kept: str | None = None


class RunTable(Table, table=True):
    __tablename__ = "run"
    id: int | None = Field(default=None, primary_key=True)
    campaign: str = Field(foreign_key="campaign.name")
    host: str = Field(foreign_key="host.name")
    playbook_digest: str
    playbook_text: str
    pid: int | None = None
    options: dict[str, Any] = Field(sa_type=JSON_TEXT)
    state: str
    started_at: str
    ended_at: str | None = None


class HypothesisTable(Table, table=True):
    __tablename__ = "hypothesis"
    __table_args__ = (UniqueConstraint("campaign", "id"),)
    number: int | None = Field(default=None, primary_key=True)
    campaign: str = Field(foreign_key="campaign.name")
    id: str
    status: str
    origin: str
    parent: str | None = None
    family: str
    expect: float | None = None
    rank: float | None = None
    reason: str
    pin: float | None = None
    decision_id: int | None = Field(
        default=None,
        sa_column=Column(Integer, ForeignKey("decision.id", use_alter=True)),
    )
    hypothesis: dict[str, Any] = Field(sa_type=JSON_TEXT)
    added_at: str


class FingerprintTable(Table, table=True):
    __tablename__ = "fingerprint"
    __table_args__ = (UniqueConstraint("host", "digest"),)
    id: int | None = Field(default=None, primary_key=True)
    host: str = Field(foreign_key="host.name")
    digest: str
    facts: dict[str, Any] = Field(sa_type=JSON_TEXT)
    first_seen: str
    last_seen: str


class ExperimentTable(Table, table=True):
    __tablename__ = "experiment"
    __table_args__ = (
        ForeignKeyConstraint(["campaign", "hypothesis_id"], ["hypothesis.campaign", "hypothesis.id"]),
        Index("experiment_by_campaign", "campaign", "host", "context"),
        Index("experiment_by_run", "run_id"),
    )
    id: int | None = Field(default=None, primary_key=True)
    run_id: int = Field(foreign_key="run.id")
    campaign: str = Field(foreign_key="campaign.name")
    host: str = Field(foreign_key="host.name")
    context: str
    hypothesis_id: str | None = None
    changes: list[Any] = Field(sa_type=JSON_TEXT)
    fingerprint_id: int | None = Field(default=None, foreign_key="fingerprint.id")
    state: str
    phase: str
    verdict: str | None = None
    cause: str | None = None
    started_at: str
    ended_at: str | None = None


class ArmTable(Table, table=True):
    __tablename__ = "arm"
    __table_args__ = (UniqueConstraint("experiment_id", "number"),)
    id: int | None = Field(default=None, primary_key=True)
    experiment_id: int = Field(foreign_key="experiment.id")
    number: int
    kind: str
    changes: list[Any] = Field(sa_type=JSON_TEXT)
    started_at: str
    ended_at: str | None = None
    proof: dict[str, Any] | None = Field(default=None, sa_type=JSON_TEXT)


class LaunchTable(Table, table=True):
    __tablename__ = "launch"
    __table_args__ = (UniqueConstraint("arm_id", "number"),)
    id: int | None = Field(default=None, primary_key=True)
    arm_id: int = Field(foreign_key="arm.id")
    number: int
    launch_id: str = Field(unique=True)
    argv: list[str] = Field(sa_type=JSON_TEXT)
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None
    ready_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None
    facts: dict[str, Any] = Field(sa_type=JSON_TEXT)
    log_artifact: int | None = Field(
        default=None,
        sa_column=Column(Integer, ForeignKey("artifact.id", use_alter=True)),  # an artifact refers to its launch too
    )


class SampleTable(Table, table=True):
    __tablename__ = "sample"
    __table_args__ = (Index("sample_by_launch", "launch_id"),)
    id: int | None = Field(default=None, primary_key=True)
    launch_id: int = Field(foreign_key="launch.id")
    repetition: int
    stream: int
    ok: bool
    error: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_s: float | None = None
    decode_s: float | None = None
    decode_tokens: int | None = None
    total_s: float | None = None
    itl_p50_s: float | None = None
    itl_p99_s: float | None = None
    accept_length: float | None = None
    finish_reason: str | None = None
    text_sha256: str | None = None
    text: str | None = None


class FindingTable(Table, table=True):
    __tablename__ = "finding"
    __table_args__ = (
        Index("finding_by_campaign", "campaign", "host", "context"),
        Index("finding_by_experiment", "experiment_id"),
    )
    id: int | None = Field(default=None, primary_key=True)
    experiment_id: int = Field(foreign_key="experiment.id")
    campaign: str = Field(foreign_key="campaign.name")
    host: str = Field(foreign_key="host.name")
    context: str
    hypothesis_id: str | None = None
    family: str
    verdict: str
    summary: str
    metric: str
    direction: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    baseline: float | None = None
    treatment: float | None = None
    baseline_launches: int
    treatment_launches: int
    cause: str | None = None
    evidence: list[str] = Field(sa_type=JSON_TEXT)
    closes: bool
    depends_on: dict[str, str] = Field(sa_type=JSON_TEXT)
    created_at: str
    reopened_at: str | None = None
    reopened_because: str | None = None


class DecisionTable(Table, table=True):
    __tablename__ = "decision"
    id: int | None = Field(default=None, primary_key=True)
    campaign: str = Field(foreign_key="campaign.name")
    text: str
    author: str
    created_at: str


class DecisionFindingTable(Table, table=True):
    __tablename__ = "decision_finding"
    decision_id: int = Field(foreign_key="decision.id", primary_key=True)
    finding_id: int = Field(foreign_key="finding.id", primary_key=True)


class InsightTable(Table, table=True):
    __tablename__ = "insight"
    id: int | None = Field(default=None, primary_key=True)
    campaign: str = Field(foreign_key="campaign.name")
    text: str
    author: str
    created_at: str


class InsightFindingTable(Table, table=True):
    __tablename__ = "insight_finding"
    insight_id: int = Field(foreign_key="insight.id", primary_key=True)
    finding_id: int = Field(foreign_key="finding.id", primary_key=True)


class ArtifactTable(Table, table=True):
    __tablename__ = "artifact"
    __table_args__ = (Index("artifact_by_digest", "sha256"), Index("artifact_by_experiment", "experiment_id"))
    id: int | None = Field(default=None, primary_key=True)
    kind: str
    name: str
    sha256: str
    size: int
    stored_size: int
    path: str
    keep: str
    experiment_id: int | None = Field(default=None, foreign_key="experiment.id")
    launch_id: int | None = Field(default=None, foreign_key="launch.id")
    created_at: str
    pruned_at: str | None = None


class EventTable(Table, table=True):
    __tablename__ = "event"
    __table_args__ = (
        Index("event_settles", "settles", unique=True, sqlite_where=text("settles IS NOT NULL")),
        Index("event_by_host", "host", "kind"),
        Index("event_by_experiment", "experiment_id"),
    )
    seq: int | None = Field(default=None, primary_key=True)
    at: str
    kind: str
    phase: str
    run_id: int | None = Field(default=None, foreign_key="run.id")
    experiment_id: int | None = Field(default=None, foreign_key="experiment.id")
    host: str | None = Field(default=None, foreign_key="host.name")
    settles: int | None = Field(default=None, foreign_key="event.seq")
    outcome: str | None = None
    data: dict[str, Any] = Field(sa_type=JSON_TEXT)


class PlanTable(Table, table=True):
    __tablename__ = "plan"
    campaign: str = Field(primary_key=True, foreign_key="campaign.name")
    text: str
    imported_at: str


class InventoryTable(Table, table=True):
    __tablename__ = "inventory"
    id: int | None = Field(default=None, primary_key=True)
    seen_at: str
    digest: str
    body: dict[str, Any] = Field(sa_type=JSON_TEXT)
