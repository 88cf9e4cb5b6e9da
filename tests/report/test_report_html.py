"""The report as one HTML file: whole, closed to the outside, and nothing in it acts."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from orchestrator.core.records import ArtifactRecord, CampaignView, FingerprintRecord, Sample
from orchestrator.report import export
from orchestrator.report.launches import file_diffs, log_excerpt, mask_assigned
from orchestrator.report.overview import band, duration, overview
from orchestrator.report.plots import ticks
from tests.report.report_story import AT, EVIL, PROOF, TREE, arm, experiment, finding, launch, todo, view

VOID = {"meta", "br"}
NEVER = {"script", "link", "img", "iframe", "object", "embed", "form", "input", "base"}
LOG = "".join(f"line {n}\n" for n in range(1, 60)) + "NCCL error: invalid usage\n" + "after\n" * 30


class Reader(HTMLParser):
    """Tags with their attributes, text, ids and links; complains about what is not closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += f"{data} "


def page(of: CampaignView) -> tuple[str, Reader]:
    out = io.StringIO()
    export(of, "html", out)
    reader = Reader()
    reader.feed(out.getvalue())
    assert reader.open == []
    return out.getvalue(), reader


def artifact(number: int, kind: str, name: str, experiment_id: int = 41) -> ArtifactRecord:
    return ArtifactRecord(
        id=number, kind=kind, name=name, sha256="a" * 64, size=1, stored_size=1, path="a", keep="always",
        experiment_id=experiment_id, created_at=AT,
    )  # fmt: skip


def campaign(**more: Any) -> CampaignView:
    """A crash with its log and diff between two baselines of known value, and an improvement."""
    contents = {1: b"x = 1\ny = 2\n", 2: b"x = 1\ny = 3\n", 3: LOG.encode()}
    kept = {41: [artifact(1, "found", "/tree/a.py"), artifact(2, "patched", "/tree/a.py"), artifact(3, "log", "log")]}
    later = "2026-03-01T12:02:30.000000Z"
    crashed = launch(2, "exited", exit_code=1, cause="NCCL error: invalid usage", log_artifact=3, ended_at=later,
                     facts={"diagnosis": {"cause_lineno": 60}}, argv=["python", "-m", "sglang"])  # fmt: skip
    timed = tuple(Sample(repetition=n, decode_tokens=82 + n, decode_s=1.0) for n in range(3))
    base = [
        launch(n, "measured", facts={"value": v, "resolved": {"tp_size": 8}}).model_copy(update={"samples": timed})
        for n, v in ((1, 82.0), (5, 84.0))
    ]
    other = {"value": 90.0, "resolved": {"tp_size": 4}}
    experiments = [
        experiment(40, None, None, arms=[arm(1, "baseline", base[1])]),
        experiment(41, "tree", "crashed", changes=TREE, fingerprint_id=1, ended_at=later,
                   arms=[arm(1, "baseline", base[0]), arm(2, "treatment", crashed, changes=TREE, proof=PROOF)]),
        experiment(42, "ep", "improved",
                   arms=[arm(1, "treatment", launch(3, "measured", 2, facts=other))]),
    ]  # fmt: skip
    return replace(
        view(experiments=experiments, **more), artifacts=lambda n: kept.get(n, []), content=lambda n: contents.get(n)
    )


