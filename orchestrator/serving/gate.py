"""The correctness gate: greedy answers against the baseline's, before any speed counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import Unreachable
from orchestrator.serving.http import json_body
from orchestrator.serving.prompts import GATE_PROMPTS

if TYPE_CHECKING:
    from orchestrator.core.model import Target
    from orchestrator.core.ports import HostPort
    from orchestrator.serving.engine import Engine

ANSWER_TOKENS = 16
WRONG_BELOW = 0.5
"""Share of the baseline's own agreement below which answers are called wrong.

Greedy decoding on a GPU drifts with the order of additions, so two right answers may part late; answers that part
before half of their length on average have never been drift in the cases seen.
"""


@dataclass(frozen=True)
class Answers:
    """Greedy answers of one launch: prompt → text, asked twice, so that the launch shows its own floor."""

    first: Mapping[str, str]
    second: Mapping[str, str]

    @property
    def floor(self) -> float:
        """How well this launch agrees with itself, 0 to 1."""
        return agreement(self.first, self.second)


@dataclass(frozen=True)
class GateResult:
    """`agreement` with the baseline, 0 to 1, beside the baseline's own `floor`."""

    agreement: float
    floor: float
    passed: bool
    sentence: str


def collect_answers(host: HostPort, engine: Engine, target: Target, launch_id: str) -> Answers:
    """Ask each prompt twice. Raises `Unreachable` when the server does not answer."""
    requests = [engine.generate_request(target, prompt, ANSWER_TOKENS, launch_id) for prompt in GATE_PROMPTS] * 2

    def ask(request: Mapping[str, object]) -> str:
        reply = host.call("http", request, timeout_s=330.0)
        body = json_body(reply)
        if body is None:
            raise Unreachable(f"the server answered {reply.get('status')} to a request of the gate")
        return engine.answer_text(body)

    with ThreadPoolExecutor(max_workers=len(requests)) as pool:
        texts = list(pool.map(ask, requests))
    half = len(GATE_PROMPTS)
    return Answers(
        dict(zip(GATE_PROMPTS, texts[:half], strict=True)), dict(zip(GATE_PROMPTS, texts[half:], strict=True))
    )


def agreement(a: Mapping[str, str], b: Mapping[str, str]) -> float:
    """Mean share of the common beginning over all prompts; two empty answers agree."""
    shares = [_common_share(a[prompt], b[prompt]) for prompt in a]
    return sum(shares) / len(shares) if shares else 1.0


def _common_share(a: str, b: str) -> float:
    longest = max(len(a), len(b))
    if longest == 0:
        return 1.0
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return common / longest


def judge_answers(baseline: Sequence[Answers], treatment: Answers) -> GateResult:
    """Compare with the closest of the baseline's launches; several of them may differ among themselves."""
    floor = min(answers.floor for answers in baseline)
    best = max(agreement(answers.first, treatment.first) for answers in baseline)
    passed = best >= WRONG_BELOW * floor
    word = "agree" if passed else "do not agree"
    sentence = f"greedy answers {word} with the baseline's: {best:.0%} (the baseline with itself: {floor:.0%})"
    return GateResult(best, floor, passed, sentence)
