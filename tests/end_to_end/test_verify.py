"""`host verify`: every carrier of state, three references, and lines instead of verdicts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, start_run, wait_for


def verify(bench: Bench, *words: str) -> tuple[int, dict[str, Any]]:
    return bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file), *words)


def things(shown: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {thing["name"]: thing for thing in shown["things"]}


def test_a_host_without_any_snapshot_is_judged_and_left_alone(bench: Bench) -> None:
    """Nothing was ever kept there: exit code 0, it says so, and nothing is made on the host by looking."""
    before = {str(p) for p in bench.lab.root.rglob("*")}
    code, shown = verify(bench)
    assert code == 0, shown
    assert "no manifest as found is stored" in things(shown)["source tree"]["sentence"]
    assert {str(p) for p in bench.lab.root.rglob("*")} == before


def test_every_carrier_of_state_is_listed_and_clean_after_a_run(bench: Bench) -> None:
    """Tree, sitecustomize, bytecode, caches, /dev/shm, /tmp, processes, port, lease and journal, GPU memory."""
    assert bench.run("run", str(bench.write_playbook([MARKER])))[0] == 0
    code, shown = verify(bench)
    assert code == 0, shown
    listed = things(shown)
    assert set(listed) >= {
        "source tree", "sitecustomize and .pth", "bytecode", "compile caches", "/dev/shm", "/tmp", "processes", "port",
        "lease and journal", "staged files", "GPU memory",
    }  # fmt: skip
    assert {t["state"] for t in listed.values()} <= {"clean", "noted"}
    assert listed["source tree"]["state"] == "clean"


def test_only_our_lines_went_back_is_said_line_by_line(bench: Bench) -> None:
    """After the revert: how many lines were ours, and that the file's other code is as found."""
    assert bench.run("run", str(bench.write_playbook([MARKER])))[0] == 0
    _, shown = verify(bench)
    said = next(s for s in shown["residue"] if "launch_server.py" in s)
    assert "only 1 line(s) of ours changed and went back; the file's other code is as found" in said


def test_what_a_killed_run_left_is_ours_thing_by_thing(bench: Bench) -> None:
    """SIGKILL while it serves: exit code 7; the file, the processes, the port, the memory and the launch are named."""
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, shown = verify(bench)
    assert code == 7
    listed = things(shown)
    for name in ("source tree", "processes", "port", "lease and journal"):
        assert listed[name]["state"] == "ours", listed[name]
    assert any("is still ours: import json" in s for s in shown["residue"])
    assert bench.run("host", "recover", "lab", "--hosts", str(bench.lab.hosts_file))[0] == 0
    assert verify(bench)[0] == 0


def test_a_foreign_edit_is_a_finding_with_its_lines(bench: Bench) -> None:
    """Somebody edits a file after a run: exit code 1, not ours, and the diff where the ledger knows the file."""
    assert bench.run("run", str(bench.write_playbook([MARKER])))[0] == 0
    target = bench.lab.source / "launch_server.py"
    target.write_bytes(target.read_bytes() + b"# theirs\n")
    code, shown = verify(bench)
    assert code == 1
    assert things(shown)["source tree"]["state"] == "foreign"
    assert any("nothing of ours is left; others changed it" in s for s in shown["residue"])
    assert "+# theirs" in shown["diffs"][str(target)]


def test_a_stored_manifest_tells_later_changes(bench: Bench, tmp_path: Path) -> None:
    """Saved on a host that we never touched, and compared after an edit, a deletion, a new file and another mode."""
    stored = tmp_path / "manifest.json"
    code, shown = verify(bench, "--save", str(stored))
    assert code == 0
    assert shown["saved"] > 10
    assert verify(bench, "--against", f"manifest:{stored}")[0] == 0
    source = bench.lab.source
    (source / "launch_server.py").write_text("# nothing\n")
    (source / "version.py").unlink()
    (source / "new.py").write_text("")
    (source / "srt" / "server_args.py").chmod(0o600)
    code, shown = verify(bench, "--against", f"manifest:{stored}")
    assert code == 1
    assert {(d["path"], d["what"]) for d in shown["deviations"]} == {
        ("launch_server.py", "changed"), ("version.py", "missing"), ("new.py", "extra"), ("srt/server_args.py", "mode"),
    }  # fmt: skip


def test_a_commit_is_compared_by_content(bench: Bench) -> None:
    """Git hashes the files themselves: an edit with the size and time of the original is still seen, with its lines."""
    source = bench.lab.source
    git = ["git", "-C", str(source.parent), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", source.name], ["commit", "-q", "-m", "found"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    code, shown = verify(bench, "--against", "git:HEAD")
    assert code == 0, shown
    target = source / "launch_server.py"
    was = target.stat()
    target.write_bytes(target.read_bytes().replace(b"import sys", b"import syz", 1))
    os.utime(target, ns=(was.st_atime_ns, was.st_mtime_ns))
    code, shown = verify(bench, "--against", "git:HEAD")
    assert code == 1
    assert [(d["path"], d["what"]) for d in shown["deviations"]] == [("launch_server.py", "changed")]
    assert "+import syz" in shown["diffs"][str(target)]
    code, shown = verify(bench, "--against", "git:no-such-thing")
    assert code == 5
    assert "no-such-thing" in json.dumps(shown)


def test_a_wheels_record_is_compared(bench: Bench) -> None:
    """The RECORD beside the tree that lists it: as installed, and after an edit."""
    source = bench.lab.source
    write_record(source)
    code, shown = verify(bench, "--against", "record")
    assert code == 0, shown["deviations"]
    (source / "launch_server.py").write_text("# edited\n")
    code, shown = verify(bench, "--against", "record")
    assert code == 1
    assert [(d["path"], d["what"]) for d in shown["deviations"]] == [("launch_server.py", "changed")]


def write_record(source: Path) -> None:
    """As an installer writes it: path, urlsafe digest without padding, size."""
    import base64
    import hashlib

    lines = []
    for path in sorted(p for p in source.rglob("*") if p.is_file() and p.suffix != ".pyc"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
        lines.append(f"{path.relative_to(source.parent)},sha256={digest},{path.stat().st_size}\n")
    info = next(source.parent.glob(f"{source.name}-*.dist-info"), source.parent / f"{source.name}-1.0.dist-info")
    info.mkdir(exist_ok=True)
    (info / "RECORD").write_text("".join(lines))


def test_an_unknown_reference_is_a_usage_error(bench: Bench, tmp_path: Path) -> None:
    """Neither of the three, or a file that is no manifest."""
    (tmp_path / "x.json").write_text("[]")
    assert verify(bench, "--against", "yesterday")[0] == 2
    assert verify(bench, "--against", f"manifest:{tmp_path / 'x.json'}")[0] == 2
