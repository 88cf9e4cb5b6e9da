from __future__ import annotations

import base64
import hashlib
import time
from pathlib import Path
from typing import Any

from orchestrator.agent.probes import match_patterns, read_paths, run_commands
from tests.agent.client import is_running, wait_until


def run(*argv: str, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = run_commands([{"name": "c", "argv": list(argv), "timeout_s": 10, **more}])["c"]
    return result


def test_output_streams_and_code_are_kept_apart() -> None:
    reply = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert reply == {"rc": 3, "stdout": "out\n", "stderr": "err\n", "timed_out": False}


def test_commands_run_side_by_side() -> None:
    started = time.monotonic()
    commands = [{"name": str(n), "argv": ["sleep", "0.5"], "timeout_s": 10} for n in range(4)]
    assert all(r["rc"] == 0 for r in run_commands(commands).values())
    assert time.monotonic() - started < 1.5


def test_a_deadline_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    started = time.monotonic()
    reply = run("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout_s=0.5)
    assert reply["timed_out"] and reply["rc"] is None
    assert time.monotonic() - started < 3
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid), "the grandchild is gone")


def test_a_grandchild_that_keeps_the_pipe_open_does_not_keep_us() -> None:
    started = time.monotonic()
    reply = run("sh", "-c", "sleep 3 & echo done")
    assert reply["stdout"] == "done\n" and reply["rc"] == 0
    assert time.monotonic() - started < 2


def test_a_command_that_cannot_start_says_why() -> None:
    reply = run("/no/such/program")
    assert reply["rc"] is None and "No such file" in reply["error"]


def test_input_larger_than_a_pipe_reaches_the_command() -> None:
    text = "0123456789" * 50_000
    assert run("sha256sum", stdin=text)["stdout"].split()[0] == hashlib.sha256(text.encode()).hexdigest()


def test_output_beyond_the_cap_is_dropped_and_the_command_not_blocked() -> None:
    reply = run("sh", "-c", "head -c 3000000 /dev/zero", max_bytes=1000)
    assert len(reply["stdout"]) == 1000 and reply["rc"] == 0


def test_a_given_environment_is_the_whole_one() -> None:
    assert run("/usr/bin/env", env={"ONLY": "this"})["stdout"] == "ONLY=this\n"


def test_read_tells_kinds_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x00\xff")
    (tmp_path / "link").symlink_to("nowhere")
    names = ["file", "link", "missing", "."]
    found = read_paths([str(tmp_path / n) if n != "." else str(tmp_path) for n in names], 100)
    assert [f["kind"] for f in found.values()] == ["file", "link", "absent", "dir"]
    assert base64.b64decode(found[str(tmp_path / "file")]["content_b64"]) == b"\x00\xff"
    assert found[str(tmp_path / "link")]["target"] == "nowhere"


def test_a_file_that_does_not_fit_has_a_digest_and_no_content(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"a" * 101)
    found = read_paths([str(tmp_path / "big")], 100)[str(tmp_path / "big")]
    assert "content_b64" not in found and found["sha256"] == hashlib.sha256(b"a" * 101).hexdigest()


def test_files_of_proc_are_read_to_their_end() -> None:
    found = read_paths(["/proc/self/status"], 1 << 16)["/proc/self/status"]
    assert found["size"] == 0 and base64.b64decode(found["content_b64"]).startswith(b"Name:")


def test_a_fifo_is_named_and_never_opened(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "fifo")
    assert read_paths([str(tmp_path / "fifo")], 100)[str(tmp_path / "fifo")]["kind"] == "other"


def test_patterns_are_matched_at_any_depth_in_order(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    for name in ("x/b.py", "x/y/a.py", "c.py"):
        (tmp_path / name).touch()
    pattern = f"{tmp_path}/**/*.py"
    assert match_patterns([pattern])[pattern] == [f"{tmp_path}/{n}" for n in ("c.py", "x/b.py", "x/y/a.py")]
