"""Settings as servers report them: which may differ between two launches, and which tell of unequal servers. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from orchestrator.serving.configuration import flag_key

_OF_A_LAUNCH = frozenset(
    {
        "api_key", "admin_api_key", "dist_init_addr", "download_dir", "host", "launch_id", "nccl_port", "port",
        "random_seed", "served_model_name", "start_time", "startup_time", "status", "uptime", "weight_version",
        "last_gen_throughput", "avg_spec_accept_length", "max_total_num_tokens", "log_level",
        "log_level_http", "metrics_port", "crash_dump_folder", "kv_events_config", "decode_log_interval",
    }
)  # fmt: skip
"""Different in every launch, or compared elsewhere with a tolerance of its own (the cache's size)."""
_DERIVED = frozenset(
    {
        "attention_backend", "chunked_prefill_size", "cuda_graph_bs", "cuda_graph_max_bs", "decode_attention_backend",
        "disable_cuda_graph_padding", "disable_overlap_schedule", "max_prefill_tokens", "max_running_requests",
        "mem_fraction_static", "moe_a2a_backend", "moe_runner_backend", "page_size", "prefill_attention_backend",
        "sampling_backend", "schedule_conservativeness", "swa_full_tokens_ratio",
    }
)  # fmt: skip
"""What engines derive from other flags by themselves: with a flag that was changed this is its consequence."""
_SHORTEST_WORD = 4


def comparable(resolved: Mapping[str, Any] | None) -> dict[str, str]:
    """Settings that two launches of one configuration share, as text."""
    return {name: str(value) for name, value in (resolved or {}).items() if name not in _OF_A_LAUNCH}


def treated_names(
    baseline: Mapping[str, str], treatment: Mapping[str, str], flags: Iterable[str], may_differ: Sequence[str]
) -> list[str]:
    """Names that may differ: the flags of the treatment, what shares a word with one, what the playbook allows, and,
    where a flag was changed, what the engine derives."""
    keys = [flag_key(flag) for flag in flags]
    words = {word for key in keys for word in key.split("_") if len(word) >= _SHORTEST_WORD} - _COMMON
    allowed = {*keys, *map(flag_key, may_differ)}
    if keys:
        allowed |= _DERIVED
    allowed |= {name for name in baseline.keys() & treatment.keys() if words & set(name.split("_"))}
    return sorted(allowed)


_COMMON = frozenset(
    {"disable", "enable", "size", "mode", "path", "backend", "type", "dtype", "model", "token", "tokens"}
)
"""Words that settings share without having anything to do with one another."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:-\w+)*")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Contents = tuple[str, bytes | None, bytes | None]
"""The path of one file, and what it holds before and after; None where there is none."""


def patched_names(differing: Iterable[str], files: Iterable[Contents]) -> list[str]:
    """Those settings among `differing` that the changes of the files account for: a statement that was changed names
    them, such as the condition under which an engine sets one by itself. With one of them goes what engines derive."""
    wanted = set(differing)
    if not wanted:
        return []
    named: set[str] = set()
    for path, before, after in files:
        named |= _names_changed(before or b"", after or b"", is_python=path.endswith(".py"))
    found = wanted & named
    return sorted(found | (wanted & _DERIVED)) if found else []


def _names_changed(before: bytes, after: bytes, *, is_python: bool) -> set[str]:
    """Names in the innermost statements that lines were taken from or put into; of what is no Python, in the lines."""
    texts = [data.decode("utf-8", "replace") for data in (before, after)]
    lines = [text.splitlines() for text in texts]
    spans = [_statements(text) if is_python else [] for text in texts]
    names: set[str] = set()
    for tag, *ends in SequenceMatcher(None, lines[0], lines[1], autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for side, (first, last) in enumerate((ends[:2], ends[2:])):
            for number in range(first + 1, last + 1):
                start, end = _innermost(spans[side], number)
                names.update(name for line in lines[side][start - 1 : end] for name in _names(line))
    return names


def _names(line: str) -> Iterator[str]:
    """Words as names of settings: `--ep-size` is `ep_size`, and might be a difference of two."""
    for word in _NAME.findall(line):
        yield flag_key(word)
        yield from word.split("-")


def _statements(text: str) -> list[tuple[int, int]]:
    """First and last line of every statement, from 1. Functions and classes are no reason for all that they hold."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    statements = (n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not isinstance(n, _SCOPES))
    return [(statement.lineno, statement.end_lineno or statement.lineno) for statement in statements]


def _innermost(spans: Sequence[tuple[int, int]], number: int) -> tuple[int, int]:
    around = [span for span in spans if span[0] <= number <= span[1]]
    return min(around, key=lambda span: span[1] - span[0], default=(number, number))
