"""What a treatment tells the engine, judged on the tree as its patches will leave it."""

from __future__ import annotations

from orchestrator.controller.preconditions import Source, judge
from orchestrator.controller.treatment import FileEdit, Treatment
from orchestrator.serving.configuration import Configuration
from orchestrator.serving.treatment import Expectation
from orchestrator.serving.vocabulary import SGLANG, VLLM

PARSER = 'parser.add_argument("--tp-size")\nparser.add_argument("--cuda-graph-max-bs")\n'
REGISTRY = "class Envs:\n    SGLANG_CACHE_DIR = EnvStr('x')\n"
SOURCE = Source({"/t/sglang/srt/server_args.py": PARSER}, {"/t/sglang/srt/environ.py": REGISTRY})
GOOD = frozenset({"--tp-size"})


def treat(
    flags: dict[str, int] | None = None, env: dict[str, str] | None = None, edits: tuple[FileEdit, ...] = ()
) -> Treatment:
    return Treatment(edits, Configuration(flags or {}, env or {}), Expectation(flags=flags or {}, environ=env or {}))


def test_an_unknown_flag_is_unmet_and_a_patch_can_make_it_known() -> None:
    """The parser is read with the patch in it."""
    unknown = treat({"cuda-graph-max-bz": 8})
    (why,) = judge(unknown, SGLANG, SOURCE, "/t/sglang", GOOD).unmet
    assert "perhaps --cuda-graph-max-bs" in why
    after = (PARSER + 'parser.add_argument("--cuda-graph-max-bz")\n').encode()
    edit = FileEdit("/t/sglang/srt/server_args.py", PARSER.encode(), after)
    assert judge(treat({"cuda-graph-max-bz": 8}, edits=(edit,)), SGLANG, SOURCE, "/t/sglang", GOOD).unmet == ()


def test_an_unread_variable_is_unmet_and_a_patch_can_read_it() -> None:
    """The seed's own variable: alone it does nothing, with the patch that reads it it is an experiment."""
    env = {"SGLANG_FORCE_CUSTOM_AR_PCIE": "1"}
    (why,) = judge(treat(env=env), SGLANG, SOURCE, "/t/sglang", GOOD).unmet
    assert "SGLANG_FORCE_CUSTOM_AR_PCIE" in why
    edit = FileEdit("/t/sglang/srt/x.py", b"", b"if os.environ.get('SGLANG_FORCE_CUSTOM_AR_PCIE'): pass\n")
    assert judge(treat(env=env, edits=(edit,)), SGLANG, SOURCE, "/t/sglang", GOOD).unmet == ()


def test_a_reading_that_misses_a_flag_in_use_decides_nothing() -> None:
    """Whoever does not know the flags the server runs with has not understood its parser."""
    assert judge(treat({"x": 1}), SGLANG, SOURCE, "/t/sglang", frozenset({"--in-use"})).unmet == ()


def test_a_parser_broken_by_the_patch_is_left_to_the_launch() -> None:
    """The crash is the experiment's result, not a missing precondition."""
    edit = FileEdit("/t/sglang/srt/server_args.py", PARSER.encode(), b"def broken(:")
    assert judge(treat({"x": 1}, edits=(edit,)), SGLANG, SOURCE, "/t/sglang", GOOD).unmet == ()


def test_a_name_that_nccl_does_not_hold_is_remarked_and_launched() -> None:
    """Plug-ins read NCCL_ variables too, so this is a remark and no refusal."""
    source = Source({}, {}, nccl=frozenset({"NCCL_ALGO"}))
    words = judge(treat(env={"NCCL_ALGO": "Ring", "NCCL_ALGOS": "x"}), SGLANG, source, "/t/sglang", GOOD)
    assert words.unmet == () and len(words.remarks) == 1 and "NCCL_ALGOS" in words.remarks[0]


VLLM_ENGINE = """
class EngineArgs:
    def add_cli_args(parser):
        parser.add_argument("--model")
        parser.add_argument("--served-model-name")
        parser.add_argument("--max-num-seqs")
"""
VLLM_FRONTEND = """
class FrontendArgs:
    port: int = 8000
    def add_cli_args(parser):
        for key, value in kwargs.items():
            group.add_argument(f"--{key.replace('_', '-')}", **value)
"""
VLLM_PARSERS = {"/t/vllm/engine/arg_utils.py": VLLM_ENGINE, "/t/vllm/entrypoints/openai/cli_args.py": VLLM_FRONTEND}


def test_vllm_is_judged_where_both_its_parsers_were_read() -> None:
    """A flag it does not know is unmet; where one of the two files moved elsewhere, nothing is said."""
    whole = Source(VLLM_PARSERS, {})
    (why,) = judge(treat({"max-num-seq-s": 8}), VLLM, whole, "/t/vllm", frozenset({"--max_num_seqs"})).unmet
    assert "--max-num-seq-s" in why and "perhaps --max-num-seqs" in why
    assert judge(treat({"max-num-seqs": 8}), VLLM, whole, "/t/vllm", frozenset()).unmet == ()
    half = Source({path: text for path, text in VLLM_PARSERS.items() if "engine" in path}, {})
    assert judge(treat({"max-num-seq-s": 8}), VLLM, half, "/t/vllm", frozenset()).unmet == ()
