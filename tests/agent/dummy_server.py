"""A small inference server for tests of the agent: `python dummy_server.py '{"port": …, …}'`.

Keys: port, health (status), health_after (number of asks answered 503 before), weight_version, api_key, generate
(ok, empty, error500, hang, exit), stream (ok, early, inband, exit, spec), gap_s, ignore_term, title, warm_s (seconds
that each of the first streams takes longer), access_log, metrics.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SPEC = json.loads(sys.argv[1])
ASKED = {"health": 0, "streams": 0}
RUNNING = threading.Event()


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        if SPEC.get("api_key") and self.headers.get("Authorization") != f"Bearer {SPEC['api_key']}":
            self.answer(401, {"error": "no key"})
        elif self.path == "/health":
            ASKED["health"] += 1
            is_up = ASKED["health"] > SPEC.get("health_after", 0)
            self.answer(SPEC.get("health", 200) if is_up else 503, {})
        elif self.path == "/metrics" and SPEC.get("metrics"):
            self.answer(200, f'# TYPE d counter\ndummy:streams_total {ASKED["streams"]}\ndummy:x_bucket{{le="1"}} 1\n')
        elif self.path == "/model_info":
            self.answer(200, {"weight_version": SPEC.get("weight_version"), "list": [{"id": "a"}]})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if SPEC.get("access_log"):
            print(f'INFO:     127.0.0.1:1 - "POST {self.path} HTTP/1.1" 200 OK', flush=True)
        if self.path == "/flush_cache":
            self.answer(SPEC.get("flush", 200), {})
        elif body.get("stream"):
            self.stream(body)
        else:
            self.generate()

    def generate(self) -> None:
        mode = SPEC.get("generate", "ok")
        if mode == "hang":
            time.sleep(600)
        if mode == "exit":
            os._exit(7)
        if mode == "error500":
            self.answer(500, {"error": "no kernel image is available"})
        else:
            self.answer(200, {"text": "" if mode == "empty" else "four", "meta_info": {"completion_tokens": 4}})

    def stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        tokens = body.get("sampling_params", {}).get("max_new_tokens") or body.get("max_tokens")
        slow = SPEC.get("warm_s", [])
        time.sleep(slow[ASKED["streams"]] if ASKED["streams"] < len(slow) else 0)
        ASKED["streams"] += 1
        events = self.openai(tokens) if "prompt" in body else self.sglang(tokens)
        for number, event in enumerate(events):
            if number == 3 and SPEC.get("stream") == "exit":
                os._exit(9)
            if number == 3 and SPEC.get("stream") == "inband":
                self.chunk({"error": {"message": "CUDA error: device-side assert triggered"}})
                break
            if number == 3 and SPEC.get("stream") == "early":
                break
            time.sleep(SPEC.get("gap_s", 0.002))
            self.chunk(event)
        else:
            self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def sglang(self, tokens: int) -> Iterator[dict[str, Any]]:
        step = 4 if SPEC.get("stream") == "spec" else 1
        counts = [*range(1, tokens, step), tokens]
        for count in dict.fromkeys(counts):
            meta: dict[str, Any] = {
                "completion_tokens": count,
                "prompt_tokens": 5,
                "cached_tokens": 2,
                "finish_reason": None,
            }
            if count == tokens:
                meta["finish_reason"] = {"type": "length", "length": tokens}
            if step > 1:
                meta["spec_accept_length"] = 3.5
            yield {"text": "x" * count, "meta_info": meta}

    def openai(self, tokens: int) -> Iterator[dict[str, Any]]:
        for count in range(tokens):
            finish = "length" if count == tokens - 1 else None
            yield {"choices": [{"text": "x", "finish_reason": finish}]}
        yield {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}

    def chunk(self, event: dict[str, Any] | str) -> None:
        text = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def answer(self, status: int, body: dict[str, Any] | str) -> None:
        raw = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if SPEC.get("ignore_term"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(SPEC.get("start_s", 0))
server = Server(("127.0.0.1", SPEC["port"]), Door)
print("serving", flush=True)
server.serve_forever()
