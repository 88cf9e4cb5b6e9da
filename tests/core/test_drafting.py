"""What a first playbook says, from command lines and environments as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from orchestrator.agent.servicing import is_secret, mask_words
from orchestrator.core.drafting import Draft, Live, read_live, write
from orchestrator.serving.configuration import flag_words

ACCOUNT = {"PATH": "/usr/bin", "HOME": "/home/me", "LANG": "C.UTF-8"}


def seen(*cmdline: str, **more: Any) -> dict[str, Any]:
    plain = {
        "port": 30000, "pid": 7, "user": "me", "program": "/opt/sglang/bin/python", "cmdline": list(cmdline),
        "cwd": "/srv", "variables": dict(ACCOUNT), "above": [], "unit": None, "container": None, "unclear": None,
    }  # fmt: skip
    return {**plain, **more}


def read(*cmdline: str, **more: Any) -> Live:
    live = read_live(seen(*cmdline, **more), ACCOUNT)
    assert live is not None
    return live


def test_a_command_line_becomes_model_port_and_flags() -> None:
    """Bare flags are true, several words a list, `=` and underscores as the engine takes them; ours are left out."""
    live = read(
        "python", "-m", "sglang.launch_server", "--model-path", "/models/k", "--port", "31000", "--tp", "8",
        "--trust_remote_code", "--cuda-graph-bs", "1", "2", "--mem-fraction-static=0.9", "--weight-version", "mine",
        "--dtype", "007",
    )  # fmt: skip
    assert (live.engine, live.model, live.port) == ("sglang", "/models/k", 31000)
    assert live.args == {
        "tp": 8, "trust-remote-code": True, "cuda-graph-bs": [1, 2], "mem-fraction-static": 0.9, "dtype": "007",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "engine", "port"),
    [
        (("/v/bin/python", "/v/bin/vllm", "serve", "org/model", "--port", "9000"), "vllm", 9000),
        (("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"), "vllm", 8000),
        (("/v/bin/sglang", "serve", "--model-path", "org/model"), "sglang", 30000),
    ],
)
def test_every_way_to_start_an_engine_is_read(words: tuple[str, ...], engine: str, port: int) -> None:
    live = read(*words)
    assert (live.engine, live.model, live.port) == (engine, "org/model", port)


def test_what_is_not_launched_so_is_no_baseline() -> None:
    assert read_live(seen("python", "-m", "sglang.bench_serving"), ACCOUNT) is None


def test_the_environment_is_what_differs_from_the_accounts() -> None:
    """What comes with a login is left out, what the account has and the server lacks is unset, a secret is a name."""
    variables = {
        "PATH": "/opt/bin:/usr/bin",
        "HOME": "/home/me",
        "NCCL_ALGO": "Ring",
        "SSH_TTY": "/dev/pts/1",
        "PWD": "/x",
    }
    live = read(
        "python", "-m", "sglang.launch_server",
        variables={**variables, "HF_TOKEN": None, "CUDA_VISIBLE_DEVICES": "2,3"},
    )  # fmt: skip
    assert live.env == {"NCCL_ALGO": "Ring", "PATH": "/opt/bin:/usr/bin", "LANG": None}
    assert live.from_service == ("HF_TOKEN",) and live.gpus == (2, 3)
    named = read("python", "-m", "sglang.launch_server", variables={**ACCOUNT, "CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2"})
    assert named.gpus is None and named.env == {"CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2"}


@pytest.mark.parametrize(
    ("more", "service"),
    [
        ({}, {"process": {}}),
        (
            {"unit": "llm.service", "unclear": {"why": "w", "hint": "service: {systemd: llm.service}"}},
            {"systemd": "llm.service"},
        ),
        (
            {"unit": "llm.service", "unclear": {"why": "w", "hint": "service: {systemd: llm.service, user: true}"}},
            {"systemd": "llm.service", "user": True},
        ),
        ({"container": "docker 0123456789ab", "unclear": {"why": "w", "hint": "h"}}, {"docker": "0123456789ab"}),
        ({"unclear": {"why": "supervisord would start it again", "hint": "h"}}, None),
    ],
)  # fmt: skip
def test_who_starts_it_is_said_as_a_target_says_it(more: dict[str, Any], service: dict[str, Any] | None) -> None:
    assert read("python", "-m", "sglang.launch_server", **more).service == service


_NAMES = st.sampled_from(["tp-size", "dtype", "cuda-graph-bs", "chat-template", "trust-remote-code", "host"])
_WORDS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), min_size=1, max_size=12
)
_VALUES = st.one_of(
    st.just([]), st.lists(_WORDS.filter(lambda word: not word.startswith("--")), min_size=1, max_size=3)
)


@settings(max_examples=100)
@given(st.dictionaries(_NAMES, _VALUES, max_size=5))
def test_the_written_flags_are_the_words_that_were_read(flags: dict[str, list[str]]) -> None:
    """Through the text of the playbook and back: the server of a launch gets the very words of the live one."""
    words = [word for name, values in flags.items() for word in (f"--{name}", *values)]
    live = read("python", "-m", "sglang.launch_server", *words)
    text = write(Draft("host", {"route": "local"}, live, "/tree", blanks=[("x", "y")]))
    target = YAML(typ="safe").load(text)["targets"]["found"]
    assert flag_words(target["args"] or {}) == words


@settings(max_examples=100)
@given(_NAMES, _WORDS, _WORDS)
def test_nothing_seen_can_break_out_of_a_comment_or_a_value(name: str, word: str, other: str) -> None:
    live = read(
        "python",
        "-m",
        "sglang.launch_server",
        f"--{name}",
        f"{word}\nhosts: {{}}",
        above=[{"pid": 2, "cmdline": [f"{other}\nx: y"]}],
    )
    loaded = YAML(typ="safe").load(write(Draft("a: b", {"route": "local"}, live, None, notes=["n\nhosts: x"])))
    assert set(loaded) == {"campaign", "hosts", "targets", "workload", "measure", "hypotheses"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HF_TOKEN", "hf_x", True), ("OPENAI_API_KEY", "x", True), ("MY_SECRET", "x", True), ("DB_PASSWORD", "x", True),
        ("TOKENIZER_PATH", "/x", False), ("MAX_TOKENS", "32", False), ("SOMETHING", "hf_abcdefghij", True),
        ("PROXY", "http://me:pw@proxy:3128", True), ("PATH", "/usr/bin", False), ("HF_TOKEN", "", False),
    ],
)  # fmt: skip
def test_secrets_are_told_by_name_and_by_look(name: str, value: str, expected: bool) -> None:
    assert is_secret(name, value) is expected


def test_secret_flags_are_masked_among_words() -> None:
    words = ["x", "--api-key", "abc", "--hf-token=def", "--tokenizer-path", "/t", "--max-total-tokens", "4096"]
    masked = ["x", "--api-key", "***", "--hf-token=***", "--tokenizer-path", "/t", "--max-total-tokens", "4096"]
    assert mask_words(words) == masked
