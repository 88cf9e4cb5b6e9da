"""A right playbook becomes a campaign: its inventory, its host, its files, its values as they were written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.model import ArgsChange, EnvChange, Inventory, Playbook, SshHop
from orchestrator.errors import PlaybookError
from orchestrator.playbook import check, load, load_inventory

Write = Callable[..., Path]

BARE = "campaign: c\nhypotheses:\n- {id: a, claim: x, changes: [{env: {A: 1}}]}\n"


def inventory(host: str, port: int = 1) -> str:
    return f"hosts: {{{host}: {{target: t}}}}\ntargets: {{t: {{port: {port}}}}}\n"


def test_smallest(write: Write, smallest: str) -> None:
    """The smallest playbook loads with the documented defaults."""
    path = write(smallest)
    loaded = load(path)
    assert (loaded.host_name, loaded.target.port, loaded.inventory_origin) == ("gpu1", 30000, "playbook")
    assert loaded.host.route.is_local
    assert loaded.playbook.lease == 600.0
    assert loaded.playbook.measure.min_effect == 0.02
    assert loaded.path == path
    assert not loaded.texts


def test_inventory_precedence(write: Write, tmp_path: Path) -> None:
    """Named file, own hosts, file beside, file here, last seen: each wins over those after it."""
    last = Inventory.model_validate({"hosts": {"last": {"target": {}}}})
    own = write(BARE + inventory("own"), "campaigns/own.yaml")
    bare = write(BARE)
    named, here = write(inventory("named"), "named.yaml"), write(inventory("here"), "here/hosts.yaml")

    def chosen(path: Path, hosts_file: Path | None = None) -> tuple[str, str]:
        loaded = load(path, hosts_file=hosts_file, cwd=here.parent, last_seen=last)
        return loaded.host_name, loaded.inventory_origin

    beside = write(inventory("beside"), "campaigns/hosts.yaml")
    assert chosen(own, named) == ("named", str(named))
    assert chosen(own) == ("own", "playbook")
    assert chosen(bare) == ("beside", str(beside))
    beside.unlink()
    assert chosen(bare) == ("here", str(here))
    here.unlink()
    assert chosen(bare) == ("last", "last seen")
    with pytest.raises(PlaybookError, match="no host to run on") as caught:
        load(bare, cwd=tmp_path)
    assert "hosts.yaml" in caught.value.problems[0].facts["looked in"]


def test_named_inventory_must_exist(write: Write, smallest: str, tmp_path: Path) -> None:
    """An inventory that was named and is missing is an error, not a reason to use another one."""
    with pytest.raises(PlaybookError, match=r"other\.yaml does not exist"):
        load(write(smallest), hosts_file=tmp_path / "other.yaml")


def test_targets_join(write: Write) -> None:
    """The playbook's targets join those of an inventory: they win over a file found, not over a file named."""
    path = write(BARE + "targets: {t: {port: 7}, u: {port: 8}}\n")
    beside = write(inventory("g", 9), "campaigns/hosts.yaml")
    assert load(path).target.port == 7
    assert load(path, hosts_file=beside).target.port == 9
    assert set(load(path).inventory.targets) == {"t", "u"}


def test_host_choice(write: Write) -> None:
    """The argument wins over the playbook's `host`, which chooses among several."""
    hosts = "hosts: {g1: {target: {port: 1}}, g2: {target: {port: 2}}}\n"
    path = write(BARE + "host: g2\n" + hosts)
    assert load(path).target.port == 2
    assert load(path, host="g1").target.port == 1
    with pytest.raises(PlaybookError, match="there is no host `g3`") as caught:
        load(path, host="g3")
    assert caught.value.problems[0].facts["hosts"] == "g1, g2"
    with pytest.raises(PlaybookError, match="several hosts"):
        load(write(BARE + hosts))


def test_load_inventory(write: Write) -> None:
    """An inventory by itself loads, hops as text, words and ssh included, and complains about unknown targets."""
    path = write(
        "hosts:\n  g:\n    target: t\n    route:\n      ssh: root@hv\n"
        "      hops: [pct exec 129 --, [docker, exec, -i, a b], {ssh: in, options: [-p, '22']}]\ntargets: {t: {}}\n",
        "hosts.yaml",
    )
    hops = load_inventory(path).hosts["g"].route.hops
    assert hops == (
        ("pct", "exec", "129", "--"),
        ("docker", "exec", "-i", "a b"),
        SshHop(ssh="in", options=("-p", "22")),
    )
    with pytest.raises(PlaybookError, match="there is no target `t`"):
        load_inventory(write("hosts: {g: {target: t}}\n", "bad.yaml"))


