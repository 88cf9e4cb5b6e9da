"""The todo by hand: adding, ranking, dropping, and a plan in Markdown that comes in and goes out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.controller import plans, todo
from orchestrator.core.records import Conclusion, Verdict
from orchestrator.errors import PlaybookError, UsageError
from orchestrator.ledger import Ledger, open_ledger
from tests.ledger.ledger_story import Clock, Story, hypothesis

PLAN = """# Verify pass

By hand: ask A. before Friday.

## Family: tune-nccl

- [ ] fewer: fewer channels lower the latency
  - expect: 5%
  - why: 42 KB do not fill sixteen channels
  - change: NCCL_MAX_NCHANNELS=2
- [ ] ep: expert parallelism
  - after: fewer
  - requires: sglang >=0.5.8, gpu_arch 12.0
  - change: --ep-size 8
  and a remark that belongs to it
- [ ] code: a block says what bullets cannot

  ```yaml
  context: [plain]
  changes:
    - sitecustomize: {env: {A: "1"}}
  ```
- [ ] someday: without changes
- [ ] talk to the vendor
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "state", clock=clock) as ledger:
        yield ledger


@pytest.fixture
def story(ledger: Ledger) -> Story:
    return Story(ledger)


def imported(ledger: Ledger, path: Path, text: str) -> plans.Imported:
    path.write_bytes(text.encode())
    return plans.import_plan(ledger, "camp", path)


def test_a_plan_becomes_ranked_rows(ledger: Ledger, tmp_path: Path) -> None:
    """Items with changes are rows, with family, gain, order and conditions; the others are named."""
    done = imported(ledger, tmp_path / "plan.md", PLAN)
    assert done.added == ["fewer", "ep", "code"]
    assert [line.split()[1] for line in done.unread] == ["24:", "23:"]
    rows = {row.id: row.as_hypothesis() for row in ledger.todo("camp")}
    assert (rows["fewer"].family, rows["fewer"].expect, rows["fewer"].why[:5]) == ("tune-nccl", 0.05, "42 KB")
    assert rows["ep"].after == ("fewer",)
    assert (rows["ep"].requires.packages, rows["ep"].requires.gpu_arch) == ({"sglang": ">=0.5.8"}, ("12.0",))
    assert rows["code"].context == ("plain",)
    assert [row.id for row in ledger.todo("camp")] == ["fewer", "ep", "code"]
    assert "+5.0 % expected × 50% odds ÷ 60 min = 2.50 % an hour" in ledger.todo_row("camp", "fewer").reason


def test_an_untouched_plan_goes_out_as_it_came_in(ledger: Ledger, tmp_path: Path) -> None:
    """Nothing was carried out, so nothing is written beside the items."""
    imported(ledger, tmp_path / "plan.md", PLAN)
    assert plans.export_plan(ledger, "camp") == PLAN


def test_what_became_of_an_item_is_written_into_the_plan(story: Story, tmp_path: Path) -> None:
    """A row that was carried out is ticked, with verdict and cause; rows of others are added at the end, once."""
    ledger = story.ledger
    imported(ledger, tmp_path / "plan.md", PLAN)
    story.finish(story.begin("fewer"), Conclusion(verdict=Verdict.crashed, cause="NCCL *error*", closes=True))
    ledger.set_status("camp", "fewer", "done")
    text = plans.export_plan(ledger, "camp")
    assert "- [x] fewer: fewer channels" in text
    assert "  - crashed (finding 1): NCCL \\*error\\*; dead end" in text
    assert "By hand: ask A. before Friday." in text and "and a remark that belongs to it" in text
    assert text.count("## Added") == 1 and "- [ ] tree: tree helps" in text
    assert plans.export_plan(ledger, "camp") == text
    assert imported(ledger, tmp_path / "plan.md", text).changed == []


def test_boxes_that_a_person_sets_drop_and_take_up(ledger: Ledger, tmp_path: Path) -> None:
    """`[-]` drops an open row, `[ ]` takes it up again."""
    path = tmp_path / "plan.md"
    imported(ledger, path, PLAN)
    assert imported(ledger, path, PLAN.replace("- [ ] ep", "- [-] ep")).dropped == ["ep"]
    assert ledger.todo_row("camp", "ep").status == "skipped"
    assert imported(ledger, path, PLAN).taken_up == ["ep"]
    assert ledger.todo_row("camp", "ep").status == "open"


def test_edits_made_in_the_file_are_not_overwritten(story: Story, tmp_path: Path) -> None:
    """An export into a file that was edited since the import begins from the file."""
    imported(story.ledger, tmp_path / "plan.md", PLAN)
    edited = PLAN.replace("ask A. before Friday", "A. said yes")
    assert "A. said yes" in plans.export_plan(story.ledger, "camp", edited)
    assert "A. said yes" in plans.export_plan(story.ledger, "camp")


