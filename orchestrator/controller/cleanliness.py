"""Everything on a host that can carry state from one experiment to the next, each with its state and the evidence.

The judgements are pure: what the agent saw goes in, `Thing`s come out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.core import patching

Seen = Mapping[str, Any]
_SHOWN = 10

CACHE_PLACES = (
    "~/.triton", "~/.cache/flashinfer", "~/.cache/sglang", "~/.cache/deep_gemm", "~/.cache/tvm-ffi",
    "~/.cache/torch_extensions", "~/.cache/vllm", "~/.nv/ComputeCache", "/tmp/torchinductor_{user}",  # noqa: S108 - looked at
)  # fmt: skip
"""Where engines keep compiled kernels unless they are told otherwise; shared by everything of the account."""


class State(StrEnum):
    CLEAN = "clean"
    OURS = "ours"  # something of ours is still there
    FOREIGN = "foreign"  # it changed, and not by us
    NOTED = "noted"  # nobody's mistake, and worth knowing
    UNKNOWN = "unknown"  # could not be looked at


@dataclass(frozen=True)
class Thing:
    """One carrier of state. `sentence` is for a person, `evidence` the paths or pids behind it."""

    name: str
    state: State
    sentence: str
    evidence: tuple[str, ...] = ()


def judge_tree(proof: Seen | None, journal_is_open: bool, source: str, guarded: Sequence[str]) -> list[Thing]:
    """Source tree, and guarded paths apart. Without a manifest as found the journal decides."""
    if proof is None:
        if journal_is_open:
            return [Thing("source tree", State.OURS, "a change of ours is open in the journal")]
        sentence = "no manifest as found is stored; the journal knows of no change of ours that is open"
        return [Thing("source tree", State.CLEAN, sentence)]
    inside: list[Seen] = []
    beside: list[Seen] = []
    for difference in proof["differences"]:
        (beside if difference["path"] in guarded else inside).append(difference)
    things = [_judge_differences("source tree", inside, f"{proof['files']} files as found", source)]
    if guarded:
        things.append(_judge_differences("guarded paths", beside, f"{len(guarded)} as found", ""))
    return things


def _judge_differences(name: str, differences: Sequence[Seen], well: str, source: str) -> Thing:
    if not differences:
        return Thing(name, State.CLEAN, well)
    ours = [d for d in differences if d["ours"]]
    shown = tuple(f"{d['what']} {_short(d['path'], source)}" for d in (ours or differences))
    if ours:
        return Thing(name, State.OURS, f"{len(ours)} path(s) of ours are not back", shown)
    return Thing(name, State.FOREIGN, f"{len(differences)} path(s) changed, none of them by us", shown)


def judge_site(contents: Mapping[str, bytes], state_dir: str | None) -> Thing:
    """sitecustomize and `.pth` files of the server's interpreter: blocks of ours, or lines that lead to us."""
    ours = [f"{path}: block {one}" for path, data in contents.items() for one in patching.marker_ids(data)]
    if state_dir is not None:
        needle = state_dir.encode("utf-8", "surrogateescape")
        ours += [f"{path}: names {state_dir}" for path, data in contents.items() if needle in data]
    if ours:
        return Thing("sitecustomize and .pth", State.OURS, "a block or a path of ours is in force", tuple(ours))
    return Thing("sitecustomize and .pth", State.CLEAN, f"{len(contents)} file(s) read, nothing of ours in them")


def judge_survey(survey: Seen) -> Iterator[Thing]:
    """What the agent found of ours: bytecode, leftovers of launches, processes, lease and journal."""
    home = survey["state_dir"]
    if home is None:
        yield Thing("lease and journal", State.CLEAN, "nothing of ours was ever kept for this tree")
    else:
        yield from _judge_bytecode(survey)
        yield _judge_journal(survey)
        yield _judge_stage(survey)
    alive = tuple(f"pid {one['pid']} of launch {one['launch_id']}" for one in survey.get("alive", ()))
    sentence = f"{len(alive)} process(es) of ours run" if alive else "none of ours runs"
    yield Thing("processes", State.OURS if alive else State.CLEAN, sentence, alive)
    yield _judge_leftovers("/tmp", survey["tmp"], bool(alive))  # noqa: S108 - a name to show
    yield _judge_leftovers("/dev/shm", survey["shm"], bool(alive))  # noqa: S108


