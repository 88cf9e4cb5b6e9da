"""Flags: unknown, malformed, contradictory, or not possible with this many GPUs."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

_PARALLEL = (
    "--tp-size",
    "--tensor-parallel-size",
    "--dp-size",
    "--pp-size",
    "--ep-size",
    "--nnodes",
    "CUDA_VISIBLE_DEVICES",
)

SIGNATURES: tuple[Signature, ...] = (
    root(
        "args.unknown",
        "argument_error",
        (
            "unrecognized arguments",
            "No such option",
            "unexpected argument",
            "unknown argument",
            "invalid argument: -",
            "unknown option",
            "Unknown option",
        ),
        "error: unrecognized arguments|No such option|unexpected argument|error: unknown argument"
        "|error: invalid argument: -|unknown option",
        "this version does not know the flag",
        "look it up in the flag list of this very version",
        "launch_server.py: error: unrecognized arguments: --enable-reasoning",
        "recognized arguments: 3",
        weight=4,
        certainty="certain",
    ),
    root(
        "args.bad-value",
        "argument_error",
        (
            "error: ambiguous option",
            "error: argument ",
            "the following arguments are required",
            "invalid choice",
            "expected one argument",
            "Invalid value for",
            "invalid value '",
            "Missing option",
            "argument -",
        ),
        "error: ambiguous option|error: argument |error: the following arguments are required"
        "|^usage error|Error: Invalid value for|error: invalid value '|Missing option",
        "a flag has a value it does not take, or is abbreviated ambiguously",
        "take the value or the full name from --help",
        "launch_server.py: error: argument --dtype: invalid choice: 'fp9'",
        "argument parsed",
        weight=4,
        certainty="certain",
    ),
    root(
        "args.parser-error",
        "argument_error",
        (": error: ",),
        r"^(?:sglang serve|launch_server\.py|api_server\.py|vllm(?: serve)?|trtllm-serve|llama-server"
        r"|\w[\w.-]*\.py): error: ",
        "the command line was refused",
        "see --help of this version",
        "api_server.py: error: one of the arguments is required",
        "x.cu:12: error: y",
    ),
    root(
        "args.ordinal",
        "argument_error",
        ("invalid device ordinal",),
        "invalid device ordinal",
        "more local ranks than visible GPUs",
        "make the ranks per node equal to the visible GPUs",
        "RuntimeError: CUDA error: invalid device ordinal",
        "device ordinal 3",
        knobs=_PARALLEL,
        weight=4,
    ),
    root(
        "args.divisible",
        "argument_error",
        (
            "is not divisible by",
            "must be divisible by",
            "should be divisible by",
            "attention heads",
            "divisible",
        ),
        "(?:is not|must be|should be|not evenly|isn't) divisible by|not divisible",
        "the model cannot be split that way",
        "a parallelism that divides heads and widths",
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        "size divides evenly",
        knobs=_PARALLEL,
        weight=3,
    ),
    root(
        "args.gpus",
        "argument_error",
        (
            "is greater than the number of",
            "larger than the number of",
            "number of available GPUs",
            "exceeds the number of",
            "No available node types can fulfill",
            "not enough GPUs",
            "Not enough GPUs",
            "world size",
            "World size",
            "device count",
            "local world size",
            "Current node has no GPU",
            "The number of required GPUs",
            "visible devices",
            "number of GPUs",
            "gpus are available",
            "GPUs are available",
            "tensor parallel size",
            "Cannot schedule",
            "cannot be scheduled",
        ),
        r"(?:world size|[Tt]ensor parallel size|tp_size|required GPUs|[Rr]equested \d+ GPUs?"
        "|device count).{0,80}(?:greater|larger|exceeds?|more than|but only|is not equal|does not match"
        r"|only \d)|(?:greater|larger|more) than the (?:total )?(?:number of )?available GPUs"
        "|No available node types can fulfill|[Nn]ot enough GPUs|Current node has no GPU"
        "|local world size.*exceed|exceeds the number of (?:GPUs|available|visible)"
        "|[Cc]annot be scheduled",
        "more GPUs are asked for than there are",
        "fewer ranks, or make the GPUs visible",
        "ValueError: The number of required GPUs exceeds the number of available GPUs in the placement group.",
        "world size 4",
        knobs=_PARALLEL,
    ),
    root(
        "args.conflict",
        "argument_error",
        (
            "--",
            "server_args",
            "ServerArgs",
            "engine_args",
            "must be set",
            "must be specified",
            "should be set",
            "must be greater than",
            "cannot be set",
            "mutually exclusive",
            "must be larger",
            "must be less",
            "at the same time",
            "Please set",
            "must be one of",
            "must be a multiple",
            "should be greater",
            "must not be",
        ),
        r"^(?:[\w.]+\.)?(?:ValueError|AssertionError|NotImplementedError|RuntimeError|Exception"
        r"|\w*ValidationError): (?:.*--[a-z][a-z0-9-]+|.*(?:must be (?:set|specified|greater|larger|less"
        "|one of|a multiple)|should be (?:set|greater)|cannot be set|mutually exclusive|at the same time"
        "|must not be))",
        "flags contradict one another or the model",
        "follow the message; compare with the flags the engine resolved",
        "ValueError: Please set --dist-init-addr when nnodes > 1.",
        "Please set --x for better speed",
        weight=2,
    ),
    root(
        "args.frames",
        "argument_error",
        ("Error",),
        r"^(?:[\w.]+\.)?(?:ValueError|AssertionError|TypeError|NotImplementedError|\w*ValidationError"
        r"|ArgumentError|KeyError)\b",
        "the arguments were refused while they were checked",
        "follow the message",
        'Traceback (most recent call last):\n  File "/x/srt/server_args.py", line 1200, in '
        "check_server_args\nAssertionError: tp_size must fit",
        "AssertionError: tp_size must fit",
        weight=2,
        certainty="possible",
        frames=(
            r"server_args\.py|arg_utils\.py|arg_groups/|argparse\.py|config/\w*parallel\w*\.py"
            r"|llm_args\.py|check_server_args|create_engine_config"
        ),
    ),
    root(
        "args.pydantic",
        "argument_error",
        ("validation error for", "validation errors for"),
        r"\d+ validation errors? for (?:\w*Config|\w*Args|ModelConfig)",
        "the configuration did not pass its checks",
        "follow the message below it",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig",
        "no validation error for x",
        weight=2,
    ),
)