def test_texts_and_digest(write: Write, smallest: str, diff: bytes) -> None:
    """Files are read under the names the playbook gives them; the digest changes with any byte of them."""
    write(diff, "patches/a.diff")
    source = write(b"\x00\xff", "campaigns/blob.bin")
    path = write(
        smallest + "  - {id: b, claim: x, bundle: y, changes: [{patch: ../patches/a.diff},"
        " {patch: {files: [../patches/a.diff]}}, {file: {path: /etc/x, from: blob.bin}}]}\n"
    )
    before = load(path)
    assert dict(before.texts) == {"../patches/a.diff": diff, "blob.bin": b"\x00\xff"}
    assert load(path).digest == before.digest
    source.write_bytes(b"\x00\xfe")
    assert load(path).digest != before.digest
    source.write_bytes(b"\x00\xff")
    path.write_text(path.read_text() + "# a comment\n")
    assert load(path).digest != before.digest


def test_loaded_is_frozen(write: Write, smallest: str) -> None:
    """What was loaded cannot be changed behind its digest."""
    loaded = load(write(smallest))
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.digest = ""  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.texts["x"] = b""  # type: ignore[index]


def test_flag_values_as_written(write: Write, smallest: str) -> None:
    """Quotes, blanks, JSON, lists, truth and null reach the model as they were meant, and survive its own JSON."""
    flags = """\
          text: it's "quoted" and $HOME
          json: {"a": "b c", "d": [1, 2.5, true, null], "e": {"f": 'g"h'}}
          list: [1, two, "3 4"]
          bare: true
          gone: null
          off: false
          word: no
          number: 0.80
          zeros: 0012
          big: 1e999
          text-of-number: "8"
"""
    path = write(smallest.replace("- env: {A: 1}", "- args:\n" + flags.rstrip()))
    change = load(path).playbook.hypotheses[0].changes[0]
    assert isinstance(change, ArgsChange)
    assert change.args == {
        "text": 'it\'s "quoted" and $HOME',
        "json": {"a": "b c", "d": [1, 2.5, True, None], "e": {"f": 'g"h'}},
        "list": [1, "two", "3 4"],
        "bare": True, "gone": None, "off": False, "word": "no",
        "number": 0.8, "zeros": "0012", "big": "1e999", "text-of-number": "8",
    }  # fmt: skip
    assert {name: type(value) for name, value in change.args.items()}["number"] is float
    assert ArgsChange.model_validate_json(change.model_dump_json()) == change


def test_environment_is_text_as_written(write: Write, smallest: str) -> None:
    """Numbers in an environment keep every digit they were written with; null unsets."""
    path = write(smallest.replace("{A: 1}", "{A: 010, B: 1.10, C: 1_000, D: 0x1F, E: null, F: no, G: ' x '}"))
    change = load(path).playbook.hypotheses[0].changes[0]
    assert isinstance(change, EnvChange)
    assert change.env == {"A": "010", "B": "1.10", "C": "1_000", "D": "0x1F", "E": None, "F": "no", "G": " x "}


def test_playbook_survives_json(write: Write, smallest: str) -> None:
    """A loaded playbook written as JSON is read back equal, durations and percentages included."""
    playbook = load(write(smallest + "lease: 1h30m\nmeasure: {min_effect: 0.5%}\n")).playbook
    assert (playbook.lease, playbook.measure.min_effect) == (5400.0, 0.005)
    assert Playbook.model_validate_json(playbook.model_dump_json(by_alias=True)) == playbook


@pytest.mark.parametrize(
    "change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: t.rstrip("\n")]
)
def test_files_of_other_editors(change: Callable[[str], str], write: Write, smallest: str) -> None:
    """A byte order mark, CRLF line ends and a missing last line end make no difference."""
    assert load(write(change(smallest))).playbook == load(write(smallest, "campaigns/q.yaml")).playbook


def test_anchors_and_merges(write: Write, smallest: str) -> None:
    """`<<` takes what is not written beside it; an alias is the same value again."""
    path = write(
        smallest.replace(
            "t: {}", "base: &base {port: 1, model: m, args: &flags {a: 1}}\n  t: {<<: *base, port: 2, env: *flags}"
        )
    )
    target = load(path).target
    assert (target.port, target.model, target.args, target.env) == (2, "m", {"a": 1}, {"a": "1"})


def test_effect_is_judged_in_its_contexts(write: Write) -> None:
    """A value that only one of the contexts already has is a change in the other one."""
    head = "campaign: c\nhosts: {g: {target: {}}}\ncontexts: {plain: {}, fast: {args: {n: 3}}}\n"
    row = "hypotheses:\n- {{id: a, claim: x, context: {}, changes: [{{args: {{n: 3}}}}]}}\n"
    load(write(head + row.format("[plain, fast]")))
    with pytest.raises(PlaybookError, match="changes nothing"):
        load(write(head + row.format("fast")))


def test_playbook_without_a_host(write: Write, tmp_path: Path) -> None:
    """Where it shall run is a question of `load`; `check` can leave it out, yet not a wrong name."""
    path = write(BARE)
    assert len(check(path, cwd=tmp_path)) == 1
    assert check(path, cwd=tmp_path, needs_host=False) == []
    several = write(BARE + "hosts: {g: {target: {}}, h: {target: {}}}\n")
    assert check(several, needs_host=False) == []
    assert len(check(several, host="i", needs_host=False)) == 1
