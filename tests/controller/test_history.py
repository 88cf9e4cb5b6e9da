from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.controller import history
from orchestrator.controller.history import History, tag
from orchestrator.errors import Bug, Busy, Refused

ROOT = Path(__file__).parents[2]
TREE = "/opt/sglang/python/sglang"
FOUND = {f"{TREE}/srt/communicator.py": b"a\r\nb\n", f"{TREE}/srt/new.py": None}
PATCHED = {f"{TREE}/srt/communicator.py": b"a\r\nB\n", f"{TREE}/srt/new.py": b"new\n"}
WHERE = {"host": "gpu1", "tree": TREE}


class Clock:
    def __init__(self) -> None:
        self._ticks = itertools.count()

    def now(self) -> float:
        return 1_772_366_400.0 + next(self._ticks)

    def monotonic(self) -> float:
        return float(next(self._ticks))


@pytest.fixture
def trail(tmp_path: Path) -> History:
    return History(tmp_path, clock=Clock())


def git(trail: History, *words: str) -> str:
    clean = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(trail.path), *words]
    return subprocess.run(command, env=clean, check=True, capture_output=True, text=True).stdout


def whole(trail: History, experiment_id: int, host: str = "gpu1") -> None:
    where = {"host": host, "tree": TREE}
    trail.commit_found(FOUND, experiment_id=experiment_id, label="fusion-sm120", **where)
    trail.commit_patched(PATCHED, experiment_id=experiment_id, label="fusion-sm120", **where)
    trail.commit_reverted(FOUND, experiment_id=experiment_id, label="fusion-sm120", **where)


def test_found_and_reverted_do_not_differ(trail: History) -> None:
    """The diff of found and reverted is empty, that of found and patched is the patch."""
    whole(trail, 41)
    assert git(trail, "diff", "exp/41/found", "exp/41/reverted") == ""
    assert trail.diff(41) == ""
    patch = trail.diff(41, "found", "patched")
    assert "-b\n+B\n" in patch
    assert "gpu1/opt/sglang/python/sglang/srt/new.py" in patch
    assert git(trail, "show", f"exp/41/patched:gpu1{TREE}/srt/communicator.py") == "a\r\nB\n".replace("\r\n", "\n")


def test_bytes_are_kept_as_they_are(trail: History) -> None:
    """Line ends, binary content and odd names come back unchanged."""
    name = 'odd "name" \\ with\nnewline é.bin'
    content = bytes(range(256)) + b"\r\n"
    commit = trail.commit_found({name: content}, experiment_id=1, **WHERE)
    raw = subprocess.run(
        ["git", f"--git-dir={trail.path}", "show", f"{commit}:gpu1{TREE}/{name}"], check=True, capture_output=True
    )
    assert raw.stdout == content
    git(trail, "fsck", "--strict")


def test_a_revert_that_is_not_exact_shows(trail: History) -> None:
    """One byte that differs after the revert is in the diff."""
    trail.commit_found(FOUND, experiment_id=2, **WHERE)
    trail.commit_reverted({**FOUND, f"{TREE}/srt/communicator.py": b"a\nb\n"}, experiment_id=2, **WHERE)
    assert trail.diff(2) != ""


def test_commits_say_whose_they_are(trail: History) -> None:
    """Subject and trailers name the stage, the hypothesis, the experiment and the host; times are the clock's."""
    whole(trail, 41)
    form = "%s|%(trailers:key=Experiment,valueonly,separator=%x2C)|%(trailers:key=Host,valueonly,separator=%x2C)|%ct"
    assert git(trail, "log", "--all", "--reverse", f"--format={form}").splitlines() == [
        "found: fusion-sm120|#41|gpu1|1772366400",
        "patched: fusion-sm120|#41|gpu1|1772366401",
        "reverted: fusion-sm120|#41|gpu1|1772366402",
    ]
    assert set(trail.stages(41)) == {"found", "patched", "reverted"}
    assert git(trail, "log", "--format=%s", "HEAD").count("\n") == 3


