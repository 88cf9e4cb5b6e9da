"""The first request, sent by the server to its own address: to whoever answers there."""

from __future__ import annotations

import json
import socket
import time

WARMUP_TOKENS = 4
RETRY_S = 0.05


def warm_up(host: str, port: int, api_key: str | None, timeout_s: float) -> None:
    """Ask for the model, then for a few tokens. Raises OSError or ValueError when neither comes in time."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            _ask(host, port, "GET", "/model_info", None, api_key, deadline_s - time.monotonic())
            break
        except (OSError, ValueError):
            if time.monotonic() + RETRY_S > deadline_s:
                raise
            time.sleep(RETRY_S)
    sampling = {"temperature": 0, "max_new_tokens": WARMUP_TOKENS, "ignore_eos": True}
    body = {"text": "The capital city of France is", "sampling_params": sampling}
    _ask(host, port, "POST", "/generate", body, api_key, deadline_s - time.monotonic())


def _ask(host: str, port: int, method: str, path: str, body: object, api_key: str | None, timeout_s: float) -> None:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: close"]
    lines.append(f"Content-Length: {len(content)}")
    if api_key:
        lines.append(f"Authorization: Bearer {api_key}")
    with socket.create_connection((host, port), timeout=max(0.1, timeout_s)) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + content)
        reply = b""
        while data := sock.recv(1 << 16):
            reply += data
    status = reply.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise ValueError(f"{method} {path} was answered with {reply[:80]!r}")
