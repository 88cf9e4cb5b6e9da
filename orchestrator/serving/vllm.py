"""vLLM's OpenAI server. Its name for the model is ours for each launch: proof of who answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.serving import openai
from orchestrator.serving.configuration import flag_words
from orchestrator.serving.prompts import prompt_of
from orchestrator.serving.vocabulary import VLLM

if TYPE_CHECKING:
    from orchestrator.core.model import Measure, Target, Workload
    from orchestrator.serving.configuration import Configuration


class VllmEngine:
    name = "vllm"
    package = "vllm"
    vocabulary = VLLM
    reuses_address = True

    def argv(self, target: Target, configuration: Configuration, launch_id: str) -> tuple[str, ...]:
        model = ("--model", target.model) if target.model else ()
        flags = flag_words(configuration.flags)
        module = ("-m", "vllm.entrypoints.openai.api_server")
        identity = ("--served-model-name", launch_id)
        return (target.python, *module, *model, "--port", str(target.port), *flags, *identity)

    def ready_spec(self, target: Target, launch_id: str) -> dict[str, Any]:
        spec = openai.ready_spec(target, "/health", launch_id)
        spec["expect"] = [{"path": "/v1/models", "json": {"data.0.id": launch_id}}]
        return spec

    def decode_spec(self, target: Target, workload: Workload, measure: Measure, launch_id: str) -> dict[str, Any]:
        return openai.decode_spec(target, workload, measure, launch_id)

    def generate_request(self, target: Target, prompt: str, tokens: int, launch_id: str) -> dict[str, Any]:
        return openai.completion(target, prompt, tokens, launch_id)

    def long_request(self, target: Target, tokens: int, launch_id: str) -> dict[str, Any]:
        return openai.completion(target, prompt_of(tokens), 1, launch_id)

    def answer_text(self, body: Mapping[str, Any]) -> str:
        return openai.answer_text(body)

    def info_path(self) -> str | None:
        return None

    def told_environ(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def resolved(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return dict(info)
