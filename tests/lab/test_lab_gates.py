"""Outcomes follow from constants, gates, variables and flags that the launch really reads, and from nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from orchestrator.core.patching import parse, paths_of, plan_files
from orchestrator.lab import Lab
from tests.lab.lab_server import Server, change_setting, launched, replace_text

PATCHES = Path(__file__).parents[2] / "patches"
EAGLE = ("--speculative-algorithm", "EAGLE3")
FORCED = {"SGLANG_FORCE_CUSTOM_AR_PCIE": "1"}


def apply(lab: Lab, name: str) -> None:
    patch = parse((PATCHES / name).read_bytes(), name)
    read = {path: (lab.root / "tree" / path).read_bytes() for path in paths_of([patch])}
    for edit in plan_files(patch, read, offset="unique"):
        (lab.root / "tree" / edit.path).write_bytes(edit.after or b"")


def crash_of(server: Server) -> str:
    """The log of a server that must crash while starting."""
    assert server.await_exit() == -signal.SIGKILL
    assert "fired up" not in server.log
    assert "Scheduler hit an exception: Traceback" in server.log
    assert "Received sigquit from a child process" in server.log
    return server.log


def command_without_flag(lab: Lab, *flags: str) -> list[str]:
    return [word for word in lab.server_command(*flags) if word != "--disable-custom-all-reduce"]


def test_one_constant_changes_the_speed(lab: Lab) -> None:
    """Dearer arithmetic in lab.json makes the next launch slower: 20 + 7.2 ms a token."""
    change_setting(lab, "constants", "plain_compute_ms", 20.0)
    with launched(lab) as server:
        assert server.await_ready().stream(tokens=16).tps == pytest.approx(36.8, rel=0.06)


def test_fusion_crashes_until_flashinfer_knows_the_architecture(lab: Lab) -> None:
    """The opened gate leads to FlashInfer's JIT, which refuses SM120; with 12 in its table the server is faster."""
    apply(lab, "flashinfer-fusion-sm120.patch")
    with launched(lab, EAGLE) as server:
        log = crash_of(server)
    assert "RuntimeError: No supported CUDA architectures found for major versions [9, 10]." in log
    assert "Capture cuda graph failed: No supported CUDA architectures" in log
    replace_text(lab.site / "flashinfer" / "jit" / "architectures.py", "VERSIONS = [9, 10]", "VERSIONS = [9, 10, 12]")
    with launched(lab) as server:
        assert server.await_ready().stream().tps == pytest.approx(115, rel=0.08)


def test_half_of_the_fusion_patch_has_no_effect(lab: Lab) -> None:
    """The run-time gate alone changes nothing: the flag it reads is still off."""
    tree = lab.source / "srt" / "layers" / "communicator.py"
    replace_text(tree, "(_is_sm90_supported or _is_sm100_supported)", "True")
    with launched(lab) as server:
        assert server.await_ready().stream().tps == pytest.approx(82, rel=0.08)


def test_an_undefined_name_in_the_gate_crashes_the_ranks(lab: Lab) -> None:
    """Patched code is executed: a name that nobody defined is a NameError in the patched file."""
    tree = lab.source / "srt" / "layers" / "communicator.py"
    replace_text(tree, "(_is_sm90_supported or _is_sm100_supported)", "(_is_sm90_supported or _is_sm120_supported)")
    with launched(lab) as server:
        assert server.await_exit() == -signal.SIGKILL
    assert "NameError: name '_is_sm120_supported' is not defined" in server.log
    assert "srt/layers/communicator.py" in server.log


def test_fewer_channels_in_sitecustomize_are_slower(lab: Lab) -> None:
    """The ranks see what sitecustomize sets: two channels cost five percent."""
    rates = []
    for _ in range(2):
        with launched(lab) as server:
            rates.append(server.await_ready().stream(tokens=48).tps)
        lab.sitecustomize.open("a").write(
            'os.environ["NCCL_MIN_NCHANNELS"] = "1"\nos.environ["NCCL_MAX_NCHANNELS"] = "2"\n'
        )
    assert -0.09 < rates[1] / rates[0] - 1 < -0.015


def test_nccl_says_which_variables_reached_the_ranks(lab: Lab) -> None:
    """With NCCL_DEBUG=INFO the values of sitecustomize show in the log, once a rank."""
    with launched(lab, env={"NCCL_DEBUG": "INFO"}) as server:
        log = server.await_ready().log
    assert log.count("NCCL INFO NCCL_MAX_NCHANNELS set by environment to 16.") == 8


def test_tree_cannot_be_captured(lab: Lab) -> None:
    """NCCL_ALGO=Tree fails in graph capture, in a wrapping that advises on memory."""
    with launched(lab, env={"NCCL_ALGO": "Tree"}) as server:
        log = crash_of(server)
    assert "Capture cuda graph failed: NCCL error: invalid usage" in log
    assert "During handling of the above exception" in log


