"""What each path answers."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import Any, Protocol

from lab_hardware import settings

from sglang.srt.entrypoints.connection import Connection, HttpRequest
from sglang.srt.managers import tokenizer_manager as requests
from sglang.srt.managers.io_struct import Message, Pipe
from sglang.srt.server_args import ServerArgs
from sglang.version import __version__


class ServerPort(Protocol):
    """What the routes ask of the server's loop."""

    stage: str

    @property
    def lies_about_health(self) -> bool: ...

    def after(self, seconds: float, action: Any) -> None: ...  # noqa: ANN401 - any callable

    def on_idle(self) -> None: ...

    def serve(self, connection: Connection) -> None: ...

    def settle(self, connection: Connection) -> None: ...


class Routes:
    """Answers at once, or hands the request to rank 0 and answers as its tokens come."""

    def __init__(self, server_args: ServerArgs, rank0: Pipe, server: ServerPort) -> None:
        self._args = server_args
        self._rank0 = rank0
        self._server = server
        self._rids = count(1)
        self._states: dict[int, requests.State] = {}
        self._flushes: dict[int, Connection] = {}
        self._totals = requests.Totals()
        self._streamed = 0
        self.max_total_num_tokens = 0

    @property
    def active(self) -> list[int]:
        """Requests in flight, health checks apart."""
        return [rid for rid, state in self._states.items() if state.style != "health"]

    @property
    def was_used_to_the_end(self) -> bool:
        """Whether streams were answered, as a benchmark asks for them, and no answer was cut short."""
        return self._streamed > 0 and not self._totals.aborted and not self.active

    def answer(self, connection: Connection, request: HttpRequest) -> int:
        """Begin to answer; the result is the status for the access log."""
        is_authorized = request.headers.get("authorization") == f"Bearer {self._args.api_key}"
        if self._args.api_key and not is_authorized and not request.path.startswith("/health"):
            return self._say(connection, 401, {"error": "Unauthorized"})
        try:
            if request.path in ("/generate", "/v1/completions", "/v1/chat/completions"):
                return self._generate(connection, request)
            if request.path in ("/health", "/health_generate"):
                return self._health(connection)
            if request.path == "/flush_cache":
                return self._flush(connection)
        except requests.BadRequest as problem:
            return self._say(connection, 400, {"error": {"message": str(problem)}})
        return self._describe(connection, request.path)

    def on_message(self, message: Message) -> None:
        """Rank 0 has something for one of the requests."""
        rid = int(message["rid"])
        if rid in self._flushes:
            connection = self._flushes.pop(rid)
            status = 200 if message["flushed"] else 400
            connection.answer(status, "Cache flushed.\n" if status == 200 else "Requests are running.\n", "text/plain")
            self._server.serve(connection)
        elif rid in self._states:
            self._pass_on(self._states[rid], message)

    def forget(self, connection: Connection) -> None:
        """A client left: its requests end here."""
        for state in [s for s in self._states.values() if s.connection is connection]:
            self._rank0.send({"op": "abort", "rid": state.rid})
            self._finish(state)
        for rid in [r for r, c in self._flushes.items() if c is connection]:
            del self._flushes[rid]

    # ------------------------------------------------------------ tokens

    def _generate(self, connection: Connection, request: HttpRequest) -> int:
        if request.method != "POST":
            return self._say(connection, 405, {"detail": "Method Not Allowed"})
        if self._server.stage in ("loading", "draining"):
            return self._say(connection, 503, {"error": {"message": f"the server is {self._server.stage}"}})
        try:
            body = json.loads(request.body)
        except ValueError as problem:
            raise requests.BadRequest(f"the body is not JSON: {problem}") from problem
        if not isinstance(body, dict):
            raise requests.BadRequest("the body must be a JSON object")
        rid = next(self._rids)
        if request.path == "/generate":
            state = requests.read_generate(body, rid, connection)
        else:
            state = requests.read_openai(body, rid, connection, is_chat="chat" in request.path)
        limit = self._args.context_length
        if limit is not None and len(state.message["text"].split()) + state.message["max_new_tokens"] > limit:
            raise requests.BadRequest(f"the request is longer than the model's context of {limit} tokens")
        self._submit(state)
        return 200

    def _health(self, connection: Connection) -> int:
        if self._server.lies_about_health:
            return self._say(connection, 200, "", "text/plain")
        if self._server.stage != "up":
            return self._say(connection, 503, "", "text/plain")
        state = requests.health(next(self._rids), connection)
        self._submit(state)
        self._server.after(settings().constants.health_timeout_s, lambda: self._give_up_on_health(state))
        return 200

    def _give_up_on_health(self, state: requests.State) -> None:
        if self._states.pop(state.rid, None) is not None:
            state.connection.answer(503, "", "text/plain")
            self._server.serve(state.connection)

    def _submit(self, state: requests.State) -> None:
        self._states[state.rid] = state
        self._rank0.send(state.message)

    def _pass_on(self, state: requests.State, message: Message) -> None:
        words = requests.update(state, message)
        model, version = self._args.served_model_name, self._args.weight_version
        if not state.words:
            return
        if state.is_stream:
            if not state.has_begun:
                state.has_begun = True
                state.connection.begin_stream()
            state.connection.stream(requests.chunk(state, words, model, version))
        if state.finish_reason is None:
            self._server.settle(state.connection)
            return
        if state.style == "health":
            state.connection.answer(200, "", "text/plain")
        elif not state.is_stream:
            state.connection.answer(200, requests.whole_answer(state, model, version))
        else:
            if state.wants_usage:
                state.connection.stream(requests.usage_chunk(state, model))
            state.connection.stream("[DONE]")
            state.connection.end_stream()
        connection = state.connection
        self._finish(state)
        self._server.serve(connection)

    def _finish(self, state: requests.State) -> None:
        del self._states[state.rid]
        if state.style != "health":
            self._streamed += state.is_stream and state.finish_reason is not None
            requests.add_up(self._totals, state)
        self._server.on_idle()

    def _flush(self, connection: Connection) -> int:
        if self.active:
            return self._say(connection, 400, "Cache not flushed because there are pending requests.\n", "text/plain")
        rid = next(self._rids)
        self._flushes[rid] = connection
        self._rank0.send({"op": "flush", "rid": rid})
        return 200

    # ------------------------------------------------------------ descriptions

    def _describe(self, connection: Connection, path: str) -> int:
        if path in ("/model_info", "/get_model_info"):
            return self._say(connection, 200, self._model_info())
        if path in ("/server_info", "/get_server_info"):
            return self._say(connection, 200, self._server_info())
        if path == "/v1/models":
            return self._say(connection, 200, self._models())
        if path == "/metrics" and self._args.enable_metrics:
            return self._say(connection, 200, self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
        return self._say(connection, 404, {"detail": "Not Found"})

    def _say(self, connection: Connection, status: int, content: Any, kind: str = "application/json") -> int:  # noqa: ANN401
        connection.answer(status, content, kind)
        return status

    def _model_info(self) -> dict[str, Any]:
        return {
            "model_path": self._args.model_path,
            "tokenizer_path": self._args.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": self._args.weight_version,
            "model_type": self._args.model_config.get("model_type"),
            "architectures": self._args.model_config["architectures"],
        }

    def _models(self) -> dict[str, Any]:
        model = {
            "id": self._args.served_model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": self._args.served_model_name,
            "max_model_len": self._args.context_length,
        }
        return {"object": "list", "data": [model]}

    def _server_info(self) -> dict[str, Any]:
        constants = settings().constants
        state = {
            "last_gen_throughput": self._totals.last_throughput,
            "avg_spec_accept_length": self._totals.accept_length,
            "memory_usage": {
                "weight": round(constants.weights_gib / self._args.tp_size, 2),
                "kvcache": round(self.max_total_num_tokens * constants.kv_kib_per_token / 1024 / 1024, 2),
                "token_capacity": self.max_total_num_tokens,
            },
        }
        return self._args.values | {
            "status": "ready" if self._server.stage == "up" else self._server.stage,
            "max_total_num_tokens": self.max_total_num_tokens,
            "internal_states": [state],
            "version": __version__,
        }

    def _metrics(self) -> str:
        totals = self._totals
        values = {
            "prompt_tokens_total": ("counter", totals.prompt_tokens),
            "generation_tokens_total": ("counter", totals.generation_tokens + self._tokens_in_flight()),
            "cached_tokens_total": ("counter", totals.cached_tokens),
            "num_requests_total": ("counter", totals.requests),
            "num_aborted_requests_total": ("counter", totals.aborted),
            "num_running_reqs": ("gauge", len(self.active)),
            "num_queue_reqs": ("gauge", 0),
            "gen_throughput": ("gauge", totals.last_throughput),
            "spec_accept_length": ("gauge", totals.accept_length or 0.0),
            "max_total_num_tokens": ("gauge", self.max_total_num_tokens),
        }
        label = f'{{engine_type="unified",model_name="{self._args.served_model_name}"}}'
        lines = []
        for name, (kind, value) in values.items():
            lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{label} {float(value)}"]
        return "\n".join(lines) + "\n"

    def _tokens_in_flight(self) -> int:
        return sum(len(s.words) for s in self._states.values() if s.style != "health")
