"""Every mistake is named in plain words at its line and column, with what to do about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import PlaybookError, Problem
from orchestrator.playbook import check, load

Write = Callable[..., Path]

HEAD = """\
campaign: c
hosts: {g: {target: t}}
targets: {t: {args: {tp-size: 8}, env: {A: '1'}}}
"""
HYPOTHESES = "hypotheses:\n- {id: a, claim: x, changes: [{env: {B: 1}}]}\n"


def one(body: str) -> str:
    """A playbook whose one hypothesis has these lines below its id, the first of them in line 6."""
    lines = [f"  {line}" for line in body.strip("\n").split("\n")]
    return HEAD + "hypotheses:\n- id: a\n" + "\n".join(lines) + "\n"


CHANGE = "  claim: x\n  changes: [{env: {B: 1}}]\n"

CASES: dict[str, tuple[str, str, str, str]] = {
    # name: (playbook, line:column, part of the complaint, part of the hint)
    "unknown key": (HEAD + "mesure: {}\n" + HYPOTHESES, "4:1", "unknown key `mesure`", "did you mean `measure`?"),
    "unknown key, nothing near": (HEAD + "zzz: 1\n" + HYPOTHESES, "4:1", "`zzz`", "keys here: campaign, description"),
    "dash for underscore": (HEAD + "measure: {min-effect: 2%}\n" + HYPOTHESES, "4:11", "min-effect", "`min_effect`"),
    "unknown key, deep": (
        "campaign: c\nhosts:\n  g:\n    target: {}\n    rote: local\n" + HYPOTHESES,
        "5:5", "unknown key `rote`", "`route`",
    ),
    "missing in a hypothesis": (one("changes: [{env: {B: 1}}]"), "5:3", "`claim` is missing", "one sentence"),
    "missing at the top": ("hosts: {g: {target: {}}}\n" + HYPOTHESES, "1:1", "`campaign` is missing", "the name"),
    "no value": (one("claim:\nchanges: [{env: {B: 1}}]"), "6:3", "`claim` has no value; it must be text", ""),
    "context without value": (HEAD + "contexts:\n  plain:\n" + HYPOTHESES, "5:3", "must be a mapping", "write {}"),
    "number for text": (one("claim: 0x1F\nchanges: [{env: {B: 1}}]"), "6:10", "not the number 31", '"0x1F"'),
    "text for number": (HEAD + "workload: {warmup: some}\n" + HYPOTHESES, "4:20", "a whole number", ""),
    "fraction for number": (HEAD + "workload: {warmup: 1.5}\n" + HYPOTHESES, "4:20", "a whole number", ""),
    "text for truth": (
        "campaign: c\nhosts: {g: {target: {}, write: maybe}}\n" + HYPOTHESES,
        "2:32", "`write` must be true or false", "",
    ),
    "text for list": (one("claim: x\nchanges: [{env: {B: 1}}]\nrequires: {files: b}"), "8:21", "must be a list", "[b]"),
    "mapping for list": (one("claim: x\nchanges: {env: {B: 1}}"), "7:12", "`changes` must be a list", "dash"),
    "list for mapping": (HEAD + "measure: [a]\n" + HYPOTHESES, "4:10", "`measure` must be a mapping", ""),
    "too small": (HEAD + "measure: {launches: 0}\n" + HYPOTHESES, "4:21", "at least 1", ""),
    "too large": ("campaign: c\nhosts: {g: {target: {port: 65536}}}\n" + HYPOTHESES, "2:28", "at most 65535", ""),
    "bare duration": (HEAD + "lease: 30\n" + HYPOTHESES, "4:8", "30 is not a duration", ""),
    "bare fraction": (HEAD + "lease: 0.5\n" + HYPOTHESES, "4:8", "0.5 is not a duration", ""),
    "bare percentage": (HEAD + "measure: {min_effect: 0.02}\n" + HYPOTHESES, "4:23", "not a percentage", ""),
    "no lease": (HEAD + "lease: 0s\n" + HYPOTHESES, "4:8", "`lease` must be more than nothing", ""),
    "choice": (HEAD + "measure: {metric: output-tps}\n" + HYPOTHESES, "4:19", "must be output_tps", "`output_tps`"),
    "choice or list": (
        "campaign: c\nhosts: {g: {target: {}, reap: all}}\n" + HYPOTHESES,
        "2:31", "ours, engine or a list", "ours",
    ),
    "item of a list": (
        "campaign: c\nhosts: {g: {target: {}, reap: [1, x]}}\n" + HYPOTHESES,
        "2:35", "`reap[1]` must be a whole number", "",
    ),
    "name": ("campaign: my campaign\n" + HEAD[12:] + HYPOTHESES, "1:11", "'my campaign' is not a name", "letter"),
    "name as a key": ("campaign: c\nhosts: {g g: {target: {}}}\n" + HYPOTHESES, "2:9", "is not a name", "letter"),
    "variable": (one("claim: x\nchanges: [{env: {1B: x}}]"), "7:20", "not the name of a variable", "digits"),
    "truth as a variable's value": (one("claim: x\nchanges: [{env: {B: true}}]"), "7:23", "as text", ""),
    "mode": (
        one("claim: x\nchanges: [{file: {path: p, content: x, mode: '0999'}}]"), "7:48", "not a file mode", "octal",
    ),
    "no such kind": (one("claim: x\nchanges: [{flags: {B: 1}}]"), "7:14", "`flags` is no kind of change", "`args`"),
    "near kind": (one("claim: x\nchanges: [{patches: x}]"), "7:14", "`patches` is no kind of change", "`patch`"),
    "two kinds in one change": (
        one("claim: x\nchanges:\n- env: {B: 1}\n  args: {b: 1}"), "9:5", "one change has one kind", "`- args:`",
    ),
    "change beside changes": (one("claim: x\nenv: {B: 1}\nchanges: [{env: {B: 1}}]"), "7:3", "not stand", "`changes:`"),
    "change that is text": (one("claim: x\nchanges: [x.diff]"), "7:13", "a mapping with one key", "kinds of change"),
    "kinds without bundle": (one("claim: x\nchanges: [{env: {B: 1}}, {args: {b: 1}}]"), "5:3", "several kinds", ""),
    "no changes": (one("claim: x\nchanges: []"), "7:12", "`changes` is empty", "entry"),
    "empty patch": (one("claim: x\nchanges: [{patch: {}}]"), "7:21", "`files` or `edits`", ""),
    "two contents": (
        one("claim: x\nchanges: [{file: {path: p, content: x, delete: true}}]"), "7:20", "exactly one of", "",
    ),
    "quote in a hop": (
        'campaign: c\nhosts: {g: {target: {}, route: {hops: ["pct \'x"]}}}\n' + HYPOTHESES, "2:40", "quote", "",
    ),
    "empty hop": (
        'campaign: c\nhosts: {g: {target: {}, route: {hops: [""]}}}\n' + HYPOTHESES, "2:40", "`hops[0]` is empty", "",
    ),
    "launch of another engine": (
        "campaign: c\nhosts: {g: {target: {launch: [x]}}}\n" + HYPOTHESES, "2:21", "belongs to engine", "",
    ),
    # references
    "same id": (HEAD + HYPOTHESES + HYPOTHESES.split("\n")[1] + "\n", "6:8", "two hypotheses are called `a`", "line 5"),
    "unknown predecessor": (
        HEAD + HYPOTHESES + "- id: beta\n" + CHANGE + "- id: d\n" + CHANGE + "  after: [beto]\n",
        "12:11", "no hypothesis `beto`", "`beta`",
    ),
    "waits for itself": (one("claim: x\nafter: [a]\nchanges: [{env: {B: 1}}]"), "7:11", "waits for itself", ""),
    "cycle": (
        HEAD + "hypotheses:\n- id: p\n  after: [q]\n" + CHANGE + "- id: q\n  after: [p]\n" + CHANGE,
        "6:10", "p ← q ← p", "remove one",
    ),
    "unknown context": (
        HEAD + "contexts: {plain: {}, speculative: {}}\n"
        + "hypotheses:\n- {id: a, claim: x, context: [plain, specultive], changes: [{env: {B: 1}}]}\n",
        "6:38", "no context `specultive`", "`speculative`",
    ),
    "unknown host": ("host: gpu2\ncampaign: c\nhosts: {gpu1: {target: {}}}\n" + HYPOTHESES, "1:7", "`gpu2`", "`gpu1`"),
    "unknown target": (
        "campaign: c\nhosts: {g: {target: kimmi}}\ntargets: {kimi: {}}\n" + HYPOTHESES, "2:21", "`kimmi`", "`kimi`",
    ),
    "several hosts": ("campaign: c\nhosts: {g: {target: {}}, h: {target: {}}}\n" + HYPOTHESES, "", "say which", "g, h"),
    "no host": ("campaign: c\n" + HYPOTHESES, "", "no host to run on", "hosts.yaml"),
    # settings
    "dashes": (one("claim: x\nchanges: [{args: {--ep-size: 8}}]"), "7:21", "without its dashes", "`ep-size:`"),
    "value in a flag": (one("claim: x\nchanges: [{args: {ep-size=8: true}}]"), "7:21", "not the name", "colon"),
    "two machines": (one("claim: x\nchanges: [{args: {nnodes: 2}}]"), "7:29", "one controller tunes one host", ""),
    "two machines, dashed text": (
        one("claim: x\nchanges: [{args: {--nnodes: '2'}}]"), "7:31", "one controller tunes one host", "",
    ),
    "two machines, target": (
        "campaign: c\nhosts: {g: {target: {args: {nnodes: 4}}}}\n" + HYPOTHESES, "2:37", "cover one machine", "",
    ),
    "two machines, context": (
        HEAD + "contexts: {plain: {args: {node_rank: 1}}}\n" + HYPOTHESES, "4:38", "cover one machine", "",
    ),
    "two machines, command": (
        "campaign: c\nhosts: {g: {target: {engine: command, launch: [x, --nnodes, '2']}}}\n" + HYPOTHESES,
        "2:51", "`nnodes: 2` spans machines", "",
    ),
    "no change, flag": (one("claim: x\nchanges: [{args: {tp-size: '8', a: null}}]"), "7:12", "changes nothing", ""),
    "no change, variable": (one("claim: x\nchanges: [{env: {A: 1}}]"), "7:12", "changes nothing", "other values"),
    "no change, edit": (
        one("claim: x\nchanges: [{patch: {edits: [{file: f, find: q, replace: q}]}}]"), "7:58", "changes nothing", "",
    ),
    "set twice": (one("claim: x\nchanges: [{env: {B: 1}}, {env: {B: 2}}]"), "7:35", "`B` is set twice", ""),
    "time that shall rise": (HEAD + "measure: {metric: ttft_ms}\n" + HYPOTHESES, "4:19", "less is better", "lower"),
    "edit leaves the tree": (
        one("claim: x\nchanges: [{patch: {edits: [{file: ../f, find: q, replace: r}]}}]"), "7:37", "climbs out", "",
    ),
    "edit of an absolute path": (
        one("claim: x\nchanges: [{patch: {edits: [{file: /f, find: q, replace: r}]}}]"), "7:37", "is absolute", "",
    ),
    "file leaves the tree": (
        one("claim: x\nchanges: [{file: {path: a/../../b, content: x}}]"), "7:27", "climbs out", "",
    ),
    "no condition": (
        one("claim: x\nrequires: {packages: {x: '>=3, 2.0'}}\nchanges: [{env: {B: 1}}]"), "7:28", "'2.0' is not", "",
    ),
    "no capability": (
        one("claim: x\nrequires: {gpu_arch: [hopper]}\nchanges: [{env: {B: 1}}]"), "7:25", "compute capability", "12.0",
    ),
    "no such patch": (one("claim: x\nchanges: [{patch: no.diff}]"), "7:21", "no.diff does not exist", ""),
    "no such source": (one("claim: x\nchanges: [{file: {path: p, from: no.txt}}]"), "7:36", "no.txt does not", ""),
    "patch is a folder": (one("claim: x\nchanges: [{patch: [.]}]"), "7:22", "is a directory", ""),
    # YAML
    "tab": ("campaign: c\nhosts:\n\tg: 1\n", "3:1", "a tab", "blanks"),
    "given twice": (HEAD + HYPOTHESES + "campaign: d\n", "6:1", "`campaign` is given twice", "line 1"),
    "colon in a value": ("campaign: a: b\n", "1:12", "a colon", "quote"),
    "open bracket": ("campaign: [a\n", "1:13", "not closed", "]"),
    "open quote": ("campaign: 'a\n", "1:13", "a quote is not closed", ""),
    "wrong indentation": ("hosts:\n  a: 1\n b: 2\n", "3:2", "indentation", ""),
    "list behind a key": ("a: - b\n", "1:4", "a list item", "a line of its own"),
    "first line indented": ("  a: 1\nb: 2\n", "2:1", "does not belong", "indentation"),
    "block that is uneven": ("a: |\n \n     \n  b\n", "", "after | or >", ""),
    "no colon": ("campaign: c\nhosts\nlease: 1m\n", "2:1", "a line without a colon", "`key: value`"),
    "unknown alias": ("campaign: *c\n", "1:11", "anchored as &c", ""),
    "tag": ("campaign: !!python/name:os.system c\n" + HEAD[12:] + HYPOTHESES, "1:11", "the tag", "plain"),
    "two documents": (HEAD + HYPOTHESES + "---\na: 1\n", "6:1", "a second document", "one file"),
    "a list": ("- campaign\n", "1:1", "must be a mapping", ""),
    "a word": ("campaign\n", "1:1", "must be a mapping", ""),
    "control character": ("campaign: a\x07\n", "1:12", "U+0007", "escape"),
    "NUL by escape": (one('claim: "a\\0"\nchanges: [{env: {B: 1}}]'), "6:10", "NUL", ""),
    "half a pair": (one('claim: "\\ud800"\nchanges: [{env: {B: 1}}]'), "6:10", "surrogate", ""),
    "beyond Unicode": ('campaign: "\\U00110000"\n', "", "not valid YAML", ""),
    "anchors without end": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{c}: &{c} [{','.join(['*' + p] * 10)}]\n" for p, c in zip("abcde", "bcdef", strict=True)),
        "", "too many values", "",
    ),
    "deep": ("a: " + "[" * 70 + "]" * 70, "1:64", "nested too deeply", ""),
}  # fmt: skip


def _position(problem: Problem) -> str:
    assert problem.where
    return ":".join(str(n) for n in (problem.where.line, problem.where.column) if n is not None)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_mistake_is_named_at_its_place(case: tuple[str, str, str, str], write: Write) -> None:
    """The complaint, its hint and its place are there, and the line that is shown is that line of the file."""
    text, position, what, hint = case
    path = write(text)
    problems = check(path)
    found = [p for p in problems if what in p.what]
    assert found, [p.what for p in problems]
    assert hint in (found[0].hint or "")
    if position:
        assert _position(found[0]) == position
        assert found[0].where and found[0].where.text == text.split("\n")[int(position.split(":")[0]) - 1]


ALONE = set(CASES) - {
    "two machines, dashed text",  # the dashes are complained about too
    "anchors without end",
    "tag",
}


@pytest.mark.parametrize("name", sorted(ALONE))
def test_mistake_is_named_once(name: str, write: Write) -> None:
    """One mistake is one problem: nothing that only follows from it is reported."""
    problems = check(write(CASES[name][0]))
    assert len(problems) == 1, [(str(p.where), p.what) for p in problems]


def test_load_raises_all_problems(write: Write) -> None:
    """`load` raises what `check` returns, every problem in it, in the order of the file."""
    path = write(HEAD + "lease: 30\nmesure: {}\n" + HYPOTHESES.replace("B: 1", "1B: 1"))
    with pytest.raises(PlaybookError) as caught:
        load(path)
    assert list(caught.value.problems) == check(path)
    assert [_position(p) for p in caught.value.problems] == ["4:8", "5:1", "7:38"]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"---\n", "is empty"),
        (b"campaign: \xff\n", "is not UTF-8: byte 0xff at offset 10"),
        (b"\x7fELF\x00\x00", "is not text: it holds NUL bytes"),
        (b"a: " + b"x" * (1 << 20), "is larger than 1 MiB"),
    ],
)
def test_unreadable_content(content: bytes, what: str, write: Write) -> None:
    """Bytes that are no playbook at all are refused with the reason."""
    assert [what in p.what for p in check(write(content))] == [True]


def test_no_such_file(tmp_path: Path) -> None:
    """A missing playbook, a directory, a pipe and an impossible name are problems, and none blocks."""
    os.mkfifo(tmp_path / "pipe")
    said = [check(p)[0].what for p in (tmp_path / "no.yaml", tmp_path, tmp_path / "pipe", Path("a\0b"))]
    for what, part in zip(said, ["does not exist", "a directory", "not a regular file", ""], strict=True):
        assert part in what


def test_unreadable_file(write: Write, smallest: str) -> None:
    """A file without permission is a problem with the system's reason."""
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    path = write(smallest)
    path.chmod(0)
    assert "Permission denied" in check(path)[0].what


