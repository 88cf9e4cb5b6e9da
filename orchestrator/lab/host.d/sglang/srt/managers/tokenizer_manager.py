"""Requests between the HTTP side and rank 0: what was asked, what came, and how it is written out."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from sglang.srt.entrypoints.connection import Connection
from sglang.srt.managers.io_struct import Message

DEFAULT_NEW_TOKENS = 128
DEFAULT_COMPLETION_TOKENS = 16


class BadRequest(Exception):
    """A request that cannot be served; its text goes to the client."""


@dataclass
class State:
    """One request in flight."""

    rid: int
    style: str  # generate, completion, chat or health
    message: Message
    connection: Connection
    is_stream: bool
    wants_usage: bool = False
    began_s: float = field(default_factory=time.monotonic)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    words: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    verify_count: int = 0
    finish_reason: str | None = None
    has_begun: bool = False


@dataclass
class Totals:
    """What `/metrics` and `/server_info` count."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    verify_calls: int = 0
    verified_tokens: int = 0
    requests: int = 0
    aborted: int = 0
    last_throughput: float = 0.0

    @property
    def accept_length(self) -> float | None:
        return self.verified_tokens / self.verify_calls if self.verify_calls else None


def read_generate(body: dict[str, Any], rid: int, connection: Connection) -> State:
    """`POST /generate`. Raises `BadRequest`."""
    sampling = body.get("sampling_params") or {}
    text, ids = body.get("text"), body.get("input_ids")
    if isinstance(ids, list) and ids and all(isinstance(i, int) for i in ids):
        text = " ".join(map(str, ids))
    if not isinstance(text, str) or not text.strip():
        raise BadRequest("give `text` as one string, or `input_ids` as one list of numbers")
    message = _message(rid, text, sampling.get("max_new_tokens", DEFAULT_NEW_TOKENS), sampling.get("ignore_eos", False))
    return State(rid, "generate", message, connection, bool(body.get("stream", False)))


def read_openai(body: dict[str, Any], rid: int, connection: Connection, *, is_chat: bool) -> State:
    """`POST /v1/completions` or `/v1/chat/completions`. Raises `BadRequest`."""
    if is_chat:
        text = "\n".join(str(m.get("content", "")) for m in body.get("messages", []) if isinstance(m, dict))
    else:
        text = body.get("prompt", "")
    if not isinstance(text, str) or not text.strip():
        raise BadRequest("give one prompt as text")
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_COMPLETION_TOKENS
    message = _message(rid, text, wanted, body.get("ignore_eos", False))
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return State(rid, "chat" if is_chat else "completion", message, connection, bool(body.get("stream")), usage)


def health(rid: int, connection: Connection) -> State:
    """One token, to see whether the ranks answer."""
    message = _message(rid, "health", 1, True) | {"is_health": True}
    return State(rid, "health", message, connection, False)


def _message(rid: int, text: str, wanted: object, ignores_end: object) -> Message:
    if not isinstance(wanted, int) or wanted < 1:
        raise BadRequest(f"max_new_tokens must be a positive number, not {wanted!r}")
    return {"op": "generate", "rid": rid, "text": text, "max_new_tokens": wanted, "ignore_eos": bool(ignores_end)}


def update(state: State, message: Message) -> list[str]:
    """Take in what rank 0 says; the result is the words it brought."""
    if "prompt_tokens" in message:
        state.prompt_tokens = int(message["prompt_tokens"])
        state.cached_tokens = int(message["cached_tokens"])
        return []
    words = list(message["words"])
    state.words += words
    state.ids += message["ids"]
    state.verify_count = int(message["verify_count"])
    state.finish_reason = message["finish_reason"]
    return words


def add_up(totals: Totals, state: State) -> None:
    """A request that is over, in full or not, counts."""
    tokens = len(state.words)
    totals.requests += 1
    totals.aborted += state.finish_reason is None
    totals.prompt_tokens += state.prompt_tokens
    totals.cached_tokens += state.cached_tokens
    totals.generation_tokens += tokens
    if state.verify_count:
        totals.verify_calls += state.verify_count
        totals.verified_tokens += tokens - 1
    totals.last_throughput = tokens / max(1e-6, time.monotonic() - state.began_s)


def whole_answer(state: State, model: str, weight_version: str) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    if state.style == "generate":
        return _native(state, weight_version)
    text = " " + " ".join(state.words)
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": state.finish_reason}
    choice |= {"message": {"role": "assistant", "content": text.strip()}} if state.style == "chat" else {"text": text}
    return _envelope(state, model, [choice]) | {"usage": _usage(state)}


def chunk(state: State, words: list[str], model: str, weight_version: str) -> str:
    """One event of a stream. SGLang's own carries the whole text so far, OpenAI's what is new."""
    if state.style == "generate":
        return json.dumps(_native(state, weight_version))
    text = "".join(f" {word}" for word in words)
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": state.finish_reason}
    choice |= {"delta": {"content": text}} if state.style == "chat" else {"text": text}
    return json.dumps(_envelope(state, model, [choice]))


def usage_chunk(state: State, model: str) -> str:
    """The last event before the end, for those who asked for it."""
    return json.dumps(_envelope(state, model, []) | {"usage": _usage(state)})


def _native(state: State, weight_version: str) -> dict[str, Any]:
    tokens = len(state.words)
    finish = None
    if state.finish_reason is not None:
        detail = {"length": tokens} if state.finish_reason == "length" else {"matched": 163586}
        finish = {"type": state.finish_reason} | detail
    meta: dict[str, Any] = {
        "id": f"{state.rid:032x}",
        "finish_reason": finish,
        "prompt_tokens": state.prompt_tokens,
        "weight_version": weight_version,
        "completion_tokens": tokens,
        "cached_tokens": state.cached_tokens,
        "e2e_latency": time.monotonic() - state.began_s,
    }
    if state.verify_count:
        meta["spec_verify_ct"] = state.verify_count
        meta["spec_accept_length"] = tokens / state.verify_count
    return {"text": "".join(f" {word}" for word in state.words), "output_ids": state.ids, "meta_info": meta}


def _envelope(state: State, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    kind = "chat.completion" if state.style == "chat" else "text_completion"
    if state.is_stream and state.style == "chat":
        kind += ".chunk"
    return {"id": f"{state.rid:032x}", "object": kind, "created": int(time.time()), "model": model, "choices": choices}


def _usage(state: State) -> dict[str, Any]:
    return {
        "prompt_tokens": state.prompt_tokens,
        "completion_tokens": len(state.words),
        "total_tokens": state.prompt_tokens + len(state.words),
        "prompt_tokens_details": {"cached_tokens": state.cached_tokens},
    }