def _judge_bytecode(survey: Seen) -> Iterator[Thing]:
    compiled = survey["pycache"]
    where = f"{survey['state_dir']}/pycache"
    sentence = f"{compiled['files']} compiled files ({compiled['bytes'] >> 10} KiB) in a prefix of ours"
    if compiled["stale"]:
        sentence += f"; {compiled['stale']} are of other versions of their source, and will not be used"
    yield Thing("bytecode", State.CLEAN if not compiled["files"] else State.NOTED, sentence, (where,))


def _judge_journal(survey: Seen) -> Thing:
    journal, lease = survey["journal"], survey["lease"]
    evidence = [f"epoch {journal['epoch']}, {journal['records']} records"]
    if lease is not None and lease["left_s"] > 0:
        evidence.append(f"held by {lease['holder']} ({lease['role']}) for another {lease['left_s']:.0f} s")
    if survey["guard"] is not None:
        evidence.append(f"guard: pid {survey['guard']}")
    if journal["open"]:
        sentence = f"change {journal['open']['txn']} is {journal['open']['state']}"
        return Thing("lease and journal", State.OURS, sentence, tuple(evidence))
    if journal["launch"]:
        sentence = f"launch {journal['launch']['launch_id']} is not ended"
        return Thing("lease and journal", State.OURS, sentence, tuple(evidence))
    if journal["shadow"]:
        sentence = f"a copy of the tree is left at {journal['shadow']}"
        return Thing("lease and journal", State.OURS, sentence, tuple(evidence))
    if journal["outcome"]:
        sentence = f"nothing is open; the guard left word: {journal['outcome']['kind']}"
        return Thing("lease and journal", State.NOTED, sentence, tuple(evidence))
    return Thing("lease and journal", State.CLEAN, "nothing is open", tuple(evidence))


def judge_service(survey: Seen, proof: Seen | None) -> Iterator[Thing]:
    """What served before we came: given back, and answering as it did."""
    journal = survey.get("journal") or {}
    if journal.get("service"):
        sentence = f"what served on port {journal['service']['port']} is stopped by us"
        yield Thing("service", State.OURS, sentence, (f"at {journal['service']['stage']}",))
        return
    seen = proof["service"] if proof is not None else None
    if seen is not None:
        state = State.CLEAN if seen["state"] == "same" else State.NOTED
        yield Thing("service", state, f"on port {seen['port']}: {seen['why']}", (f"pid {seen['pid'] or 'none'}",))


def _judge_stage(survey: Seen) -> Thing:
    if survey["kept_changes"]:  # whether there is more than these, the proof says
        sentence = f"the originals of what is kept ({', '.join(survey['kept_changes'])})"
        return Thing("staged files", State.NOTED, sentence, tuple(survey["stage"]))
    if survey["stage"] and not survey["journal"]["open"]:
        return Thing("staged files", State.OURS, "no open change explains them", tuple(survey["stage"]))
    if survey["kept"]:
        sentence = f"{len(survey['kept'])} file(s) that a release set aside"
        return Thing("staged files", State.NOTED, sentence, tuple(survey["kept"]))
    return Thing("staged files", State.CLEAN, "none")


def _judge_leftovers(name: str, seen: Sequence[Seen], is_running: bool) -> Thing:
    ours = tuple(str(one["path"]) for one in seen if one["ours"])
    if ours and not is_running:
        return Thing(name, State.OURS, f"{len(ours)} left by a launch of ours", ours[:_SHOWN])
    others = tuple(str(one["path"]) for one in seen if not one["ours"] and not one.get("held", False))
    if others:
        return Thing(name, State.NOTED, f"{len(others)} that look like an engine's, and nobody holds", others[:_SHOWN])
    return Thing(name, State.CLEAN, "nothing of ours")