def test_secrets_are_not_shown(write: Write) -> None:
    """A complaint about a line with a secret shows neither the line's secret nor repeats it elsewhere."""
    text = HEAD + "hypotheses:\n- {id: a, claim: x, changes: [{env: {HF_TOKEN: hf_12345, 1B: hf_12345}}]}\n"
    broken = "env: {HF_TOKEN: hf_12345\n  x\n"
    marked = "campaign: c\nhosts: {g: {target: {secrets: [MINE], env: {MINE: s3same}, cwd: [s3same]}}}\n" + HYPOTHESES
    for content in (text, broken, marked):
        problems = check(write(content))
        assert problems
        assert "hf_12345" not in repr(problems)
        assert "s3same" not in repr(problems)


def test_problems_in_an_inventory_name_its_file(write: Write) -> None:
    """A mistake in hosts.yaml points into hosts.yaml."""
    inventory = write("hosts:\n  g:\n    target: kimmi\n    rout: local\ntargets: {kimi: {}}\n", "campaigns/hosts.yaml")
    problems = check(write("campaign: c\n" + HYPOTHESES))
    assert [(str(p.where), p.hint) for p in problems] == [
        (f"{inventory}:3:13", "did you mean `kimi`?"),
        (f"{inventory}:4:5", "did you mean `route`?"),
    ]


