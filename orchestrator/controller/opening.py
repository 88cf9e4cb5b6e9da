"""From nothing to a host that may take work: connected, probed, leased, recovered, reaped, snapshotted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.controller.changesets import change_facts, setting_facts
from orchestrator.controller.claims import resources_of
from orchestrator.controller.service import hold_service
from orchestrator.controller.session import refuse_read_only
from orchestrator.controller.threeway import recover_or_report
from orchestrator.errors import Refused
from orchestrator.hosts.logout import Escape, Way, hint_for, logout_commands, plan_escape

if TYPE_CHECKING:
    from orchestrator.controller.prepare import Prepared
    from orchestrator.controller.resume import Adoptable
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Playbook
    from orchestrator.core.records import FingerprintRecord, RunRecord
    from orchestrator.hosts.facts import Facts
    from orchestrator.ledger import Ledger

USUAL_PACKAGES = (
    "sglang", "vllm", "torch", "triton", "transformers", "flashinfer-python", "sgl-kernel", "nvidia-nccl-cu12",
)  # fmt: skip
"""Versions that findings usually depend on; asked for in one go with those a playbook names."""

_NOT_PACKAGES = frozenset({"gpu_arch", "driver", "cuda", "python", "model", "engine", "gpu_topology"})


@dataclass(frozen=True)
class Opened:
    """`facts`: name → value, those that findings depend on and reopen by."""

    fingerprint: FingerprintRecord
    facts: Mapping[str, str]
    adoptable: Adoptable | None = None


def open_host(
    session: HostSession, prepared: Prepared, run: RunRecord, *, resume: bool = False, yes: bool = False
) -> Opened:
    """Raises `Busy` when somebody holds the host, `Dirty` when an earlier run's remains cannot be put back.

    With `resume` a server that the run has left is kept where it can be gone on with; the snapshot is then that run's.
    """
    refuse_read_only(session.name, session.host)
    _timed(session, "connect", session.connect, str(session.host.route))
    patterns = list(session.host.gpu_devices)
    devices = session.connection.submit("glob", {"patterns": patterns})
    user = str(session.hello["user"])
    logout = session.connection.submit("run", {"commands": logout_commands(user)})
    _timed(session, "probe", lambda: session.probe(packages_of(prepared.playbook)))
    there = [path for pattern in patterns for path in devices.result(60.0)[pattern]]
    wanted = resources_of(there, session.target.gpus, session.target.port)
    escape = plan_escape(logout.result(60.0), user, int(session.hello["uid"]))
    refuse_mortal_guard(session, escape, yes=yes)
    reply = _timed(session, "open", lambda: session.open_tree(wanted, escape.argv))
    adoptable = _adopt_or_say(session, prepared, run, reply) if resume else None
    session.holds_service = reply["service"] is not None and session.target.service is not None
    if adoptable is None:
        recover_remains(session, reply, prepared.ledger, run.id)
        hold_service(session, prepared.ledger, run.id)
        digest = make_ready(session)
    else:
        session.has_snapshot = True
        digest = session.call("verify", {}, timeout_s=600.0)["found_digest"]
    fingerprint = {**fingerprint_of(session.facts), "source_digest": digest}
    facts = {**named_facts(session), **facts_of_changes(prepared)}
    return Opened(prepared.ledger.fingerprint(session.name, fingerprint), facts, adoptable)


def refuse_mortal_guard(session: HostSession, escape: Escape, *, yes: bool) -> None:
    """A guard that ends with our login puts nothing back: not without a person's word."""
    if escape.way is not Way.NONE:
        return
    if not yes:
        hint = f"{hint_for(str(session.hello['user']))}; or go on without a guard that outlives us with --yes"
        raise Refused(f"{session.name}: {escape.why}", hint=hint)
    session.narrator.warn(f"{session.name}: {escape.why}; a lost connection is put back by the next one only")


def make_ready(session: HostSession) -> str:
    """The host without whom we need not have there, and its manifest as found; the manifest's digest."""
    _timed(session, "reap", session.reap)
    return str(_timed(session, "snapshot", session.snapshot)["digest"])


