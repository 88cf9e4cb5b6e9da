"""What every server with an OpenAI-compatible interface is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.serving.counters import COUNTERS_PATH
from orchestrator.serving.environment import API_KEY_ENV
from orchestrator.serving.http import post
from orchestrator.serving.prompts import prompt_of

if TYPE_CHECKING:
    from orchestrator.core.model import Measure, Target, Workload


def ready_spec(target: Target, health: str, model: str) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt_of(32), "max_tokens": 4, "temperature": 0}
    return {
        "port": target.port,
        "health": health,
        "limit_s": target.ready.limit,
        "stall_s": target.ready.stall,
        "expect": [],
        "generate": {"path": "/v1/completions", "body": body, "text_key": "choices.0"},
        "poll_s": 0.05,
        "api_key_env": API_KEY_ENV,
    }


def decode_spec(target: Target, workload: Workload, measure: Measure, model: str) -> dict[str, Any]:
    return {
        "port": target.port,
        "path": "/v1/completions",
        "api": "openai",
        "prompt": workload.prompt or prompt_of(workload.prompt_tokens),
        "output_tokens": workload.output_tokens,
        "repetitions": measure.repetitions,
        "concurrency": workload.concurrency,
        "warmup": workload.warmup,
        "warmup_most": workload.warmup_most if workload.warmup else 0,
        "vary": "all" if workload.prompt is None and not workload.reuse else None,  # no way to flush is common to all
        "flush_path": None,
        "counters_path": COUNTERS_PATH,
        "extra": {"model": model},
        "timeout_s": 600.0,
        "api_key_env": API_KEY_ENV,
    }


def completion(target: Target, prompt: str, tokens: int, model: str) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    return post(target, "/v1/completions", body)


def answer_text(body: Mapping[str, Any]) -> str:
    choices = body.get("choices") or [{}]
    return str(choices[0].get("text", ""))
