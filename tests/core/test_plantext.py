"""A plan in Markdown: what people wrote comes back as they wrote it, whatever became of its items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.plantext import MARK, Outcome, new_item, read_plan, without_ours, write_plan

PLAN = """# Faster verify pass

Some prose by hand.

## Family: tune-nccl

- [ ] fewer-channels: fewer NCCL channels lower the latency
  - expect: 5%
  - After: fusion, tree
  - change: NCCL_MAX_NCHANNELS=2
  We saw this **once**, on a Tuesday.

  ```yaml
  context: plain
  ```
* [X] `tree`: the tree algorithm
- [ ] ask somebody about MSCCL++

## Other things

- [-] ep: expert parallelism

```
- [ ] not-an-item: this is code
```
"""

NAMES = st.sampled_from(["a", "tree", "ep-8", "x.y"])
BULLETS = st.sampled_from(["- ", "* ", " + "])
ODD = [
    "", "  prose", "## Family: f", "## Other", "  ```yaml", "  ```", "```", "~~~", "\tchanges: []", "  - why: x", "- b",
    f"  - result {MARK}", "   - [ ] a: nested", "- [ ] no id here", "-  [ ] x: y",
]  # fmt: skip
LINES = st.one_of(
    st.builds("{}[{}] {}: {}".format, BULLETS, st.sampled_from(" xX~-"), NAMES, st.text(max_size=9)),
    st.sampled_from(ODD),
    st.text(max_size=12),
)
PLANS = st.builds(lambda lines, end: end.join(lines), st.lists(LINES, max_size=14), st.sampled_from(["\n", "\r\n"]))
OUTCOMES = st.dictionaries(
    NAMES, st.builds(Outcome, st.sampled_from(" x~-"), st.sampled_from(["", "**crashed**: x", "open"]))
)


def bare(text: str) -> list[str]:
    """Lines without ours, boxes blanked."""
    items = {item.line for item in read_plan(text).items}
    return [
        line.replace(f"[{line.split('[', 1)[1][0]}]", "[ ]", 1) if number in items else line
        for number, line in enumerate(text.split("\n"), start=1)
    ]


def test_a_plan_is_read() -> None:
    """Ids, claims, boxes, fields with their lines, the family above, the fenced block; code is no item."""
    plan = read_plan(PLAN)
    assert [(i.id, i.box, i.family) for i in plan.items] == [
        ("fewer-channels", " ", "tune-nccl"), ("tree", "X", "tune-nccl"), ("ep", "-", "")
    ]  # fmt: skip
    first = plan.items[0]
    assert first.claim == "fewer NCCL channels lower the latency"
    assert first.fields == (("expect", "5%", 8), ("after", "fusion, tree", 9), ("change", "NCCL_MAX_NCHANNELS=2", 10))
    assert (first.yaml.strip(), first.yaml_line) == ("context: plain", 13)
    assert plan.unread == ((17, "- [ ] ask somebody about MSCCL++"),)


def test_what_became_of_an_item_stands_below_it() -> None:
    """One line of ours at the end of the item, its box ticked; written again, it is replaced."""
    once = write_plan(PLAN, {"fewer-channels": Outcome("x", "**crashed**")})
    assert f"  ```\n  - **crashed** {MARK}\n* [X]" in once
    assert "- [x] fewer-channels" in once
    again = write_plan(once, {"fewer-channels": Outcome(" ", "open again")})
    assert again.count(MARK) == 1 and "- [ ] fewer-channels" in again


@given(PLANS, OUTCOMES, OUTCOMES)
def test_nothing_that_people_wrote_is_lost(text: str, first: dict[str, Outcome], second: dict[str, Outcome]) -> None:
    """For any text: without outcomes nothing changes; with them only boxes and our lines do; exports do not add up."""
    clean = without_ours(text)
    assert without_ours(clean) == clean == write_plan(clean, {})
    once = write_plan(clean, first)
    assert bare(without_ours(once)) == bare(clean)
    assert write_plan(once, first) == once
    assert bare(without_ours(write_plan(once, second))) == bare(clean)
    assert [(i.id, i.claim, i.fields and i.fields[0][1], i.yaml) for i in read_plan(once).items] == [
        (i.id, i.claim, i.fields and i.fields[0][1], i.yaml) for i in read_plan(clean).items
    ]


@given(NAMES, st.text(max_size=30), st.text(max_size=30))
def test_an_item_of_ours_reads_back(name: str, claim: str, why: str) -> None:
    """What is written for a row that nobody wrote by hand can be imported again."""
    [item] = read_plan(new_item(name, claim, [("why", why)], "changes:\n- env: {A: '1'}\n")).items
    assert (item.id, item.claim) == (name, " ".join(claim.split()))
    assert [value for key, value, _ in item.fields if key == "why"] == (
        [" ".join(why.split())] if why.split() else [""] if why else []
    )
    assert item.yaml.splitlines() == ["  changes:", "  - env: {A: '1'}"]
