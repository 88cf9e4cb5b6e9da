"""Which names are secret, and that their values are masked in every form."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.secrets import Masker, is_secret, mask_args, mask_env, mask_words, secret_values

SECRET = [
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "TOKEN", "TOKEN_FILE", "MY_API_KEY", "API_KEY", "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID", "CLIENT_SECRET", "PASSWORD", "DB_PASSWORD_2", "hf_token", "--api-key", "admin-api-key",
    "--hf-token", "Api-Key",
]  # fmt: skip
OPEN = [
    "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "TOKENIZER_PATH", "tokenizer-path", "MAX_TOKENS", "SECRETARY",
    "API", "KEY", "APIKEY", "ACCESS", "PASSWORDLESS", "KEY_API", "NCCL_ALGO", "", "--", "prompt_tokens",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_secret_names(name: str) -> None:
    """Names that hold one of the words as a whole word are secret."""
    assert is_secret(name, ())


@pytest.mark.parametrize("name", OPEN)
def test_open_names(name: str) -> None:
    """Names that merely contain the letters are not."""
    assert not is_secret(name, ())


def test_marked_names() -> None:
    """A marked name is secret, as a variable and as a flag; its neighbours are not."""
    assert is_secret("LICENSE", ["LICENSE"])
    assert is_secret("--my-license", ["MY_LICENSE"])
    assert not is_secret("LICENSE_PATH", ["LICENSE"])


def test_env() -> None:
    """Secret values are masked, unset and empty ones shown."""
    env = {"HF_TOKEN": "hf_1", "API_KEY": None, "SECRET": "", "NCCL_ALGO": "Tree", "X": "y"}
    assert mask_env(env, ["X"]) == {"HF_TOKEN": "***", "API_KEY": None, "SECRET": "", "NCCL_ALGO": "Tree", "X": "***"}


def test_args() -> None:
    """Flags are masked at any depth; a bare flag has nothing to mask."""
    args = {"api-key": "k", "hf-token": True, "tp": 8, "json": {"api_key": 12345, "n": [{"password": "p"}, 1]}}
    assert mask_args(args) == {
        "api-key": "***", "hf-token": True, "tp": 8, "json": {"api_key": "***", "n": [{"password": "***"}, 1]},
    }  # fmt: skip


def test_words() -> None:
    """A command line hides the word after a secret flag, and what follows `=`."""
    words = ["HF_TOKEN=a b", "serve", "--api-key", "k", "--admin-api-key=k2", "--tp", "8", "--hf-token", "--x", "A=1"]
    assert mask_words(words) == [
        "HF_TOKEN=***", "serve", "--api-key", "***", "--admin-api-key=***", "--tp", "8", "--hf-token", "--x", "A=1",
    ]  # fmt: skip


def test_secret_values() -> None:
    """Values are found by name at any depth, numbers as their text, flags without a value not at all."""
    data = {
        "env": {"HF_TOKEN": "hf_1", "N": "2"},
        "args": {"api-key": 12345, "hf-token": True, "j": [{"SECRET": ["s"]}]},
    }
    assert secret_values(data) == {"hf_1", "12345", "s"}
    assert secret_values(data, ["N"]) == {"hf_1", "12345", "s", "2"}


def test_masker_prefers_the_longer() -> None:
    """A secret that begins with another one leaves no tail behind."""
    assert Masker(["abcd", "abcdefgh"]).text("abcdefgh abcd") == "*** ***"


def test_masker_leaves_short_values() -> None:
    """A value below four characters would blot out innocent text."""
    assert Masker(["8", "abc"]).text("8 abc") == "8 abc"
    assert Masker([]).text("x") == "x"


def test_masker_data() -> None:
    """JSON keeps its shape; keys and nested texts are masked, numbers and null are kept."""
    masked = Masker(["hunter22"]).data({"a": ["x hunter22", 1, None, True], "hunter22": {"b": ("hunter22",)}})
    assert masked == {"a": ["x ***", 1, None, True], "***": {"b": ["***"]}}


@given(st.text(min_size=4, max_size=20).filter(lambda s: set(s) - set("*")), st.text(max_size=10), st.text(max_size=10))
def test_masker_finds_every_form(secret: str, before: str, after: str) -> None:
    """Plain, in JSON, in a shell word and in a Python literal: the secret is gone."""
    masker = Masker([secret])
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], shlex.quote(secret)):
        assert secret not in masker.text(form)
        assert "***" in masker.text(before + form + after)
