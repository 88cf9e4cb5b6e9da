"""One launch measured: warm-up, the probe or a client, what else happened meanwhile, and whether it may be believed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from orchestrator.controller.dialogue import ArmFailed
from orchestrator.core.contamination import Doubt, doubts_of_arm
from orchestrator.core.records import LaunchOutcome
from orchestrator.serving import metrics
from orchestrator.serving.benchmarks import BenchPlan, Unreadable, plan_bench, read_bench, record_of_bench
from orchestrator.serving.counters import COUNTERS_PATH, counted
from orchestrator.serving.environment import API_KEY_ENV
from orchestrator.serving.evidence import evidence_of
from orchestrator.serving.gpus import GpuSeries, read_gpus, watch_argvs
from orchestrator.serving.record import Record, record_of_probe

if TYPE_CHECKING:
    from orchestrator.controller.arm import ArmResult
    from orchestrator.controller.dialogue import Dialogue
    from orchestrator.controller.session import HostSession
    from orchestrator.core.measures import Guards, Measure, Workload

ANSWER_S = 3600.0
_SPARE_S = 120.0
_SMOKE_TOKENS = 16
_VERSION_S = 60.0
_UNSAID = frozenset({"nominal_lengths"})
"""Caveats that stand with the launch and are not repeated with every verdict: the record has the measured lengths."""


class Measuring:
    """Of one launch that is ready, live and right. Fills `result`; raises `ArmFailed`."""

    def __init__(
        self,
        session: HostSession,
        dialogue: Dialogue,
        workload: Workload,
        measure: Measure,
        result: ArmResult,
        guardrails: Guards,
    ) -> None:
        self._session, self._dialogue, self._result = session, dialogue, result
        self._workload, self._measure = workload, measure
        rate = guardrails.get("error_rate")
        self._allowed_error_rate = rate.limit or 0.0 if rate is not None else 0.0

    def run(self) -> None:
        if self._workload.ladder:
            self._smoke_test()
        record = self._probe() if self._measure.benchmark.tool == "decode" else self._bench()
        self._result.record = record
        self._result.seen["record"] = record.to_json()
        self._believe(record)
        self._climb()
        value = record.values.get(self._measure.metric)
        if value is None:
            raise ArmFailed(LaunchOutcome.invalid, f"{record.client} tells no {self._measure.metric}")
        self._result.value = value
        self._result.measured_at = self._session.clock.now()

    # ---------------------------------------------------------------- the built-in probe

    def _probe(self) -> Record:
        reply = self._decode(self._workload, {})
        self._result.samples = list(reply["samples"])
        failed = [s for s in self._result.samples if s["repetition"] < 0]
        if failed:
            raise ArmFailed(LaunchOutcome.invalid, "; ".join(metrics.problems(failed, output_tokens=0)))
        return record_of_probe(reply, *self._observed(reply), self._measure.goodput, _client())

    def _decode(self, workload: Workload, over: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session
        spec = session.engine.decode_spec(session.target, workload, self._measure, self._dialogue.launch_id)
        spec |= {"stall_s": session.target.ready.stall, **self._watched(), **over}
        request = {"launch_id": self._dialogue.launch_id, "spec": spec}
        reply = self._dialogue.ask("decode", request, timeout_s=ANSWER_S)
        self._refuse_hang(reply)
        return reply

    def _refuse_hang(self, reply: Mapping[str, Any]) -> None:
        self._dialogue.refuse_lost()
        if reply.get("hung"):
            self._result.seen["not_ready"] = {"state": "hung", **reply["hung"]}
            self._dialogue.fail("hung", reply["hung"])

    # ---------------------------------------------------------------- a client

    def _bench(self) -> Record:
        """The probe warms up in the same shape; the client then measures, and its result is read here."""
        session, measure = self._session, self._measure
        sweeps = self._decode(self._workload, {"repetitions": 0, "gpu_argvs": []}).get("sweeps") or ()
        plan = plan_bench(measure, self._workload, session.target, session.base_env, self._dialogue.launch_id)
        named = self._version_of(plan)
        reply = run_client(session, self._dialogue, plan, "bench", self._watched())
        self._refuse_hang(reply)
        try:
            reading = read_bench(measure.benchmark, plan, reply)
        except Unreadable as problem:
            raise ArmFailed(LaunchOutcome.invalid, str(problem)) from problem
        self._result.samples = list(reading.samples)
        return record_of_bench(
            plan, reading, reply, *self._observed(reply), measure.goodput,
            version=named, secrets=session.target.secrets, sweeps=sweeps,
        )  # fmt: skip

    def _version_of(self, plan: BenchPlan) -> str:
        """As the client's own environment has it; empty where nobody knows how to ask, or it does not say."""
        if plan.version is None:
            return ""
        env = {**plan.env, "PYTHONDONTWRITEBYTECODE": "1"}
        command = {"name": "version", "argv": list(plan.version), "env": env, "timeout_s": _VERSION_S}
        reply = self._dialogue.ask("run", {"commands": [command]}, timeout_s=_VERSION_S + 30.0)["version"]
        lines = str(reply.get("stdout", "")).split("\n") if reply.get("rc") == 0 else [""]
        return lines[0].strip()[:80]

    # ---------------------------------------------------------------- what else was seen

    def _watched(self) -> dict[str, Any]:
        """What the agent looks at while it measures."""
        gpus = watch_argvs(self._session.host.gpu_tool) if self._session.facts.gpus else []
        return {"gpu_argvs": gpus, "counters_path": COUNTERS_PATH}

    def _observed(self, reply: Mapping[str, Any]) -> tuple[Any, GpuSeries]:
        observed = reply.get("observed") or {}
        return counted(observed.get("counters") or {}), read_gpus(observed.get("gpus") or (), self._session.target.gpus)

    def _believe(self, record: Record) -> None:
        """Raises `ArmFailed` as invalid, with which doubt and by how much; what does not block is kept."""
        result = self._result
        evidence = evidence_of(
            "this launch", result.samples, record, self._workload, result.resolved,
            allowed_error_rate=self._allowed_error_rate,
        )  # fmt: skip
        doubts = doubts_of_arm(evidence)
        if record.tool == "command" and not result.samples:
            doubts = [d for d in doubts if d.kind != "no_samples"] + _doubts_of_totals(record, self._allowed_error_rate)
        result.seen["doubts"] = [vars(doubt) for doubt in doubts]
        result.caveats = [d.sentence for d in doubts if not d.blocks and d.kind not in _UNSAID]
        blocking = [doubt.sentence for doubt in doubts if doubt.blocks]
        if blocking:
            raise ArmFailed(LaunchOutcome.invalid, "; ".join(blocking))

    # ---------------------------------------------------------------- the ladder

    def _smoke_test(self) -> None:
        """The widest rung once and shortly, so that a server which dies of it does so before anything is measured."""
        widest = max(self._workload.concurrency, *self._workload.ladder)
        tokens = min(_SMOKE_TOKENS, self._workload.output_tokens)
        rung = self._workload.model_copy(update={"concurrency": widest, "output_tokens": tokens})
        short = {"warmup": 0, "warmup_most": 0, "repetitions": 1, "gpu_argvs": []}
        samples = self._at_rung(widest, rung, short)["samples"]
        problems = metrics.problems(samples, output_tokens=tokens)
        if problems:
            raise ArmFailed(LaunchOutcome.invalid, f"at {widest} requests at a time: {problems[0]}")

    def _climb(self) -> None:
        """Rungs are recorded beside the verdict's own concurrency; a crash stays a crash of that rung."""
        rungs: dict[str, Any] = {}
        for width in self._workload.ladder:
            self._result.seen["ladder"] = rungs
            rung = self._workload.model_copy(update={"concurrency": width})
            reply = self._at_rung(width, rung, {})
            record = record_of_probe(reply, *self._observed(reply), self._measure.goodput, _client())
            problems = metrics.problems(reply["samples"], output_tokens=rung.output_tokens)
            rungs[str(width)] = {"values": dict(record.values), "problems": problems}

    def _at_rung(self, width: int, rung: Workload, over: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._decode(rung, over)
        except ArmFailed as failed:
            self._result.seen.setdefault("ladder", {})[str(width)] = {"failed": failed.reason}
            raise ArmFailed(failed.outcome, f"at {width} requests at a time: {failed.reason}") from failed


def run_client(
    session: HostSession, dialogue: Dialogue, plan: BenchPlan, name: str, watched: Mapping[str, Any]
) -> dict[str, Any]:
    """A command beside the server, ended with it, on an interrupt, at its limit, and by the guard."""
    request = {
        "launch_id": dialogue.launch_id,
        "name": name,
        "argv": list(plan.argv),
        "env": dict(plan.env),
        "cwd": session.cwd,
        "port": session.target.port,
        "timeout_s": plan.limit_s,
        "files": list(plan.files),
        "stall_s": session.target.ready.stall,
        "api_key_env": API_KEY_ENV,
        **watched,
    }
    return dialogue.ask("bench", request, timeout_s=plan.limit_s + _SPARE_S)


def _doubts_of_totals(record: Record, allowed_error_rate: float) -> list[Doubt]:
    """Of a client that lists no requests: its totals are all there is, and nobody knows what it sends to warm up."""
    doubts = []
    if record.requests and record.failed / record.requests > allowed_error_rate:
        done = record.requests - record.failed
        doubts.append(
            Doubt("failures", f"this launch: {done}/{record.requests} requests succeeded, says {record.client}")
        )
    more = (record.requests_served or 0) - record.requests
    if record.requests and more > 0:
        said = f"this launch: the server answered {more} requests beyond the client's {record.requests}"
        doubts.append(Doubt("foreign_requests", f"{said}: its warm-up, or somebody else's", blocks=False))
    return doubts


@cache
def _client() -> str:
    """The probe is part of this program, and has its version."""
    try:
        return f"decode {version('orchestrator')}"
    except PackageNotFoundError:
        return "decode"
