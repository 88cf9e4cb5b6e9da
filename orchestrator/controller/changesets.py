"""What a hypothesis changes, as a fact that its findings depend on: other changes under one name are judged anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.core import planning
from orchestrator.core.secrets import Masker, secret_values

if TYPE_CHECKING:
    from orchestrator.core.model import Hypothesis, Playbook, Target, Workload

_READABLE = 160
"""Characters of a setting that a fact shows; a longer one ends in a digest of the whole."""

_SHOWN = 12
"""Hexadecimal digits; enough to tell the changes of one hypothesis apart."""


def fact_of(hypothesis_id: str) -> str:
    """The name of the fact."""
    return f"changes of {hypothesis_id}"


def change_facts(
    hypotheses: Iterable[Hypothesis], texts: Mapping[str, bytes], secrets: Collection[str] = ()
) -> dict[str, str]:
    """Fact → digest of the changes with the files they name (`texts`: name → content). Secret values do not count."""
    return {fact_of(h.id): _digest(h, texts, secrets) for h in hypotheses}


def setting_facts(playbook: Playbook, target: Target, secrets: Collection[str] = ()) -> dict[str, str]:
    """What a finding was found under, by names: the target's known-good configuration, the workload, what decides and
    how much evidence was asked for, and each context. Readable where short; secret values do not count."""
    measure = playbook.measure
    known_good = target.model_dump(mode="json", include={"args", "env", "gpus", "launch"}, exclude_defaults=True)
    contexts = {
        f"{planning.CONTEXT_FACT}{name}": context.model_dump(mode="json", exclude_defaults=True)
        for name, context in playbook.contexts.items()
    }
    settings: dict[str, Any] = {
        "target": known_good,
        "workload": _workload_facts(playbook.workload),
        "measure": _measure_facts(playbook),
        "effort": {"launches": measure.launches, "repetitions": measure.repetitions},
        **contexts,
    }
    masker = Masker(secret_values(settings, secrets))
    return {name: _readable(masker.data(value)) for name, value in settings.items()}


def _workload_facts(workload: Workload) -> dict[str, Any]:
    """What is sent; not what is measured beside it, nor how long the server is warmed up."""
    beside = {"ladder", "warmup_most"} if workload.reuse else {"ladder", "warmup_most", "reuse"}
    return workload.model_dump(mode="json", exclude_none=True, exclude=beside)


def _measure_facts(playbook: Playbook) -> dict[str, Any]:
    """What decides. Client, limits and gate only where they are not the usual ones: a finding without them keeps its
    facts."""
    measure = playbook.measure
    facts = measure.model_dump(mode="json", include={"metric", "direction", "min_effect"})
    further = measure.model_dump(mode="json", include={"benchmark", "goodput", "may_differ"}, exclude_defaults=True)
    return facts | further | playbook.model_dump(mode="json", include={"guardrails", "gate"}, exclude_defaults=True)


def _readable(value: Any) -> str:  # noqa: ANN401 - any JSON
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(text) <= _READABLE:
        return text
    return f"{text[:_READABLE]}… ({hashlib.sha256(text.encode()).hexdigest()[:_SHOWN]})"


def _digest(hypothesis: Hypothesis, texts: Mapping[str, bytes], secrets: Collection[str]) -> str:
    changes = hypothesis.model_dump(mode="json", by_alias=True, exclude_unset=True)["changes"]
    masked = Masker(secret_values({"changes": changes}, secrets)).data(changes)
    digest = hashlib.sha256(json.dumps(masked, sort_keys=True).encode())
    for name in sorted(set(_words(changes)) & texts.keys()):
        digest.update(hashlib.sha256(texts[name]).digest())
    return digest.hexdigest()[:_SHOWN]


def _words(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
