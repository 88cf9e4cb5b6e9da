"""`host verify`: is anything of ours on a host, and has anything else changed? Looks; holds the tree only while it is
compared, and makes nothing on a host where nothing was ever kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.controller import cleanliness, references
from orchestrator.controller.cleanliness import State, Thing
from orchestrator.controller.threeway import read_held
from orchestrator.controller.turn import sole_turn
from orchestrator.core import patching
from orchestrator.hosts.gputool import memory_command, parse_memory

if TYPE_CHECKING:
    from orchestrator.controller.hosts import HostRequest
    from orchestrator.controller.narration import Narrator
    from orchestrator.controller.prepare import Place
    from orchestrator.controller.session import HostSession

_READ_LIMIT = 8 << 20
_MAX_DIFFS = 20


@dataclass
class Verification:
    """`pending`: a change or launch of ours is open. `clean`: nothing of ours is left. `foreign`: what else differs."""

    host: str
    pending: bool = False
    clean: bool = True
    digest: str | None = None
    found_digest: str | None = None
    kept: str | None = None
    differences: list[Mapping[str, Any]] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)
    held: list[dict[str, Any]] = field(default_factory=list)
    residue: list[str] = field(default_factory=list)
    diffs: dict[str, str] = field(default_factory=dict)
    against: str | None = None
    deviations: list[references.Deviation] = field(default_factory=list)
    saved: int | None = None

    @property
    def is_ours(self) -> bool:
        return self.pending or not self.clean

    @property
    def is_foreign(self) -> bool:
        return bool(self.deviations) or any(not d["ours"] for d in self.differences)

    def as_json(self) -> dict[str, Any]:
        plain = {**vars(self)}
        plain["things"] = [vars(t) for t in self.things]
        plain["deviations"] = [vars(d) for d in self.deviations]
        return plain


def verify(
    request: HostRequest, narrator: Narrator, *, against: str | None = None, save: Path | None = None
) -> Verification:
    """Raises `Busy` while another controller holds the tree."""
    from orchestrator.controller.hosts import host_place

    with host_place(request, narrator) as (place, session), sole_turn(request.state, place.host_name, session.clock):
        session.connect()
        session.probe([])
        survey = session.connection.call("survey", session.tree_request())
        done = Verification(place.host_name)
        proof = _prove(place, session, survey, done)
        _look_around(session, survey, done, proof)
        _explain(place, session, done)
        if against is not None or save is not None:
            _hold_against(session, done, against, save)
        done.clean = done.clean and all(thing.state is not State.OURS for thing in done.things)
        if done.is_ours:
            place.ledger.quarantine(place.host_name, "not as it was found")
        return done


def _prove(
    place: Place, session: HostSession, survey: Mapping[str, Any], done: Verification
) -> Mapping[str, Any] | None:
    """The comparison with the manifest as found, where there is one. Takes the lease for it."""
    if survey["state_dir"] is None:
        return None
    reply = session.open_tree()
    try:
        opened = ("open", "launch", "shadow", "service")
        done.pending = any(reply.get(name) for name in opened)
        record = place.ledger.host(place.host_name)
        done.kept = (record.kept if record else None) or ", ".join(reply["kept"]) if reply["kept"] else None
        report = (reply.get("open") or {}).get("report") or []
        done.held = [file.as_json() for file in read_held(session, place.ledger, report)]
        if not survey["found"]:
            return None
        proof = session.call("verify", {}, timeout_s=600.0)
        done.clean, done.differences = bool(proof["clean"]), list(proof["differences"])
        done.digest, done.found_digest = proof["digest"], proof["found_digest"]
        return proof
    finally:
        session.give_lease_back()


def _look_around(
    session: HostSession, survey: Mapping[str, Any], done: Verification, proof: Mapping[str, Any] | None
) -> None:
    facts, layout = session.facts, session.layout
    guarded = session.guarded_paths()
    patterns = [f"{folder}/*.pth" for folder in facts.site_packages]
    caches = [place.format(user=session.hello.get("user", "")) for place in cleanliness.CACHE_PLACES]
    home = str(session.hello.get("home") or "")
    caches = [place.replace("~", home, 1) for place in caches]
    own = [f"{one['path']}/caches" for one in survey["tmp"] if one["ours"]]
    globbed = session.connection.call("glob", {"patterns": [*patterns, *caches, *own]})
    site_files = [p for pattern in patterns for p in globbed[pattern]]
    if facts.sitecustomize:
        site_files.append(facts.sitecustomize)
    contents = session.connection.call("read", {"paths": site_files, "max_bytes": 1 << 20}) if site_files else {}
    asked = {"devices": list(session.host.gpu_devices), "port": session.target.port, "run_ids": []}
    processes = session.connection.call("processes", asked)["processes"]
    asked = {"commands": [memory_command(session.host.gpu_tool)]}
    memory = parse_memory(session.connection.call("run", asked)) if session.facts.gpus else {}
    runs = survey.get("runs", [])
    kept = [Thing("kept configuration", State.NOTED, f"left there on purpose: {done.kept}")] if done.kept else []
    done.things = [
        *kept,
        *cleanliness.judge_tree(proof, done.pending, layout.source, guarded),
        cleanliness.judge_site(cleanliness.decode_files(contents), survey["state_dir"]),
        *cleanliness.judge_survey(survey),
        *cleanliness.judge_service(survey, proof),
        cleanliness.judge_caches(
            [p for place in caches for p in globbed[place]], [p for pattern in own for p in globbed[pattern]]
        ),
        cleanliness.judge_port(session.target.port, processes, runs),
        cleanliness.judge_memory(memory, processes, runs),
    ]


def _explain(place: Place, session: HostSession, done: Verification) -> None:
    """Line by line: every file that this ledger ever changed there, and the diff of what differs now."""
    found, patched = place.ledger.images(place.host_name, "found"), place.ledger.images(place.host_name, "patched")
    ours = sorted(found.keys() | patched.keys())
    differing = [d["path"] for d in done.differences if (d["found"] or d["now"] or {}).get("kind") == "file"]
    wanted = sorted({*ours, *differing[:_MAX_DIFFS]})
    if not wanted:
        return
    reply = session.connection.call("read", {"paths": wanted, "max_bytes": _READ_LIMIT}, timeout_s=120.0)
    now = cleanliness.decode_files(reply)
    for path in ours:
        is_kept = done.kept is not None and path in patched and now.get(path) == patched[path]
        said = cleanliness.describe_residue(path, found.get(path), patched.get(path), now.get(path))[1]
        done.residue.append(f"{path}: as it is kept" if is_kept else said)
    for difference in done.differences:
        path, was = difference["path"], difference["found"]
        if path not in wanted:
            continue
        before = place.ledger.find_content(was["sha256"]) if was is not None else None
        if was is None or before is not None:
            done.diffs[path] = _text(before, now.get(path), path)


def _hold_against(session: HostSession, done: Verification, against: str | None, save: Path | None) -> None:
    source = session.found_source
    reply = session.connection.call("manifest", {"paths": [source], "full": True}, timeout_s=600.0)
    entries = reply["entries"]
    done.digest = done.digest or reply["digest"]
    if save is not None:
        done.saved = references.write_manifest(save, source, entries)
    if against is None:
        return
    reference = references.load_reference(session, against, entries)
    done.against = reference.name
    done.deviations = references.compare(reference, entries, source)
    changed = [d.path for d in done.deviations if d.path in reference.contents][:_MAX_DIFFS]
    if changed:
        paths = [f"{source}/{path}" for path in changed]
        read = cleanliness.decode_files(session.connection.call("read", {"paths": paths, "max_bytes": _READ_LIMIT}))
        for path, absolute in zip(changed, paths, strict=True):
            done.diffs[absolute] = _text(reference.contents[path], read.get(absolute), absolute)
    name = f"against {reference.name}"
    if done.deviations:
        shown: Sequence[str] = [f"{d.what} {d.path}" for d in done.deviations[:_MAX_DIFFS]]
        done.things.append(Thing(name, State.FOREIGN, f"{len(done.deviations)} path(s) differ", tuple(shown)))
    else:
        done.things.append(Thing(name, State.CLEAN, f"all {len(reference.digests)} files are as it says"))


def _text(before: bytes | None, after: bytes | None, path: str) -> str:
    return patching.unified(before, after, path.lstrip("/")).decode("utf-8", "replace")