def test_tree_runs_without_graphs(lab: Lab) -> None:
    """Without CUDA graphs Tree is only slow."""
    with launched(lab, ["--disable-cuda-graph"], env={"NCCL_ALGO": "Tree"}) as server:
        assert server.await_ready().stream(tokens=10).tps < 30
    assert "Cuda graph is disabled" in server.log


def test_symmetric_memory_misses_the_architecture(lab: Lab) -> None:
    """KeyError: 12 with torch_symm_mem.py in the frames, and a silent no-op once the table knows SM120."""
    with launched(lab, ["--enable-torch-symm-mem"]) as server:
        log = crash_of(server)
    assert "torch_symm_mem.py" in log
    assert "KeyError: 12" in log
    table = lab.site / "torch" / "distributed" / "_symmetric_memory.py"
    replace_text(table, "    10: {2: 64", "    12: {8: 64 * MIB},\n    10: {2: 64")
    with launched(lab, ["--enable-torch-symm-mem"]) as server:
        assert server.await_ready().stream().tps == pytest.approx(82, rel=0.08)
    assert "multicast operations are not supported" in server.log


def test_mscclpp_is_not_installed(lab: Lab) -> None:
    """Without the package there is a warning and NCCL; with it the calls cost what lab.json says."""
    with launched(lab, ["--enable-mscclpp"]) as server:
        assert server.await_ready().stream().tps == pytest.approx(82, rel=0.08)
    assert "PyMscclpp is unavailable" in server.log
    (lab.site / "mscclpp.py").write_text("")
    with launched(lab, ["--enable-mscclpp"]) as server:
        assert server.await_ready().stream().tps == pytest.approx(95.3, rel=0.08)


@pytest.mark.parametrize(
    ("is_patched", "is_forced", "is_enabled"), [(False, True, True), (True, False, True), (True, True, False)]
)
def test_custom_all_reduce_needs_patch_variable_and_flag(
    lab: Lab, is_patched: bool, is_forced: bool, is_enabled: bool
) -> None:
    """Any two of the three have no effect; the communicator that is not disabled says why."""
    if is_patched:
        apply(lab, "custom-all-reduce-pcie.patch")
    command = command_without_flag(lab) if is_enabled else lab.server_command()
    with launched(lab, command=command, env=FORCED if is_forced else {}) as server:
        assert server.await_ready().stream().tps == pytest.approx(82, rel=0.08)
    assert ("it's not supported on more than two PCIe-only GPUs" in server.log) == is_enabled


def test_forced_custom_all_reduce_is_slow(lab: Lab) -> None:
    """Patch, variable and flag together reach 38 tok/s."""
    apply(lab, "custom-all-reduce-pcie.patch")
    with launched(lab, command=command_without_flag(lab), env=FORCED) as server:
        assert server.await_ready().stream(tokens=16).tps == pytest.approx(38, rel=0.06)


def test_expert_parallelism_speeds_speculation_up(lab: Lab) -> None:
    """--ep-size 8 takes 61 calls out of the verify pass: 75 instead of 60 tok/s."""
    with launched(lab, [*EAGLE, "--ep-size", "8"]) as server:
        assert server.await_ready().stream(tokens=40).tps == pytest.approx(75.4, rel=0.1)


def test_a_large_graph_takes_time_and_memory(lab: Lab) -> None:
    """--cuda-graph-max-bs 512 costs nine percent and leaves fewer tokens of cache."""
    tokens = []
    for flags in ((), ("--cuda-graph-max-bs", "1200")):
        with launched(lab, flags) as server:
            server.await_ready()
            tokens.append(server.get("/server_info")[1]["max_total_num_tokens"])
    with launched(lab, ["--cuda-graph-max-bs", "512"]) as server:
        assert server.await_ready().stream(tokens=40).tps == pytest.approx(75.2, rel=0.05)
    assert tokens[1] < tokens[0]


def test_weights_that_do_not_fit_crash_while_loading(lab: Lab) -> None:
    """Half of the GPUs cannot hold the model."""
    with launched(lab, ["--tp-size", "4"]) as server:
        assert "torch.OutOfMemoryError" in crash_of(server)


def test_only_visible_gpus_count(lab: Lab) -> None:
    """CUDA_VISIBLE_DEVICES limits the ranks, as the resolver says before any of them starts."""
    with launched(lab, env={"CUDA_VISIBLE_DEVICES": "0,1"}) as server:
        assert server.await_exit() == 1
    assert "tp_size 8 exceeds the 2 GPUs that are visible" in server.log
