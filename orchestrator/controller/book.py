"""What a run writes down, and when: intents before acts, the bytes found before they are replaced, proofs after."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.core.records import LaunchOutcome, RevertProof, Sample
from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.controller.arm import ArmResult
    from orchestrator.controller.history import History
    from orchestrator.controller.treatment import FileEdit
    from orchestrator.core.records import ArmKind, ArmRecord, ExperimentRecord, Intent, LaunchRecord
    from orchestrator.ledger import Ledger

Settle = Callable[[Mapping[str, Any]], None]
T = TypeVar("T")


class Book:
    """The ledger and the local git history of one run, for one host."""

    def __init__(
        self, ledger: Ledger, history: History, *, run_id: int, host: str, tree: str, name_prefix: str
    ) -> None:
        self.ledger = ledger
        self.run_id = run_id
        self.host = host
        self.tree = tree
        self.name_prefix = name_prefix
        self._history = history
        # git takes tens of milliseconds a commit: one thread keeps the order and stays off the run's path.
        self._scribe = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        # The way back waits for no disk of ours: its records are written in order by another thread.
        self._clerk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="way back")
        self._written: list[Future[object]] = []

    def arm(self, experiment: ExperimentRecord, kind: ArmKind, changes: Sequence[Mapping[str, Any]]) -> ArmBook:
        return ArmBook(self, experiment, self.ledger.start_arm(experiment.id, kind, changes=list(changes)))

    def write_history(self, act: Callable[[History], object]) -> None:
        self._written.append(self._scribe.submit(act, self._history))

    @contextmanager
    def intent(self, phase: str, data: Mapping[str, Any], experiment_id: int | None = None) -> Iterator[Settle]:
        """Commit what is about to be done; the outcome follows when the block ends, also by an error."""
        intent = self.announce(phase, data, experiment_id)
        outcome: dict[str, Any] = {}
        try:
            yield outcome.update
        except OrchestratorError as error:
            self.ledger.settle(intent, "failed", {"kind": error.kind, "what": error.what, **error.facts})
            raise
        self.ledger.settle(intent, "done", outcome)

    def beside(self, write: Callable[[], T]) -> Future[T]:
        """A write to the ledger, after all that were asked for before it this way."""
        return self._clerk.submit(write)

    def announce(self, phase: str, data: Mapping[str, Any], experiment_id: int | None) -> Intent:
        """The intent, and where the experiment stands, in one commit: a commit is a wait for the disk."""
        with self.ledger.batch():
            if experiment_id is not None:
                self.ledger.set_phase(experiment_id, phase)
            return self.ledger.intend(phase, data, experiment_id=experiment_id, host=self.host, run_id=self.run_id)

    def close(self) -> list[str]:
        """Wait until the history is written. What could not be written is told: the proof does not rest on it."""
        self._clerk.shutdown(wait=True)
        self._scribe.shutdown(wait=True)
        return [str(error) for done in self._written if (error := done.exception()) is not None]


class ArmBook:
    """One arm's rows, from its start to its proof."""

    def __init__(self, book: Book, experiment: ExperimentRecord, arm: ArmRecord) -> None:
        self._book = book
        self._ledger = book.ledger
        self._experiment = experiment
        self._arm = arm
        self._launch: int | None = None
        self._proof: RevertProof | None = None
        self._beside: list[Future[Any]] = []
        self._unwritten: OrchestratorError | None = None
        self.launch_name = f"{book.name_prefix}-{experiment.id}-{arm.number}"
        self.txn = self.launch_name

    def go_on(self, launch: LaunchRecord) -> None:
        """With a launch that an earlier process began, under the name it was given."""
        self._launch = launch.id
        self.launch_name = self.txn = launch.launch_id

    @property
    def label(self) -> str:
        what = self._experiment.hypothesis_id or "baseline"
        return f"#{self._experiment.id} {what} ({self._experiment.context}), {self._arm.kind} {self._arm.number}"

    @contextmanager
    def intent(self, phase: str, data: Mapping[str, Any]) -> Iterator[Settle]:
        with self._book.intent(phase, {"arm": self._arm.id, **data}, self._experiment.id) as settle:
            yield settle

    @contextmanager
    def way_back(self, phase: str, data: Mapping[str, Any]) -> Iterator[Settle]:
        """An intent that is written beside its act, and an act that is carried out also where it cannot be written: a
        slow or full disk here must not leave the host as it is; what recovery needs is in the host's own journal.
        `close` waits until all is written, and raises what went wrong, when the host is back."""
        whole = {"arm": self._arm.id, **data}
        intent = self._book.beside(lambda: self._book.announce(phase, whole, self._experiment.id))
        self._beside.append(intent)
        outcome: dict[str, Any] = {}
        try:
            yield outcome.update
        except OrchestratorError as error:
            self._settle_beside(intent, "failed", {"kind": error.kind, "what": error.what, **error.facts})
            raise
        self._settle_beside(intent, "done", outcome)

    def _settle_beside(self, intent: Future[Intent], outcome: str, data: Mapping[str, Any]) -> None:
        told = dict(data)
        self._beside.append(self._book.beside(lambda: self._ledger.settle(intent.result(), outcome, told)))

    def catch_up(self) -> None:
        """Wait for what is written beside; the first failure is kept for `close`."""
        for written in self._beside:
            try:
                written.result()
            except OrchestratorError as error:
                self._unwritten = self._unwritten or error
        self._beside.clear()

    def keep_found(self, files: Sequence[FileEdit]) -> None:
        """The controller's own copy of every byte that is about to be replaced (the host parks the other one), and of
        what replaces it: who edits it there takes ours away, and a merge needs it."""
        with self._ledger.batch():
            for edit in files:
                for kind, content in (("found", edit.before), ("patched", edit.after)):
                    if content is not None:
                        self._ledger.add_artifact(kind, content, experiment_id=self._experiment.id, name=edit.path)
        found = {edit.path: edit.before for edit in files}
        self._book.write_history(lambda history: history.commit_found(found, **self._trailers()))

    def keep_patched(self, files: Sequence[FileEdit]) -> None:
        patched = {edit.path: edit.after for edit in files}
        self._book.write_history(lambda history: history.commit_patched(patched, **self._trailers()))

    def keep_reverted(self, files: Sequence[FileEdit]) -> None:
        """Called once the host said so: what is committed is what its digests stand for."""
        reverted = {edit.path: edit.before for edit in files}
        self._book.write_history(lambda history: history.commit_reverted(reverted, **self._trailers()))

    def _trailers(self) -> dict[str, Any]:
        book = self._book
        return {
            "experiment_id": self._experiment.id,
            "host": book.host,
            "tree": book.tree,
            "label": self.launch_name,
        }

    @contextmanager
    def launching(self, argv: Sequence[str], data: Mapping[str, Any]) -> Iterator[Settle]:
        """The intent to launch, and the launch's own row with it."""
        with ExitStack() as stack:
            with self._ledger.batch():
                self._launch = self._ledger.start_launch(self._arm.id, self.launch_name, argv).id
                settle = stack.enter_context(self.intent("launch", data))
            yield settle

    def prove(self, reply: Mapping[str, Any]) -> None:
        self._proof = RevertProof(
            clean=bool(reply["clean"]),
            found_digest=str(reply.get("found_digest") or reply["digest"]),
            now_digest=str(reply["digest"]),
            files=int(reply.get("files", 0)),
            differences=tuple(reply["differences"]),
            seconds=reply.get("seconds"),
        )

    def close(self, result: ArmResult) -> None:
        """The launch's end, its samples and log, and the arm's proof, in one commit."""
        self.catch_up()
        with self._ledger.batch():
            if self._launch is not None:
                self._end_launch(self._launch, result)
            self._ledger.end_arm(self._arm.id, self._proof)
        if self._unwritten is not None:
            raise self._unwritten

    def _end_launch(self, launch: int, result: ArmResult) -> None:
        log = "".join(f"{line}\n" for line in result.log_lines).encode("utf-8", "replace")
        artifact = self._ledger.add_artifact(
            "log", log, experiment_id=self._experiment.id, launch_id=launch, name=f"{self.launch_name}.log"
        )
        measured = [s for s in result.samples if s["repetition"] >= 0]  # a warm-up that failed is a reason, no sample
        self._ledger.add_samples(launch, [Sample.model_validate(s) for s in measured])
        self._ledger.note_launch(launch, ready_s=result.ready_s)
        diagnosis = result.diagnosis
        self._ledger.end_launch(
            launch,
            LaunchOutcome(result.outcome),
            exit_code=result.exit_code,
            signal=result.signal,
            cause=diagnosis.cause_line if diagnosis else (result.reason or None),
            facts={
                "value": result.value,
                "checks": [vars(check) for check in result.checks],
                "gate": result.gate.sentence if result.gate else None,
                "answers": vars(result.answers) if result.answers else None,
                "diagnosis": diagnosis.to_json("server.log") if diagnosis else None,
                "resolved": dict(result.resolved or {}),
                **result.seen,
            },
            log_artifact=artifact.id,
        )


def name_prefix(token: str) -> str:
    """Begins every launch's name: told apart from other controllers', and from our own earlier ledgers'."""
    import hashlib

    return f"orc-{hashlib.sha256(token.encode() + str(os.getpid()).encode()).hexdigest()[:6]}"