def _adopt_or_say(
    session: HostSession, prepared: Prepared, run: RunRecord, reply: Mapping[str, Any]
) -> Adoptable | None:
    from orchestrator.controller.resume import find_adoptable

    found = find_adoptable(session, prepared, run, reply)
    if isinstance(found, str):
        if reply.get("launch") or reply.get("open"):
            session.narrator.note(f"{session.name}: retreating: {found}")
        return None
    for intent in prepared.ledger.open_intents(session.name):
        prepared.ledger.settle(intent, "adopted", {"launch_id": found.left.launch.launch_id})
    session.narrator.note(f"{session.name}: going on with launch {found.left.launch.launch_id}")
    return found


def facts_of_changes(prepared: Prepared) -> dict[str, str]:
    loaded = prepared.loaded
    secrets = loaded.target.secrets
    return {
        **change_facts(prepared.playbook.hypotheses, loaded.texts, secrets),
        **setting_facts(prepared.playbook, loaded.target, secrets),
    }


def recover_remains(
    session: HostSession, reply: Mapping[str, Any], ledger: Ledger, run_id: int | None = None
) -> list[str]:
    """What a run that was cut off left on the host is put back before anything else. Returns what was done."""
    did: list[str] = []
    outcome = reply.get("outcome")
    if outcome:
        did.append(f"the guard had put the host back: {outcome.get('state', outcome)}")
        ledger.note("guard_outcome", dict(outcome), host=session.name, run_id=run_id)
    is_stopped = reply["service"] is not None and not session.holds_service
    if reply.get("open") or reply.get("launch") or reply.get("shadow") or is_stopped:
        with session.interrupts.retreating(f"recovery of {session.name}"):
            recovered = _timed(session, "recover", lambda: recover_or_report(session, ledger))
        did += list(recovered["did"])
        ledger.note("recovered", {"did": recovered["did"]}, host=session.name, run_id=run_id)
    for intent in ledger.open_intents(session.name):
        ledger.settle(intent, "recovered", {"did": did})
    if outcome:
        session.call("acknowledge", {})
    for sentence in did:
        session.narrator.note(f"{session.name}: {sentence}")
    return did


def packages_of(playbook: Playbook) -> list[str]:
    """Package names whose versions decide something in this playbook."""
    named = {name for h in playbook.hypotheses for name in (*h.requires.packages, *h.revisit_when)}
    return sorted((named - _NOT_PACKAGES) | set(USUAL_PACKAGES))


def named_facts(session: HostSession) -> dict[str, str]:
    """Facts by the names that playbooks use in `revisit_when`."""
    facts: Facts = session.facts
    mine = session.target.gpus
    arches = sorted({g.compute_cap for g in facts.gpus if g.compute_cap and (mine is None or g.index in mine)})
    named = {
        "engine": session.target.engine,
        "model": session.target.model or "none",
        "gpu_arch": ",".join(arches) or "none",
        "driver": facts.driver or "none",
        "cuda": facts.cuda or "none",
        "python": facts.python or "none",
        "gpu_topology": _links(facts),
    }
    return {**named, **{name: version for name, version in (facts.packages or {}).items() if version}}


def fingerprint_of(facts: Facts) -> dict[str, Any]:
    """The facts that tell one state of a host from another: without what changes by the minute."""
    plain = facts.as_json()
    for gpu in plain["gpus"]:
        gpu.pop("memory_used_mib")
    for space in (plain["shm"], plain["disk"]):
        if space is not None:
            space.pop("free_kib")
    return plain


def _links(facts: Facts) -> str:
    """The kinds of link between any two GPUs, such as `NODE,SYS` or `NV18`."""
    kinds = {cell for row in facts.links for cell in row} - {"X", ""}
    return ",".join(sorted(kinds)) or "none"


def _timed(session: HostSession, phase: str, act: Any, detail: str = "") -> Any:  # noqa: ANN401 - passes it through
    session.narrator.phase(session.name, phase, detail)
    start = session.clock.monotonic()
    with session.costs.timed(phase):
        result = act()
    session.narrator.phase_done(session.name, phase, session.clock.monotonic() - start, "ok")
    return result
