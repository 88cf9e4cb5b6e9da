"""The server of a lab: starts, titles, answers, stops, as SGLang does them."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from pathlib import Path

import pytest

from orchestrator.core.patching import parse, paths_of, plan_files
from orchestrator.lab import Lab, create
from tests.lab.lab_server import DEADLINE_S, change_setting, holder_pids, launched, query, read_cmdline

EAGLE = ("--speculative-algorithm", "EAGLE3")


def completed_launches(lab: Lab) -> list[int]:
    return sorted(json.loads((lab.root / "run" / "launches.json").read_text())["completed"].values())


def test_a_start_logs_the_phases_of_sglang(lab: Lab) -> None:
    """Phases come in SGLang's words and order, with time and rank."""
    with launched(lab) as server:
        log = server.await_ready().log
    phases = [
        "Init torch distributed begin.",
        "Load weight begin. avail mem=",
        "KV Cache is allocated.",
        "Capture cuda graph begin.",
        "max_total_num_tokens=",
        "Uvicorn running on http://127.0.0.1:",
        "fired up and ready to roll!",
    ]
    places = [log.index(phase) for phase in phases]
    assert places == sorted(places)
    assert all(f" TP{rank}] Load weight end." in log for rank in range(8))


def test_the_processes_bear_the_titles_of_sglang(lab: Lab) -> None:
    """One rank a GPU and the detokenizer, renamed; main keeps its command line; a rank's environment is blanked."""
    with launched(lab) as server:
        server.await_ready()
        titles = sorted(words[0].decode() for words in server.children().values())
        assert titles == ["sglang::detokenizer", *(f"sglang::scheduler_TP{n}" for n in range(8))]
        assert read_cmdline(server.pid)[1:3] == [b"-m", b"sglang.launch_server"]
        rank = server.rank_pid(3)
        with open(f"/proc/{rank}/environ", "rb") as file:
            assert file.read().strip(b"\0") == b""
        with open(f"/proc/{rank}/comm") as file:
            assert file.read().strip() == "sglang::schedul"
        held = {os.readlink(f"/proc/{rank}/fd/{fd}") for fd in os.listdir(f"/proc/{rank}/fd")}
        assert str(lab.root / "dev" / "nvidia3") in held


def test_a_start_and_a_stop_are_quick(lab: Lab) -> None:
    """Ready within a second and gone at once, so that a campaign of many launches is short."""
    began = time.perf_counter()
    with launched(lab) as server:
        server.await_ready()
        ready_s = time.perf_counter() - began
        began = time.perf_counter()
        status = server.terminate()
        stop_s = time.perf_counter() - began
    assert status == -signal.SIGKILL, "SGLang 0.5.10 ends itself so, after draining"
    assert "Draining requests" in server.log
    assert "Gracefully exiting" in server.log
    assert (ready_s < 2.5, stop_s < 1.0) == (True, True)


def test_plain_decoding_takes_the_time_of_the_model(lab: Lab) -> None:
    """A stream comes at about 82 tokens a second, one token a chunk."""
    with launched(lab) as server:
        stream = server.await_ready().stream(tokens=40)
    assert stream.tps == pytest.approx(82, rel=0.06)
    assert stream.meta["completion_tokens"] == 40
    assert stream.meta["finish_reason"] == {"type": "length", "length": 40}
    assert stream.meta["prompt_tokens"] == 5


def test_speculation_yields_several_tokens_a_chunk(lab: Lab) -> None:
    """With EAGLE3 a stream comes at about 60 tokens a second, and the acceptance length is reported."""
    with launched(lab, EAGLE) as server:
        stream = server.await_ready().stream(tokens=40)
        _, info = server.get("/server_info")
    assert stream.tps == pytest.approx(60, rel=0.1)
    assert stream.meta["spec_accept_length"] == pytest.approx(1.88, abs=0.2)
    assert stream.meta["spec_accept_length"] == stream.meta["completion_tokens"] / stream.meta["spec_verify_ct"]
    assert info["internal_states"][0]["avg_spec_accept_length"] == pytest.approx(1.88, abs=0.2)


def test_answers_are_greedy_and_sensible(lab: Lab) -> None:
    """The same prompt has the same answer in every context; what is asked for is answered."""
    prompt = "Repeat exactly: kestrel-7031\nkestrel-7031\nRepeat exactly: heron-2219 cobalt\n"
    answers = []
    for flags in ((), EAGLE):
        with launched(lab, flags) as server:
            server.await_ready()
            answers.append([server.generate(p)["text"] for p in (prompt, "a ledger of ships", "a ledger of ships")])
            assert server.generate(prompt, ignore_eos=False)["text"] == " heron-2219 cobalt"
            assert server.generate("4 + 4 = 8\n6 + 3 =", 1)["text"] == " 9"
    assert answers[0] == answers[1]
    assert answers[0][1] == answers[0][2]
    assert answers[0][0].startswith(" heron-2219 cobalt")