@pytest.mark.parametrize(
    ("was", "wrong", "line", "what"),
    [
        ("expect: 5%", "expect: 5", 8, "percentage"),
        ("NCCL_MAX_NCHANNELS=2", "make it faster", 10, "is no change"),
        ("context: [plain]", "contxt: [plain]", 19, "contxt"),
        ("changes:\n", "changes: [\n", 21, "expected the node content"),
        ("ep: expert", "fewer: expert", 11, "twice"),
    ],
)
def test_a_mistake_is_shown_with_its_line_and_nothing_is_taken_in(
    ledger: Ledger, tmp_path: Path, was: str, wrong: str, line: int, what: str
) -> None:
    """All or nothing: the ledger has no row and no plan afterwards."""
    ledger.add_campaign("camp")
    with pytest.raises(PlaybookError) as caught:
        imported(ledger, tmp_path / "plan.md", PLAN.replace(was, wrong))
    [problem] = caught.value.problems
    assert what in problem.what
    assert problem.where is not None and problem.where.line == line
    assert ledger.todo("camp") == [] and ledger.plan("camp") is None


NAMES = st.sampled_from(["a", "b-1", "c.2"])
WORDS = st.text("abc:#[]{}*-\"'`% é|>&!?,", max_size=20)
ROWS = st.lists(
    st.builds(
        lambda name, claim, why, value, expect: hypothesis(
            name, claim=claim, why=why, expect=expect, changes=[{"env": {"X": value}}]
        ),
        NAMES, WORDS, WORDS, WORDS, st.sampled_from([None, 0.05, -0.012]),
    ),
    unique_by=lambda h: h.id, max_size=3,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(ROWS)
def test_rows_that_were_never_in_a_plan_come_back_from_one(tmp_path: Path, rows: list[object]) -> None:
    """Whatever a playbook says in words, values and signs: exported and imported again, no row is another one."""
    import tempfile

    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with open_ledger(folder, clock=Clock()) as ledger:
        ledger.upsert_hypotheses("camp", rows)  # type: ignore[arg-type]
        done = imported(ledger, folder / "plan.md", plans.export_plan(ledger, "camp"))
        assert (done.added, done.dropped, done.unread) == ([], [], [])
        for row in rows:
            assert ledger.todo_row("camp", row.id).as_hypothesis().changes == row.changes  # type: ignore[attr-defined]


def test_ranking_by_hand_asks_for_a_decision_and_holds(story: Story, clock: Clock) -> None:
    """The row goes first, the decision says why and by whom, later rankings keep it until it is taken back."""
    ledger = story.ledger
    row, decision = todo.rank_by_hand(ledger, "camp", "tree", "the vendor says so", finding_ids=[])
    assert [r.id for r in ledger.todo("camp")] == ["tree", "fewer-channels"]
    assert row.decision_id == decision.id and "the vendor says so" in decision.text and "@" in decision.author
    assert row.reason.startswith("ranked by hand")
    for seconds in (3, 100_000):  # what an experiment costs changes all scores, and not who is first
        experiment = story.begin(None)
        arm = ledger.start_arm(experiment.id, "treatment", changes=[])
        clock.skip(seconds)
        ledger.end_arm(arm.id)
        ledger.end_experiment(experiment.id, "done", None)
        todo.rerank(ledger, "camp")
        assert ledger.todo("camp")[0].id == "tree"
    before, _ = todo.rank_by_hand(ledger, "camp", "fewer-channels", "first", before="tree")
    assert before.pin == pytest.approx((row.pin or 0) + todo.ABOVE)
    assert [r.id for r in ledger.todo("camp")] == ["fewer-channels", "tree"]
    assert todo.rank_by_reckoning(ledger, "camp", "tree", "no news").pin is None
    assert [e.phase for e in ledger.events() if e.data.get("who")] == ["decision"] * 3


def test_a_dropped_row_says_why_and_can_be_taken_up(story: Story) -> None:
    """The reason is in the row, and in a decision."""
    row = todo.drop_row(story.ledger, "camp", "tree", "not on this host")
    assert (row.status, row.reason) == ("skipped", "dropped: not on this host (decision 1)")
    assert todo.view_todo(story.ledger, "camp").standings[-1].sentence == row.reason
    assert todo.take_up(story.ledger, "camp", "tree", "a new host").status == "open"
    with pytest.raises(UsageError, match="no hypothesis 'tre'"):
        todo.drop_row(story.ledger, "camp", "tre", "x")


def test_a_closed_family_is_announced_with_what_its_members_share(story: Story) -> None:
    """All members failed under the same driver; the family that comes next is named."""
    ledger = story.ledger
    facts = {"driver": "580", "link": "PCIe"}
    for name, more in (("fewer-channels", {}), ("tree", {"torch": "2"})):
        story.finish(story.begin(name), Conclusion(verdict=Verdict.crashed, closes=True, depends_on=facts | more))
        ledger.set_status("camp", name, "done")
    todo.add_row(ledger, "camp", hypothesis("ep", family="fewer-calls"))
    [closed] = todo.view_todo(ledger, "camp").families
    assert "family nccl is closed" in closed.sentence
    assert "all of them depend on driver 580, link PCIe" in closed.sentence
    assert closed.sentence.endswith("next family: fewer-calls")


def test_a_diff_cannot_be_added_without_a_playbook(story: Story) -> None:
    """Its file would be read from nowhere."""
    with pytest.raises(UsageError, match="only a playbook can carry"):
        todo.add_row(story.ledger, "camp", hypothesis("p", changes=[{"patch": "a.patch"}]))