def judge_port(port: int, processes: Iterable[Seen], run_ids: Iterable[str]) -> Thing:
    ours = set(run_ids)
    for process in processes:
        if port in process["listens"]:
            who = f"pid {process['pid']} of {process['user']}: {' '.join(process['cmdline'])[:120]}"
            if process["run_id"] in ours or process["descends_from_guard"]:
                return Thing("port", State.OURS, f"a server of ours answers on {port}", (who,))
            return Thing("port", State.NOTED, f"{port} is taken by a server that is not ours", (who,))
    return Thing("port", State.CLEAN, f"nobody listens on {port}")


def judge_memory(used_mib: Mapping[int, int], processes: Iterable[Seen], run_ids: Iterable[str]) -> Thing:
    """GPU memory: who holds the devices tells whose it is."""
    ours = set(run_ids)
    holding = [p for p in processes if p["devices"]]
    mine = tuple(f"pid {p['pid']}" for p in holding if p["run_id"] in ours or p["descends_from_guard"])
    amounts = ", ".join(f"GPU {index} {mib} MiB" for index, mib in sorted(used_mib.items())) or "not readable"
    if mine:
        return Thing("GPU memory", State.OURS, f"processes of ours hold GPUs; {amounts}", mine)
    if not used_mib:
        return Thing("GPU memory", State.UNKNOWN, "no GPU told how much of its memory is in use")
    others = tuple(f"pid {p['pid']} of {p['user']}" for p in holding)
    state = State.NOTED if others else State.CLEAN
    return Thing("GPU memory", state, f"in use: {amounts}; none of it by us", others)


def judge_caches(present: Sequence[str], own_roots: Sequence[str]) -> Thing:
    """Compile caches: those of a treatment's own must be gone, the shared ones are named."""
    if own_roots:
        return Thing("compile caches", State.OURS, "a treatment's own caches are left", tuple(own_roots))
    if present:
        return Thing("compile caches", State.NOTED, "shared by everything of this account", tuple(present))
    return Thing("compile caches", State.CLEAN, "none")


# -- what is left of our changes, line by line ----------------------------------------------------------------------


def describe_residue(path: str, found: bytes | None, patched: bytes | None, now: bytes | None) -> tuple[State, str]:
    """One sentence about a file that we once changed: what of the change is back, what is not, what others did."""
    if now == found:
        lines = _changed_lines(found, patched)
        rest = "the file's other code is as found" if found is not None else "the file is gone again"
        return State.CLEAN, f"{path}: only {lines} of ours changed and went back; {rest}"
    left = patching.residue(found or b"", patched or b"", now or b"")
    if left.is_clean and now is not None:
        return State.FOREIGN, f"{path}: nothing of ours is left; others changed it"
    parts = [f"line {number} is still ours: {_line(text)}" for number, text in left.ours[:_SHOWN]]
    parts += [f"line {number} of the file found is not back: {_line(text)}" for number, text in left.missing[:_SHOWN]]
    return State.OURS, f"{path}: " + "; ".join(parts or ["it is gone"])


def _changed_lines(found: bytes | None, patched: bytes | None) -> str:
    diff = patching.unified(found, patched, "f").splitlines()
    signs = [line[:1] for line in diff if not line.startswith((b"---", b"+++"))]
    added, removed = signs.count(b"+"), signs.count(b"-")
    return f"{max(added, removed)} line(s)"


def _line(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()[:80]


def decode_files(reply: Mapping[str, Seen]) -> dict[str, bytes]:
    """Contents of a reply to `read`, those that travelled."""
    return {path: base64.b64decode(e["content_b64"]) for path, e in reply.items() if "content_b64" in e}


def _short(path: str, source: str) -> str:
    prefix = source.rstrip("/") + "/"
    return path[len(prefix) :] if source and path.startswith(prefix) else path
