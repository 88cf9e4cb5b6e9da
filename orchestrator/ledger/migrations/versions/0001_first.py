"""The tables as they began."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

TABLES = """
CREATE TABLE campaign (
    name VARCHAR NOT NULL PRIMARY KEY,
    description VARCHAR NOT NULL,
    measure JSON NOT NULL,
    created_at VARCHAR NOT NULL
);
CREATE TABLE host (
    name VARCHAR NOT NULL PRIMARY KEY,
    state VARCHAR NOT NULL CHECK (state IN ('clean', 'quarantined')),
    reason VARCHAR NOT NULL,
    since VARCHAR NOT NULL
);
CREATE TABLE run (
    id INTEGER NOT NULL PRIMARY KEY,
    campaign VARCHAR NOT NULL REFERENCES campaign (name),
    host VARCHAR NOT NULL REFERENCES host (name),
    playbook_digest VARCHAR NOT NULL,
    playbook_text VARCHAR NOT NULL,
    pid INTEGER,
    options JSON NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('running', 'done', 'interrupted', 'failed', 'dirty')),
    started_at VARCHAR NOT NULL,
    ended_at VARCHAR
);
CREATE TABLE hypothesis (
    number INTEGER NOT NULL PRIMARY KEY,
    campaign VARCHAR NOT NULL REFERENCES campaign (name),
    id VARCHAR NOT NULL,
    status VARCHAR NOT NULL CHECK (status IN ('open', 'running', 'done', 'skipped')),
    origin VARCHAR NOT NULL,
    parent VARCHAR,
    family VARCHAR NOT NULL,
    expect FLOAT,
    rank FLOAT,
    reason VARCHAR NOT NULL,
    hypothesis JSON NOT NULL,
    added_at VARCHAR NOT NULL,
    UNIQUE (campaign, id)
);
CREATE TABLE fingerprint (
    id INTEGER NOT NULL PRIMARY KEY,
    host VARCHAR NOT NULL REFERENCES host (name),
    digest VARCHAR NOT NULL,
    facts JSON NOT NULL,
    first_seen VARCHAR NOT NULL,
    last_seen VARCHAR NOT NULL,
    UNIQUE (host, digest)
);
CREATE TABLE experiment (
    id INTEGER NOT NULL PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id),
    campaign VARCHAR NOT NULL REFERENCES campaign (name),
    host VARCHAR NOT NULL REFERENCES host (name),
    context VARCHAR NOT NULL,
    hypothesis_id VARCHAR,
    changes JSON NOT NULL,
    fingerprint_id INTEGER REFERENCES fingerprint (id),
    state VARCHAR NOT NULL CHECK (state IN ('running', 'done', 'aborted', 'quarantined')),
    phase VARCHAR NOT NULL,
    verdict VARCHAR,
    cause VARCHAR,
    started_at VARCHAR NOT NULL,
    ended_at VARCHAR,
    FOREIGN KEY (campaign, hypothesis_id) REFERENCES hypothesis (campaign, id)
);
CREATE INDEX experiment_by_campaign ON experiment (campaign, host, context);
CREATE INDEX experiment_by_run ON experiment (run_id);
CREATE TABLE arm (
    id INTEGER NOT NULL PRIMARY KEY,
    experiment_id INTEGER NOT NULL REFERENCES experiment (id),
    number INTEGER NOT NULL,
    kind VARCHAR NOT NULL CHECK (kind IN ('baseline', 'treatment')),
    changes JSON NOT NULL,
    started_at VARCHAR NOT NULL,
    ended_at VARCHAR,
    proof JSON,
    UNIQUE (experiment_id, number)
);
CREATE TABLE artifact (
    id INTEGER NOT NULL PRIMARY KEY,
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    size INTEGER NOT NULL,
    stored_size INTEGER NOT NULL,
    path VARCHAR NOT NULL,
    keep VARCHAR NOT NULL CHECK (keep IN ('always', 'until_reverted', 'until_old')),
    experiment_id INTEGER REFERENCES experiment (id),
    launch_id INTEGER REFERENCES launch (id),
    created_at VARCHAR NOT NULL,
    pruned_at VARCHAR
);
CREATE INDEX artifact_by_digest ON artifact (sha256);
CREATE INDEX artifact_by_experiment ON artifact (experiment_id);
CREATE TABLE launch (
    id INTEGER NOT NULL PRIMARY KEY,
    arm_id INTEGER NOT NULL REFERENCES arm (id),
    number INTEGER NOT NULL,
    launch_id VARCHAR NOT NULL UNIQUE,
    argv JSON NOT NULL,
    started_at VARCHAR NOT NULL,
    ended_at VARCHAR,
    outcome VARCHAR,
    ready_s FLOAT,
    exit_code INTEGER,
    signal INTEGER,
    cause VARCHAR,
    facts JSON NOT NULL,
    log_artifact INTEGER REFERENCES artifact (id),
    UNIQUE (arm_id, number)
);
CREATE TABLE sample (
    id INTEGER NOT NULL PRIMARY KEY,
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    repetition INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    ok BOOLEAN NOT NULL,
    error VARCHAR,
    prompt_tokens INTEGER,
    output_tokens INTEGER,
    cached_tokens INTEGER,
    ttft_s FLOAT,
    decode_s FLOAT,
    decode_tokens INTEGER,
    total_s FLOAT,
    itl_p50_s FLOAT,
    itl_p99_s FLOAT,
    accept_length FLOAT,
    finish_reason VARCHAR,
    text_sha256 VARCHAR,
    text VARCHAR
);
CREATE INDEX sample_by_launch ON sample (launch_id);
CREATE TABLE finding (
    id INTEGER NOT NULL PRIMARY KEY,
    experiment_id INTEGER NOT NULL REFERENCES experiment (id),
    campaign VARCHAR NOT NULL REFERENCES campaign (name),
    host VARCHAR NOT NULL REFERENCES host (name),
    context VARCHAR NOT NULL,
    hypothesis_id VARCHAR,
    family VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    summary VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    direction VARCHAR NOT NULL CHECK (direction IN ('higher', 'lower')),
    effect FLOAT,
    low FLOAT,
    high FLOAT,
    confidence FLOAT,
    baseline FLOAT,
    treatment FLOAT,
    baseline_launches INTEGER NOT NULL,
    treatment_launches INTEGER NOT NULL,
    cause VARCHAR,
    evidence JSON NOT NULL,
    closes BOOLEAN NOT NULL,
    depends_on JSON NOT NULL,
    created_at VARCHAR NOT NULL,
    reopened_at VARCHAR,
    reopened_because VARCHAR
);
CREATE INDEX finding_by_campaign ON finding (campaign, host, context);
CREATE INDEX finding_by_experiment ON finding (experiment_id);
CREATE TABLE decision (
    id INTEGER NOT NULL PRIMARY KEY,
    campaign VARCHAR NOT NULL REFERENCES campaign (name),
    text VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    created_at VARCHAR NOT NULL
);
CREATE TABLE decision_finding (
    decision_id INTEGER NOT NULL REFERENCES decision (id),
    finding_id INTEGER NOT NULL REFERENCES finding (id),
    PRIMARY KEY (decision_id, finding_id)
);
CREATE TABLE insight (
    id INTEGER NOT NULL PRIMARY KEY,
    campaign VARCHAR NOT NULL REFERENCES campaign (name),
    text VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    created_at VARCHAR NOT NULL
);
CREATE TABLE insight_finding (
    insight_id INTEGER NOT NULL REFERENCES insight (id),
    finding_id INTEGER NOT NULL REFERENCES finding (id),
    PRIMARY KEY (insight_id, finding_id)
);
CREATE TABLE event (
    seq INTEGER NOT NULL PRIMARY KEY,
    at VARCHAR NOT NULL,
    kind VARCHAR NOT NULL CHECK (kind IN ('intent', 'outcome', 'info')),
    phase VARCHAR NOT NULL,
    run_id INTEGER REFERENCES run (id),
    experiment_id INTEGER REFERENCES experiment (id),
    host VARCHAR REFERENCES host (name),
    settles INTEGER REFERENCES event (seq),
    outcome VARCHAR,
    data JSON NOT NULL,
    CHECK ((kind = 'outcome') = (settles IS NOT NULL))
);
CREATE UNIQUE INDEX event_settles ON event (settles) WHERE settles IS NOT NULL;
CREATE INDEX event_by_host ON event (host, kind);
CREATE INDEX event_by_experiment ON event (experiment_id);
CREATE TABLE inventory (
    id INTEGER NOT NULL PRIMARY KEY,
    seen_at VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    body JSON NOT NULL
)
"""

# REPLACE deletes without firing a DELETE trigger, so the third refuses every number but the next.
TRIGGERS = (
    """CREATE TRIGGER event_is_never_updated BEFORE UPDATE ON event
       BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
    """CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
       BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
    """CREATE TRIGGER event_is_only_appended BEFORE INSERT ON event
       WHEN NEW.seq IS NOT (SELECT COALESCE(MAX(seq), 0) + 1 FROM event)
       BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
)


def upgrade() -> None:
    for statement in TABLES.split(";"):
        op.execute(statement)
    for statement in TRIGGERS:
        op.execute(statement)
