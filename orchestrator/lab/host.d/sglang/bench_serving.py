"""A benchmark client with the flags and the result file of SGLang's, for requests of fixed length."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORDS = 50_000


@dataclass
class Output:
    """One request. Times in seconds; `itl` between chunks."""

    prompt_len: int
    text: str = ""
    error: str = ""
    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    output_len: int = 0
    latency: float = 0.0


def main() -> None:
    args = parse()
    rng = random.Random(args.seed)  # noqa: S311 - prompts, not secrets
    lengths = [_length(rng, args.random_input_len, args.random_range_ratio) for _ in range(args.num_prompts)]
    prompts = [" ".join(f"w{rng.randrange(WORDS)}" for _ in range(length)) for length in lengths]
    wanted = [_length(rng, args.random_output_len, args.random_range_ratio) for _ in prompts]
    for _ in range(args.warmup_requests):
        ask(args, prompts[0], min(wanted[0], 32))
    if args.flush_cache:
        _post(args, "/flush_cache", b"")
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=args.max_concurrency or len(prompts)) as pool:
        outputs = list(pool.map(lambda pair: ask(args, *pair), zip(prompts, wanted)))  # noqa: B905
    result = summary(args, outputs, time.monotonic() - began)
    if args.output_details:
        good = [o for o in outputs if not o.error]
        result |= {
            "input_lens": [o.prompt_len for o in outputs],
            "output_lens": [o.output_len for o in good],
            "ttfts": [o.ttft for o in outputs],
            "itls": [o.itl for o in outputs],
            "generated_texts": [o.text for o in outputs],
            "errors": [o.error for o in outputs],
        }
    with Path(args.output_file).open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"Successful requests: {result['completed']}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmark the online serving throughput.")
    parser.add_argument("--backend", default="sglang", choices=["sglang"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--model")
    parser.add_argument("--dataset-name", default="random-ids", choices=["random", "random-ids"])
    for name, default in (("random-input-len", 1024), ("random-output-len", 1024), ("num-prompts", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--random-range-ratio", type=float, default=0.0)
    parser.add_argument("--max-concurrency", type=int)
    parser.add_argument("--request-rate", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warmup-requests", type=int, default=1)
    for name in ("flush-cache", "disable-tqdm", "output-details"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--output-file", required=True)
    return parser.parse_args()


def _length(rng: random.Random, most: int, ratio: float) -> int:
    """Between that share of the length and all of it: a ratio of 1 is a fixed length."""
    return rng.randint(max(1, int(most * ratio)), most)


def ask(args: argparse.Namespace, prompt: str, tokens: int) -> Output:
    """One streamed request, timed by its chunks. What goes wrong is the output's error."""
    output = Output(prompt_len=len(prompt.split()))
    body = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}}
    began = last = time.monotonic()
    try:
        connection, response = _open(args, "/generate", json.dumps(body | {"stream": True}).encode())
        if response.status != 200:
            output.error = f"{response.status} {response.reason}"
        while not output.error and (line := response.readline()):
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            event = json.loads(line[5:])
            now = time.monotonic()
            if output.ttft:
                output.itl.append(now - last)
            else:
                output.ttft = now - began
            last = now
            output.text, output.output_len = event["text"], event["meta_info"]["completion_tokens"]
        connection.close()
    except (OSError, http.client.HTTPException, ValueError) as problem:
        output.error = f"{type(problem).__name__}: {problem}"
    output.latency = last - began
    return output


def _open(
    args: argparse.Namespace, path: str, body: bytes
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    headers = {"Content-Type": "application/json"}
    if os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    connection = http.client.HTTPConnection(args.host, args.port, timeout=600)
    connection.request("POST", path, body, headers)
    return connection, connection.getresponse()


def _post(args: argparse.Namespace, path: str, body: bytes) -> None:
    connection, response = _open(args, path, body)
    response.read()
    connection.close()


def summary(args: argparse.Namespace, outputs: list[Output], seconds: float) -> dict[str, Any]:
    good = [o for o in outputs if not o.error]
    prompt, output = sum(o.prompt_len for o in good), sum(o.output_len for o in good)
    result: dict[str, Any] = {
        "backend": args.backend,
        "dataset_name": args.dataset_name,
        "max_concurrency": args.max_concurrency,
        "duration": seconds,
        "completed": len(good),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "total_output_tokens_retokenized": sum(len(o.text.split()) for o in good),
        "request_throughput": len(good) / seconds,
        "output_throughput": output / seconds,
        "accept_length": None,
    }
    times = {"ttft": [o.ttft for o in good], "e2e_latency": [o.latency for o in good]}
    times["itl"] = [gap for o in good for gap in o.itl]
    for name, values in times.items():
        if values:
            result[f"mean_{name}_ms"] = 1000 * statistics.fmean(values)
            result[f"median_{name}_ms"] = 1000 * statistics.median(values)
            result[f"p99_{name}_ms"] = 1000 * sorted(values)[min(len(values) * 99 // 100, len(values) - 1)]
    return result


if __name__ == "__main__":
    main()
