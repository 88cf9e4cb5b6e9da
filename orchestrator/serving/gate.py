"""The correctness gate: greedy answers against the baseline's, before any speed counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.measures import Gate
from orchestrator.core.soundness import quality_difference
from orchestrator.errors import Unreachable
from orchestrator.serving.http import json_body
from orchestrator.serving.prompts import FOLLOW_PROMPTS, GATE_PROMPTS

if TYPE_CHECKING:
    from orchestrator.core.model import Target
    from orchestrator.core.ports import HostPort
    from orchestrator.serving.engine import Engine

MOST_AT_ONCE = 16


@dataclass(frozen=True)
class Answers:
    """Greedy answers of one launch: prompt → text, asked twice, so that the launch shows its own floor."""

    first: Mapping[str, str]
    second: Mapping[str, str]

    @property
    def floor(self) -> float:
        """How well this launch agrees with itself, 0 to 1."""
        return agreement(self.first, self.second)

    def followed(self, follow: Mapping[str, str]) -> set[str]:
        """Prompts whose answers, both times, hold what was asked for."""
        return {
            prompt
            for prompt, wanted in follow.items()
            if wanted in self.first.get(prompt, "") and wanted in self.second.get(prompt, "")
        }


@dataclass(frozen=True)
class GateResult:
    """`agreement` with the baseline, 0 to 1, beside the baseline's own `floor`. `unfollowed`: prompts that every
    launch of the baseline followed, and this one did not."""

    agreement: float
    floor: float
    passed: bool
    sentence: str
    unfollowed: tuple[str, ...] = ()


def follow_prompts(gate: Gate) -> dict[str, str]:
    """Prompt → what an answer that follows it contains: fluent text that ignores the prompt is found out by these."""
    return {**FOLLOW_PROMPTS, **gate.follow}


def prompts_of(gate: Gate) -> list[str]:
    return list(dict.fromkeys((*GATE_PROMPTS, *follow_prompts(gate), *gate.prompts)))


def collect_answers(
    host: HostPort, engine: Engine, target: Target, launch_id: str, gate: Gate | None = None
) -> Answers:
    """Ask each prompt twice. Raises `Unreachable` when the server does not answer."""
    settings = gate or Gate()
    prompts = prompts_of(settings)
    requests = [engine.generate_request(target, prompt, settings.tokens, launch_id) for prompt in prompts] * 2

    def ask(request: Mapping[str, object]) -> str:
        reply = host.call("http", request, timeout_s=330.0)
        body = json_body(reply)
        if body is None:
            raise Unreachable(f"the server answered {reply.get('status')} to a request of the gate")
        return engine.answer_text(body)

    with ThreadPoolExecutor(max_workers=min(len(requests), MOST_AT_ONCE)) as pool:
        texts = list(pool.map(ask, requests))
    half = len(prompts)
    return Answers(dict(zip(prompts, texts[:half], strict=True)), dict(zip(prompts, texts[half:], strict=True)))


def agreement(a: Mapping[str, str], b: Mapping[str, str]) -> float:
    """Mean share of the common beginning over the prompts that both were asked; two empty answers agree."""
    shares = [_common_share(a[prompt], b[prompt]) for prompt in a if prompt in b]
    return sum(shares) / len(shares) if shares else 1.0


def _common_share(a: str, b: str) -> float:
    longest = max(len(a), len(b))
    if longest == 0:
        return 1.0
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return common / longest


def judge_answers(baseline: Sequence[Answers], treatment: Answers, gate: Gate | None = None) -> GateResult:
    """Compare with the closest of the baseline's launches; several of them may differ among themselves, and that is
    the floor as well. `gate.agreement` is the share of the floor below which answers are wrong: greedy decoding on a
    GPU drifts with the order of additions, so two right answers may part late."""
    settings = gate or Gate()
    follow = follow_prompts(settings)
    floors = [answers.floor for answers in baseline]
    floors += [agreement(a.first, b.first) for a in baseline for b in baseline if a is not b]
    floor = min(floors)
    best = max(agreement(answers.first, treatment.first) for answers in baseline)
    expected = set.intersection(*(answers.followed(follow) for answers in baseline))
    unfollowed = tuple(sorted(expected - treatment.followed(follow)))
    agrees = best >= settings.agreement * floor
    word = "agree" if agrees else "do not agree"
    sentence = f"greedy answers {word} with the baseline's: {best:.0%} (the baseline with itself: {floor:.0%})"
    if unfollowed:
        prompt = unfollowed[0]
        said = treatment.first.get(prompt, "").strip()[:40]
        sentence += (
            f"; {len(unfollowed)} of {len(expected)} prompts that the baseline follows are not followed: "
            f"{prompt.strip()[-40:]!r} is answered {said!r}"
        )
    return GateResult(best, floor, agrees and not unfollowed, sentence, unfollowed)


def judge_score(baseline: Sequence[float], score: float, floor: float) -> str | None:
    """Why a score is worse than the baseline's beyond what equal launches differ by, or None. A better one is right."""
    if not baseline:
        return None
    spread = max(baseline) - min(baseline)
    mean = sum(baseline) / len(baseline)
    if score >= mean:
        return None
    doubt = quality_difference(mean, score, max(floor, spread))
    return None if doubt is None else doubt.sentence