def test_the_page_is_closed_to_the_outside() -> None:
    """No script, no address of elsewhere, a policy that forbids both; every link leads to a place in the page."""
    text, reader = page(campaign())
    assert not {tag for tag, _ in reader.tags} & NEVER
    assert not re.search(r"https?:|//[a-z]|url\((?!#)|@import|\bon[a-z]+=", text)
    policies = [
        a["content"] for t, a in reader.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies and "default-src 'none'" in str(policies[0])
    ids = [a["id"] for _, a in reader.tags if a.get("id")]
    assert len(ids) - ids.count("hatch") == len(set(ids) - {"hatch"})
    assert {str(a["href"]) for _, a in reader.tags if "href" in a} <= {f"#{name}" for name in ids}


def test_the_page_tells_the_whole_story() -> None:
    """Summary, plan, forest plot, baseline with its noise, time lost, dead ends, decisions, each experiment's parts."""
    _, reader = page(campaign())
    text = " ".join(reader.text.split())
    for told in (
        "A faster verify pass", "2 findings", "crashed 1", "the plan, and what became of it", "mscclpp is faster",
        "ep --ep-size 8 --disable-radix-cache 89.6 output_tps 83 (2 launches) +9.3 % [+8.1 … +10.5 %]",
        "mean 83 output_tps over 2 launches; shaded: two standard deviations between launches, ± 3.4 %",
        "lost to launches that came to nothing: 2 min 30 s exited", "run #1 on gpu1",
        "until one of these changes: nvidia-nccl-cu12 2.27.5", "test it alone (findings 1)", "calls cost, not bytes",
        "@@ -1,2 +1,2 @@", "-y = 2", "+y = 3", "60 ▶ NCCL error: invalid usage", "python -m sglang",
        "unlike the baseline before it: tp_size: 8 → 4", "proved clean: 1432 paths as found",
        "driver", "tokens a second; ● baseline, ■ treatment",
    ):  # fmt: skip
        assert told.lower() in text.lower(), (told, text)
    svgs = [a["aria-label"] for tag, a in reader.tags if tag == "svg"]
    assert [s.split()[0] for s in svgs if s] == ["Effect", "Baseline", "Experiments", "Tokens", "Tokens"]


def test_words_of_a_host_are_shown_and_do_nothing() -> None:
    """In every place that a host, a person or a playbook can write: no markup, no control or direction characters."""
    facts = {"value": 82.0, "resolved": {EVIL: EVIL}, "checks": [{"what": EVIL, "holds": False}], "gate": EVIL}
    bad = experiment(
        41, EVIL, "crashed", cause=EVIL, changes=[{"env": {"X": EVIL}}], context=EVIL, host=EVIL,
        arms=[arm(1, "baseline", launch(1, "measured", 3, facts=facts, argv=[EVIL], launch_id=EVIL)),
              arm(2, "treatment", launch(2, "exited", cause=EVIL, log_artifact=3), changes=TREE,
                  proof=PROOF.model_copy(update={"clean": False, "differences": ({"path": EVIL},)}))],
    )  # fmt: skip
    fingerprint = FingerprintRecord(id=1, host=EVIL, digest=EVIL, facts={EVIL: EVIL}, first_seen=AT, last_seen=AT)
    found = [
        finding(1, EVIL, "crashed", cause=EVIL, closes=True, context=EVIL, evidence=[EVIL], depends_on={EVIL: EVIL}),
        finding(2, EVIL, "improved", effect=0.1, low=0.0, high=0.2, summary=EVIL, metric=EVIL),
    ]
    of = replace(
        view(experiments=[bad], findings=found, fingerprints=[fingerprint, fingerprint],
             todo=[todo(1, "a", TREE, family=EVIL, reason=EVIL)]),
        artifacts=lambda _: [artifact(1, "found", EVIL), artifact(2, "patched", EVIL), artifact(3, "log", EVIL)],
        content=lambda n: f"{EVIL} {n}".encode("utf-8", "surrogatepass"),
    )  # fmt: skip
    text, reader = page(of)
    assert not [c for c in text if c in "\x1b\x07\r\u202e"]
    assert not {tag for tag, _ in reader.tags} & NEVER
    assert not [a for _, a in reader.tags if any(name.startswith("on") for name in a)]
    assert reader.text.count("<script>") > 15


@pytest.mark.parametrize(
    "line",
    ['HF_TOKEN = "hf_abcdef"', "os.environ['API_KEY']='hf_abcdef'", '"api_key": "hf_abcdef",', "MY_SECRET=hf_abcdef",
     'setdefault("HF_TOKEN", "hf_abcdef")', "server --api-key=hf_abcdef"],
)  # fmt: skip
def test_a_secret_of_the_host_is_not_in_a_diff(line: str) -> None:
    """Files are kept byte for byte, and shown with what secret names are given masked."""
    assert "hf_abcdef" not in mask_assigned(line) and "***" in mask_assigned(line)
    content = {1: f"{line}\na\n".encode(), 2: f"{line}\nb\n".encode()}
    [(path, diff)] = file_diffs([artifact(1, "found", "x"), artifact(2, "patched", "x")], content.get)
    assert path == "x" and "+b" in diff and "hf_abcdef" not in diff
    log = launch(1, "exited", cause="boom", log_artifact=1)
    assert "hf_abcdef" not in str(log_excerpt(log, {1: f"{line}\nboom\n".encode()}.get))


def test_innocent_names_are_shown() -> None:
    """A count of tokens is no secret."""
    assert mask_assigned("max_total_tokens=281648, TOKENIZER_PATH=/m") == "max_total_tokens=281648, TOKENIZER_PATH=/m"


def test_what_is_gone_is_left_out() -> None:
    """Pruned files and logs leave a page without them, not an error."""
    _, reader = page(replace(campaign(), content=lambda _: None))
    assert "▶" not in reader.text and "@@" not in reader.text and "proved clean" in reader.text


def test_an_empty_campaign_is_a_page_too() -> None:
    """Nothing measured, nothing planned: still whole."""
    empty = view(runs=[], todo=[], findings=[], decisions=[], insights=[], fingerprints=[], experiments=[], events=[])
    assert "None yet." in page(empty)[1].text


def test_the_baseline_is_told_where_nothing_beat_it() -> None:
    """Best configuration: a place without an improvement has its baseline's measured value, in both formats."""
    of = campaign(findings=[finding(1, "tree", "crashed", cause="x", closes=True)])
    out = io.StringIO()
    export(of, "md", out)
    assert "| gpu1 | plain | the baseline | 83 (output\\_tps) | – | – |" in out.getvalue()
    assert "the baseline: nothing beat it 83 (2 launches)" in page(of)[1].text


def test_time_lost_is_that_of_launches_that_came_to_nothing() -> None:
    """The crashed launch took 150 s, the measured ones lose nothing."""
    seen = overview(campaign())
    assert seen.lost_s == {"exited": 150.0}
    assert [s.lost_s for s in seen.spans] == [0.0, 150.0, 0.0]
    noise = band(seen.baselines["gpu1", "plain"])
    assert (noise.mean, noise.launches) == (83.0, 2)
    assert [duration(s) for s in (0, 3.25, 48, 700, 11100)] == ["0 s", "3.2 s", "48 s", "12 min", "3 h 05 min"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.6, 0.44), (59.1, 60.9), (1e-9, 3e-9), (5.0, 5.0)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    """At most a dozen, between the ends."""
    found = ticks(low, high)
    assert 1 <= len(found) <= 12
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in found)


def test_a_selection_keeps_what_belongs_to_it() -> None:
    """One hypothesis: its findings and experiments, baselines alone, and the decisions that rest on it."""
    chosen = view().selection(["ep"])
    assert [f.hypothesis_id for f in chosen.findings] == ["ep"]
    assert [e.id for e in chosen.experiments] == [42, 43] == [e.id for e in chosen.experiments]
    assert chosen.decisions == [] and len(chosen.insights) == 1