def test_the_endpoints_of_a_ready_server(lab: Lab) -> None:
    """Health, models, weight version, resolved flags, metrics, both APIs, and what is not there."""
    with launched(lab, ["--weight-version", "run-7", "--enable-metrics"]) as server:
        server.await_ready()
        assert server.get("/health")[0] == 200
        assert server.get("/model_info")[1]["weight_version"] == "run-7"
        assert server.get("/v1/models")[1]["data"][0]["id"] == str(lab.model)
        info = server.get("/server_info")[1]
        assert (info["cuda_graph_max_bs"], info["ep_size"], info["version"]) == (128, 1, "0.5.10.post1")
        status, answer = server.post("/v1/completions", {"prompt": "The capital of France is", "max_tokens": 4})
        assert (status, answer["choices"][0]["text"], answer["usage"]["completion_tokens"]) == (200, " Paris", 1)
        chat = {"messages": [{"role": "user", "content": "Say: hello there"}], "max_tokens": 9}
        assert server.post("/v1/chat/completions", chat)[1]["choices"][0]["message"]["content"] == "hello there"
        assert server.get("/nowhere")[0] == 404
        assert server.post("/generate", {"text": ""})[0] == 400
        metrics = server.get("/metrics")[1]
        assert 'sglang:generation_tokens_total{engine_type="unified"' in metrics


def test_the_prefix_cache_is_seen_and_flushed(lab: Lab) -> None:
    """A repeated prompt is cached up to its last token; /flush_cache forgets it."""
    with launched(lab) as server:
        server.await_ready()
        cached = [server.generate("one two three four", 1)["meta_info"]["cached_tokens"] for _ in range(2)]
        assert server.get("/flush_cache")[0] == 200
        cached.append(server.generate("one two three four", 1)["meta_info"]["cached_tokens"])
    assert cached == [0, 3, 0]


def test_without_metrics_flag_there_are_no_metrics(lab: Lab) -> None:
    """/metrics is there only with --enable-metrics."""
    with launched(lab) as server:
        assert server.await_ready().get("/metrics")[0] == 404


@pytest.mark.parametrize("rank", [0, 5])
def test_a_killed_rank_ends_the_server(lab: Lab, rank: int) -> None:
    """Each rank matters: its death is logged in SGLang's words and everything ends by SIGKILL."""
    with launched(lab) as server:
        pid = server.await_ready().rank_pid(rank)
        os.kill(pid, signal.SIGKILL)
        assert server.await_exit() == -signal.SIGKILL
        assert holder_pids(lab) == set()
    assert f"Subprocess scheduler_{rank} (pid={pid}) crashed with exit code -9. Triggering SIGQUIT" in server.log
    assert "SIGQUIT received. signum=None, frame=None. It usually means one child failed." in server.log


def test_a_killed_detokenizer_ends_the_server(lab: Lab) -> None:
    """Its death is a crash as well."""
    with launched(lab) as server:
        server.await_ready()
        pid = next(p for p, words in server.children().items() if words == [b"sglang::detokenizer"])
        os.kill(pid, signal.SIGKILL)
        assert server.await_exit() == -signal.SIGKILL
    assert "Subprocess detokenizer_0" in server.log


def test_ranks_do_not_outlive_main(lab: Lab) -> None:
    """SIGKILL of main takes the ranks along."""
    with launched(lab) as server:
        ranks = list(server.await_ready().children())
        server.process.kill()
        server.await_exit()
        for pid in ranks:
            await_gone(pid)
        assert holder_pids(lab) == set()


