"""Flags and variables as an engine's own source declares them."""

from __future__ import annotations

import pytest

from orchestrator.core.model import FlagValue
from orchestrator.serving.configuration import Configuration
from orchestrator.serving.pitfalls import pitfalls_of
from orchestrator.serving.vocabulary import SGLANG, flags_in, names_in, unknown_flags, unknown_names, words_in

OLD = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)
        parser.add_argument("--cuda-graph-max-bs", type=int)
        parser.add_argument("--warm", action=argparse.BooleanOptionalAction)
"""
NEW = """
class ExecFeatures(msgspec.Struct):
    _NS_PATH = "exec"
    enable_memory_saver: A[bool, "Allow saving " "memory"] = False
    model_path: A[str, Arg(help="Path", aliases=["--model"])]
    tp_size: A[int, Arg(help="x", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    enable_tf32: A[Optional[bool], Arg(help="x", action=argparse.BooleanOptionalAction)] = None
    disable_cuda_graph: A[bool, Arg(help="x", no_cli=True)] = False
    derived: A[int, Derived(doc="x")] = 0
    plain: int = 3
"""
REGISTRY = """
class Envs:
    SGLANG_CACHE_DIR = EnvStr("x")
    SGLANG_USE_AITER: EnvBool = EnvBool(False)
environment_variables = {"VLLM_PORT": lambda: 1}
"""


def test_flags_of_both_layouts_are_read_without_importing() -> None:
    """Calls of add_argument, and annotated fields with names, aliases, negations, and those without a flag."""
    assert set(flags_in([OLD]) or ()) == {
        "--tensor-parallel-size",
        "--tp-size",
        "--cuda-graph-max-bs",
        "--warm",
        "--no-warm",
    }
    assert set(flags_in([NEW]) or ()) == {
        "--enable-memory-saver", "--model-path", "--model", "--tensor-parallel-size", "--tp-size", "--enable-tf32",
        "--no-enable-tf32",
    }  # fmt: skip


@pytest.mark.parametrize("source", ["def broken(:", "parser.add_argument(*names)", "x = 1", "p.add_argument(f'--{n}')"])
def test_a_parser_that_cannot_be_read_accuses_nobody(source: str) -> None:
    """Syntax errors, computed flags, and files without any flag: nothing can be said."""
    assert flags_in([source]) is None
    assert unknown_flags({"anything": 1}, None) == []


def test_an_unknown_flag_is_named_with_what_was_perhaps_meant() -> None:
    """A flag of another version, a removed one, and a unique or ambiguous beginning."""
    known = flags_in([OLD, NEW])
    assert unknown_flags({"cuda-graph-max-bs": 8, "tp-size": 2, "gone": None, "off": False}, known) == []
    (said,) = unknown_flags({"cuda-graph-max-b": 8}, known) or ["accepted as the beginning of one flag"]
    assert said == "accepted as the beginning of one flag"
    (said,) = unknown_flags({"cuda-graph-max-bz": 8}, known)
    assert said == "the engine's parser knows no flag --cuda-graph-max-bz; perhaps --cuda-graph-max-bs"
    (said,) = unknown_flags({"enable": True}, known)
    assert "ambiguous" in said


def test_a_variable_that_nobody_reads_is_named() -> None:
    """Registered, read literally, or added by the patch is known; another library's variables are not judged."""
    registered = names_in(REGISTRY)
    assert {"SGLANG_CACHE_DIR", "SGLANG_USE_AITER", "VLLM_PORT"} <= registered
    asked = ["SGLANG_CACHE_DIR", "SGL_USE_AITER", "SGLANG_READ_HERE", "SGLANG_FORCE_CUSTOM_AR_PCIE", "OMP_NUM_THREADS"]
    literal = words_in(["if os.environ.get('SGLANG_READ_HERE'): …", "SGLANG_FORCE_CUSTOM_AR_PCIE2"], asked)
    assert unknown_names(asked, SGLANG, registered, literal) == [
        "nothing in the engine's source reads SGLANG_FORCE_CUSTOM_AR_PCIE"
    ]
    assert unknown_names(["SGLANG_CACHE_DIRS"], SGLANG, registered, frozenset())[0].endswith("perhaps SGLANG_CACHE_DIR")
    assert unknown_names(asked, SGLANG, None, frozenset()) == []


@pytest.mark.parametrize(
    ("flags", "value", "warns"),
    [
        ({"tp-size": 8}, "expandable_segments:True", True),
        ({"tp": "2"}, "max_split_size_mb:64,expandable_segments:True", True),
        ({"tp-size": 8, "disable-custom-all-reduce": True}, "expandable_segments:True", False),
        ({"tp-size": 8}, "expandable_segments:False", False),
        ({}, "expandable_segments:True", False),
    ],
)
def test_expandable_segments_with_custom_all_reduce_is_warned_of(
    flags: dict[str, int | str], value: str, warns: bool
) -> None:
    """S36: more than one rank, custom all-reduce on, and a growing allocator."""
    said = pitfalls_of(Configuration(flags, {"PYTORCH_CUDA_ALLOC_CONF": value}))
    assert bool(said) is warns
    assert all("PYTORCH_CUDA_ALLOC_CONF" in sentence for sentence in said)


VLLM_ENGINE = """
class EngineArgs:
    model: str = "m"
    served_model_name: str | None = None
    def add_cli_args(parser):
        group.add_argument("--model", **kwargs["model"])
        group.add_argument("--tensor-parallel-size", "-tp", **kwargs["tensor_parallel_size"])
        group.add_argument("--served-model-name", **kwargs["served_model_name"])
        group.add_argument("--enable-prefix-caching", **kwargs["enable_prefix_caching"])
        group.add_argument("--compilation-config", "-O", **kwargs["compilation_config"])
"""
VLLM_FRONTEND = """
class BaseFrontendArgs:
    chat_template: str | None = None
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    port: int = 8000
    def add_cli_args(parser):
        for key, value in kwargs.items():
            extra = value.pop("flags", [])
            group.add_argument(*extra, f"--{key.replace('_', '-')}", **value)
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--headless", action="store_true")
"""


def test_flags_made_of_the_names_of_fields_are_those_fields() -> None:
    """vLLM's server registers its own flags in a loop over the fields of a class, and the engine's one by one."""
    known = flags_in([VLLM_ENGINE, VLLM_FRONTEND])
    assert known is not None
    assert {"--chat-template", "--host", "--port", "--headless", "--model", "--tensor-parallel-size"} <= known


def test_a_lenient_parser_takes_underscores_keys_and_negations() -> None:
    """Each of these vLLM accepts; what is no flag at all is named all the same."""
    known = flags_in([VLLM_ENGINE, VLLM_FRONTEND])
    fine: dict[str, FlagValue] = {
        "tensor_parallel_size": 2, "no-enable-prefix-caching": True, "compilation-config.level": 3, "chat-template": "x"
    }  # fmt: skip
    assert unknown_flags(fine, known, is_lenient=True) == []
    (said,) = unknown_flags({"tensor-parallel-sise": 2}, known, is_lenient=True)
    assert said.endswith("no flag --tensor-parallel-sise; perhaps --tensor-parallel-size")