def test_experiments_follow_one_another_on_a_branch(trail: History) -> None:
    """A second experiment continues the branch of its host and tree; another host has its own."""
    whole(trail, 1)
    whole(trail, 2)
    whole(trail, 3, host="root@pve:129")
    branches = git(trail, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    assert len(branches) == 2
    counts = sorted(int(git(trail, "rev-list", "--count", branch)) for branch in branches)
    assert counts == [3, 6]
    assert trail.diff(3) == ""


def test_a_second_arm_begins_anew(trail: History) -> None:
    """After a second `found` there is no `reverted` until the second revert: an old tag proves nothing."""
    whole(trail, 41)
    trail.commit_found(FOUND, experiment_id=41, **WHERE)
    assert set(trail.stages(41)) == {"found"}
    with pytest.raises(Refused, match="no reverted state"):
        trail.diff(41)
    trail.commit_patched(PATCHED, experiment_id=41, **WHERE)
    trail.commit_reverted(FOUND, experiment_id=41, **WHERE)
    assert trail.diff(41) == ""


def test_packed_refs_are_read(trail: History) -> None:
    """After `git gc` the history goes on where it was."""
    whole(trail, 1)
    git(trail, "pack-refs", "--all")
    assert set(trail.stages(1)) == {"found", "patched", "reverted"}
    whole(trail, 2)
    assert git(trail, "rev-list", "--count", tag(2, "reverted")) == "6\n"
    trail.commit_found(FOUND, experiment_id=1, **WHERE)
    assert set(trail.stages(1)) == {"found"}


def test_the_users_git_settings_do_not_leak_in(trail: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks, autocrlf, a foreign GIT_DIR and a template of the user change nothing."""
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    hook = home / "hooks" / "reference-transaction"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(f"[core]\n autocrlf = true\n hooksPath = {home / 'hooks'}\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(home / "hooks"))
    whole(trail, 1)
    assert trail.diff(1) == ""
    assert {p.name for p in tmp_path.iterdir()} == {"home", "history", "history.lock"}


def test_lock_files_of_a_killed_git_are_removed(trail: History) -> None:
    """Locks and half packs that a kill -9 left do not stop the next commit, and are gone."""
    whole(trail, 1)
    branch = git(trail, "symbolic-ref", "HEAD").strip()
    leftovers = [f"{branch}.lock", "HEAD.lock", "packed-refs.lock", "refs/tags/exp/2/found.lock", "config.lock"]
    for name in [*leftovers, "objects/pack/tmp_pack_x"]:
        (trail.path / name).parent.mkdir(parents=True, exist_ok=True)
        (trail.path / name).write_text("")
    whole(trail, 2)
    assert trail.diff(2) == ""
    assert [str(p) for p in trail.path.rglob("*") if p.name.endswith(".lock") or "tmp_" in p.name] == []
    git(trail, "fsck", "--strict")


def test_a_running_git_of_a_killed_process_is_waited_for(trail: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a git whose starter was killed still runs, nobody removes its locks; when it ends, we go on."""
    whole(trail, 1)
    starter = (
        "import sys, subprocess; from pathlib import Path; from orchestrator.controller.history import History\n"
        "trail = History(Path(sys.argv[1]), clock=None)\n"
        "with trail._locked() as lock:\n"
        "    git = subprocess.Popen(['cat'], stdin=0, pass_fds=(lock.fileno(),))\n"
        "    print(git.pid, flush=True)\n"
        "    git.wait()\n"
    )
    ours, theirs = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", starter, str(trail.path.parent)], stdin=ours, stdout=subprocess.PIPE, cwd=ROOT
    )
    os.close(ours)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=10)
    monkeypatch.setattr(history, "TIMEOUT_S", 0.05)
    with pytest.raises(Busy, match="another process"):
        trail.commit_found(FOUND, experiment_id=2, **WHERE)
    os.close(theirs)  # the orphan reads the end of its input and leaves
    monkeypatch.setattr(history, "TIMEOUT_S", 30.0)
    trail.commit_found(FOUND, experiment_id=2, **WHERE)
    child.stdout.close()


def test_git_inherits_the_lock(trail: History, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process that is started holds the lock's descriptor, so the lock outlives its starter."""
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nls -l /proc/$$/fd >> "$SEEN"\nPATH=${PATH#*:} exec git "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    trail.commit_found(FOUND, experiment_id=1, **WHERE)
    assert "history.lock" in (tmp_path / "seen").read_text()


def test_two_processes_commit_at_once(trail: History) -> None:
    """They wait for one another; no commit is lost."""
    code = (
        "import sys, time; from pathlib import Path; from orchestrator.controller.history import History\n"
        "class C:\n    now = staticmethod(time.time)\n"
        "trail = History(Path(sys.argv[1]), clock=C())\n"
        "for n in range(4):\n"
        "    trail.commit_found({'f': b'%d' % n}, experiment_id=int(sys.argv[2]) + n, host='h', tree='/t')\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(trail.path.parent), str(n)], cwd=ROOT) for n in (10, 20)
    ]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    assert git(trail, "rev-list", "--count", "--all") == "8\n"
    git(trail, "fsck", "--strict")


@pytest.mark.parametrize("path", ["../x", "a/../../x", ".git/config", "a/.GIT/x", "", "/", "a\0b"])
def test_paths_that_leave_their_place_are_refused(trail: History, path: str) -> None:
    """No file can be put outside the folder of its host, nor into a `.git`."""
    with pytest.raises(Bug, match="history"):
        trail.commit_found({path: b""}, experiment_id=1, host="gpu1", tree="/" if path in ("", "/") else TREE)


def test_a_git_that_fails_is_an_error_of_ours(trail: History) -> None:
    """What git said is in the facts."""
    whole(trail, 1, host="other")
    (trail.path / "refs/heads/gpu1").write_text(trail.stages(1)["found"] + "\n")
    with pytest.raises(Refused, match="git fast-import failed") as caught:
        trail.commit_found(FOUND, experiment_id=2, **WHERE)
    assert "refs/heads/gpu1" in caught.value.facts["git"]


def test_an_init_that_was_killed_is_finished(trail: History) -> None:
    """A repository without its HEAD is completed, and what it holds stays."""
    whole(trail, 1)
    (trail.path / "HEAD").unlink()
    whole(trail, 2)
    assert git(trail, "rev-list", "--count", tag(2, "reverted")) == "6\n"


def test_a_commit_is_quick(trail: History) -> None:
    """Three commits of 20 files of 100 kB cost well below what a launch costs, however slow the machine."""
    files = {f"f{n}.py": bytes([n]) * 100_000 for n in range(20)}
    whole(trail, 1)
    began = time.perf_counter()
    for commit in (trail.commit_found, trail.commit_patched, trail.commit_reverted):
        commit(files, experiment_id=2, **WHERE)
    assert (time.perf_counter() - began) / 3 < 1.0


def test_the_lock_is_free_afterwards(trail: History) -> None:
    """Nothing of a commit stays behind: no process, no lock."""
    whole(trail, 1)
    with (trail.path.parent / "history.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