def await_gone(pid: int) -> None:
    """Wait on a pidfd until the process has ended; one that is gone already has."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], DEADLINE_S)[0], f"process {pid} lives on"
    finally:
        os.close(fd)


def test_a_taken_port_is_a_false_ready(lab: Lab, tmp_path: Path) -> None:
    """The second server fails to bind, warms up against the first one, claims to be ready, and ends with 3."""
    other = create(tmp_path / "other", port=lab.port)
    with launched(lab, ["--weight-version", "first"]) as first:
        first.await_ready()
        with launched(other, ["--weight-version", "second"]) as second:
            assert second.await_exit() == 3
        assert first.get("/model_info")[1]["weight_version"] == "first"
    assert "[Errno 98] error while attempting to bind on address ('127.0.0.1'" in second.log
    assert second.log.index("[Errno 98]") < second.log.index("fired up and ready to roll!")


def test_a_second_model_does_not_fit_beside_the_first(lab: Lab) -> None:
    """GPUs that are held have no room: out of memory while loading the weights."""
    with launched(lab) as first:
        first.await_ready()
        with launched(lab) as second:
            assert second.await_exit() == -signal.SIGKILL
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 67.50 GiB." in second.log


def test_an_unknown_flag_ends_with_2(lab: Lab) -> None:
    """argparse answers, in the name SGLang gives it."""
    with launched(lab, ["--no-such-flag"]) as server:
        assert server.await_exit() == 2
    assert "launch_server.py: error: unrecognized arguments: --no-such-flag" in server.log


def test_a_missing_model_ends_with_1(lab: Lab) -> None:
    """There is no hub behind the lab."""
    command = [str(lab.python), "-m", "sglang.launch_server", "--model-path", "nobody/nothing"]
    with launched(lab, command=command) as server:
        assert server.await_exit() == 1
    assert "OSError: nobody/nothing is not a local folder" in server.log


def test_a_complete_launch_uses_up_a_repetition(lab: Lab) -> None:
    """A launch that streamed and was stopped counts; one that is killed, or was never asked, does not."""
    for stop, tokens in ((signal.SIGTERM, 2), (signal.SIGKILL, 2), (signal.SIGTERM, 0)):
        with launched(lab) as server:
            server.await_ready()
            if tokens:
                server.stream(tokens=tokens)
            server.process.send_signal(stop)
            server.await_exit()
    assert completed_launches(lab) == [1]


def test_the_treatment_is_what_the_launch_reads(lab: Lab) -> None:
    """Flag, variable and source each make another treatment; port, weight version and cache folders do not."""
    launches: list[tuple[list[str], dict[str, str]]] = [
        (["--weight-version", "a"], {"SGLANG_CACHE_DIR": "/x"}),
        (["--weight-version", "b"], {}),  # the same as the one before
        (["--ep-size", "8"], {}),
        ([], {"NCCL_PROTO": "LL"}),
    ]
    for flags, env in launches:
        with launched(lab, flags, env=env) as server:
            server.await_ready().stream(tokens=2)
            server.terminate()
    (lab.source / "srt" / "layers" / "activation.py").open("a").write("\n# another source\n")
    with launched(lab) as server:
        server.await_ready().stream(tokens=2)
        server.terminate()
    assert completed_launches(lab) == [1, 1, 1, 2]


def test_two_labs_of_one_seed_take_the_same_time(lab: Lab, tmp_path: Path) -> None:
    """The digest of the treatment does not depend on where the lab lies."""
    twin = create(tmp_path / "elsewhere", seed=lab.seed, port=lab.port)
    for each in (lab, twin):
        with launched(each) as server:
            server.await_ready().stream(tokens=2)
            server.terminate()
    books = [json.loads((each.root / "run" / "launches.json").read_text()) for each in (lab, twin)]
    assert books[0] == books[1]


def test_the_wrong_output_patch_changes_answers_and_nothing_else(lab: Lab) -> None:
    """A wrong activation leaves a healthy server, as fast as before, with other answers."""
    with launched(lab) as server:
        server.await_ready()
        right = server.generate("The ledger of the harbour lists ships by")["text"]
    patch = parse((lab.root / "patches" / "wrong-output.patch").read_bytes(), "wrong-output.patch")
    read = {path: (lab.root / "tree" / path).read_bytes() for path in paths_of([patch])}
    for edit in plan_files(patch, read):
        (lab.root / "tree" / edit.path).write_bytes(edit.after or b"")
    with launched(lab) as server:
        server.await_ready()
        wrong = server.generate("The ledger of the harbour lists ships by")["text"]
        tps = server.stream(tokens=30).tps
    assert right.split()[:4] != wrong.split()[:4]
    assert tps == pytest.approx(82, rel=0.08)


def test_nvidia_smi_shows_who_holds_the_gpus(lab: Lab) -> None:
    """Memory in use, the holders and their titles; all of it back when the server is gone."""
    fields = "index,name,uuid,compute_cap,driver_version,memory.total,memory.used,clocks.sm,power.draw,temperature.gpu"
    fields += ",pcie.link.gen.current,pcie.link.width.current"
    with launched(lab) as server:
        server.await_ready()
        rows = query(lab, f"--query-gpu={fields}", "--format=csv,noheader,nounits").splitlines()
        apps = query(lab, "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader").splitlines()
        assert f"{server.rank_pid(2)}, sglang::scheduler_TP2, 89634 MiB" in apps
        server.terminate()
    first = rows[0].split(", ")
    assert len(rows) == len(apps) == 8
    assert first[1] == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert (first[3], first[5], first[6], first[10], first[11]) == ("12.0", "97887", "89634", "5", "16")
    assert query(lab, "--query-gpu=memory.used", "--format=csv,noheader,nounits").split() == ["0"] * 8


def test_a_stranger_with_an_open_device_shows(lab: Lab) -> None:
    """Whoever holds a device file is listed, with the memory that lab.json ascribes to strangers."""
    change_setting(lab, "machine", "stranger_memory_mib", 512)
    with open(lab.root / "dev" / "nvidia4"):
        shown = query(lab, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
        used = query(lab, "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "4")
    assert shown == f"{os.getpid()}, 512\n"
    assert used == "512\n"