def test_diff_that_leaves_the_tree(write: Write) -> None:
    """A diff whose paths climb out or are absolute is refused in the diff's own line."""
    path = write(HEAD + "hypotheses:\n- {id: a, claim: x, changes: [{patch: [up.diff, abs.diff, text.diff]}]}\n")
    body = "@@ -1 +1 @@\n-x\n+y\n"
    up = write(f"--- a/../x\n+++ b/../x\n{body}", "campaigns/up.diff")
    absolute = write(f"--- /etc/x\n+++ /etc/x\n{body}", "campaigns/abs.diff")
    text = write("nothing\n", "campaigns/text.diff")
    problems = check(path)
    assert {p.where.file for p in problems if p.where} == {str(up), str(absolute), str(text)}


def test_link_that_leads_out(write: Write, tmp_path: Path, diff: bytes) -> None:
    """A diff behind a link is refused where the link leaves the folder its name points to, else read."""
    outside = write(diff, "outside/x.diff")
    near = write(diff, "campaigns/v2.diff")
    beside = write(diff, "patches/x.diff")
    (near.parent / "out.diff").symlink_to(outside)
    (near.parent / "latest.diff").symlink_to(near)
    (tmp_path / "campaigns" / "loop.diff").symlink_to(tmp_path / "campaigns" / "loop.diff")
    line = "- {{id: a, claim: x, changes: [{{patch: {}}}]}}\n"

    def problems(name: object) -> list[str]:
        return [p.what for p in check(write(HEAD + "hypotheses:\n" + line.format(name)))]

    assert "is a symbolic link to" in problems("out.diff")[0]
    assert len(problems("loop.diff")) == 1
    assert problems("latest.diff") == problems("../patches/x.diff") == problems(beside) == []
