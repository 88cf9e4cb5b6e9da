"""Flags and environments become exactly the words and variables that were written."""

from __future__ import annotations

import argparse
import json

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.model import Target
from orchestrator.serving.configuration import Configuration, flag_words, merge_env, merge_flags
from orchestrator.serving.environment import server_environment
from orchestrator.serving.sglang import SglangEngine
from orchestrator.serving.vllm import VllmEngine

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4))
def test_json_values_survive_the_command_line(value: dict[str, object]) -> None:
    """A mapping arrives at the server's parser as the same JSON, whatever quotes and spaces it holds."""
    words = flag_words({"speculative-config": value})
    parser = argparse.ArgumentParser()
    parser.add_argument("--speculative-config", type=json.loads)
    assert parser.parse_args(words).speculative_config == value


def test_a_flag_is_bare_valued_repeated_or_absent() -> None:
    """True is a bare flag, null and false remove it, a list gives several words."""
    flags = {"a": True, "b": 8, "c": None, "d": False, "e": ["x y", "$z"], "f": ""}
    assert flag_words(flags) == ["--a", "--b", "8", "--e", "x y", "$z", "--f", ""]


def test_later_layers_win_and_null_removes() -> None:
    """A change on top of the baseline can replace a flag, drop it, and unset a variable."""
    assert merge_flags({"tp-size": 8, "x": True}, {"x": None, "ep-size": 8}) == {"tp-size": 8, "ep-size": 8}
    assert merge_env({"A": "1", "B": "2"}, {"A": None, "C": "3"}) == {"B": "2", "C": "3"}


def test_a_server_inherits_only_named_variables() -> None:
    """The environment of a launch is whole and explicit: account basics, GPUs, then what was configured."""
    target = Target(python="/venv/bin/python", gpus=(0, 3))
    account = {"PATH": "/usr/bin", "HOME": "/root", "SSH_CONNECTION": "x", "PYTHONDONTWRITEBYTECODE": "1"}
    env = server_environment(target, Configuration(env={"NCCL_ALGO": "Tree", "HOME": None}), account)
    ours = {"SPT_NOENV": "1"}  # keeps the environment of the ranks readable
    assert env == {"PATH": "/venv/bin:/usr/bin", "CUDA_VISIBLE_DEVICES": "0,3", "NCCL_ALGO": "Tree", **ours}


def test_the_launch_name_comes_back_from_the_server() -> None:
    """Each engine puts the launch's name where its ready check reads it, so a stranger's answer is told apart."""
    target = Target(python="/p", model="/m", port=3)
    for engine in (SglangEngine(), VllmEngine()):
        assert "orc-1" in engine.argv(target, Configuration(), "orc-1")
        assert "orc-1" in json.dumps(engine.ready_spec(target, "orc-1")["expect"])
