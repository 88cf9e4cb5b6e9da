"""SGLang. Endpoints and flags as of 0.5.8 to 0.5.23; `/health` exists in all of them, `/ready` does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.serving.configuration import flag_words
from orchestrator.serving.counters import COUNTERS_PATH
from orchestrator.serving.environment import API_KEY_ENV
from orchestrator.serving.http import post
from orchestrator.serving.prompts import prompt_of, token_ids
from orchestrator.serving.vocabulary import SGLANG

if TYPE_CHECKING:
    from orchestrator.core.model import Measure, Target, Workload
    from orchestrator.serving.configuration import Configuration


class SglangEngine:
    name = "sglang"
    package = "sglang"
    vocabulary = SGLANG
    reuses_address = True

    def argv(self, target: Target, configuration: Configuration, launch_id: str) -> tuple[str, ...]:
        model = ("--model-path", target.model) if target.model else ()
        flags = flag_words(configuration.flags)
        # --weight-version comes back from /model_info: proof that the server that answers is this launch.
        identity = () if "--weight-version" in flags else ("--weight-version", launch_id)
        module = ("-m", "sglang.launch_server")
        return (target.python, *module, *model, "--port", str(target.port), *flags, *identity)

    def ready_spec(self, target: Target, launch_id: str) -> dict[str, Any]:
        return {
            "port": target.port,
            "health": "/health",
            "limit_s": target.ready.limit,
            "stall_s": target.ready.stall,
            "expect": [{"path": "/model_info", "json": {"weight_version": launch_id}}],
            "generate": {
                "path": "/generate",
                "body": _generate(prompt_of(32), 4),
                "text_key": "meta_info.completion_tokens",
            },
            "poll_s": 0.05,
            "api_key_env": API_KEY_ENV,
        }

    def decode_spec(self, target: Target, workload: Workload, measure: Measure, launch_id: str) -> dict[str, Any]:
        return {
            "port": target.port,
            "path": "/generate",
            "api": "sglang",
            "prompt": workload.prompt or prompt_of(workload.prompt_tokens),
            "output_tokens": workload.output_tokens,
            "repetitions": measure.repetitions,
            "concurrency": workload.concurrency,
            "warmup": workload.warmup,
            "warmup_most": workload.warmup_most if workload.warmup else 0,
            "vary": "streams" if workload.prompt is None and not workload.reuse else None,
            "flush_path": None if workload.reuse else "/flush_cache",
            "counters_path": COUNTERS_PATH,
            "extra": {},
            "timeout_s": 600.0,
            "api_key_env": API_KEY_ENV,
        }

    def generate_request(self, target: Target, prompt: str, tokens: int, launch_id: str) -> dict[str, Any]:
        return post(target, "/generate", _generate(prompt, tokens))

    def long_request(self, target: Target, tokens: int, launch_id: str) -> dict[str, Any]:
        body: dict[str, Any] = {**_generate("", 1), "input_ids": token_ids(tokens)}
        del body["text"]
        return post(target, "/generate", body)

    def answer_text(self, body: Mapping[str, Any]) -> str:
        return str(body.get("text", ""))

    def info_path(self) -> str | None:
        return "/server_info"

    def told_environ(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Of a server with SGLANG_EXPOSE_OWN_ENV_VARS; ranks agree, so the first counts."""
        states = info.get("internal_states") or [{}]
        return dict(states[0].get("env_vars") or {}) if isinstance(states[0], dict) else {}

    def resolved(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in info.items() if not isinstance(v, dict | list) or k.endswith(("_args", "_config"))}


def _generate(prompt: str, tokens: int) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    return {"text": prompt, "sampling_params": sampling}
