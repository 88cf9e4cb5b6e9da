"""Anything else that serves an OpenAI-compatible HTTP interface and is started by a command of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.serving import openai
from orchestrator.serving.configuration import flag_words
from orchestrator.serving.prompts import prompt_of
from orchestrator.serving.vocabulary import NOTHING

if TYPE_CHECKING:
    from orchestrator.core.model import Measure, Target, Workload
    from orchestrator.serving.configuration import Configuration


class CommandEngine:
    name = "command"
    package = None
    vocabulary = NOTHING
    reuses_address = True  # as nearly every server does; one that does not says so itself when it cannot bind

    def argv(self, target: Target, configuration: Configuration, launch_id: str) -> tuple[str, ...]:
        known = {"{port}": str(target.port), "{model}": target.model or "", "{launch}": launch_id}
        words = [_fill(word, known) for word in target.launch or ()]
        return (*words, *flag_words(configuration.flags))

    def ready_spec(self, target: Target, launch_id: str) -> dict[str, Any]:
        return openai.ready_spec(target, target.health, target.model or "default")

    def decode_spec(self, target: Target, workload: Workload, measure: Measure, launch_id: str) -> dict[str, Any]:
        return openai.decode_spec(target, workload, measure, target.model or "default")

    def generate_request(self, target: Target, prompt: str, tokens: int, launch_id: str) -> dict[str, Any]:
        return openai.completion(target, prompt, tokens, target.model or "default")

    def long_request(self, target: Target, tokens: int, launch_id: str) -> dict[str, Any]:
        return openai.completion(target, prompt_of(tokens), 1, target.model or "default")

    def answer_text(self, body: Mapping[str, Any]) -> str:
        return openai.answer_text(body)

    def info_path(self) -> str | None:
        return None

    def told_environ(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def resolved(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return dict(info)


def _fill(word: str, known: Mapping[str, str]) -> str:
    """Only the three names are replaced, so that JSON in braces stays as it is."""
    for name, value in known.items():
        word = word.replace(name, value)
    return word
