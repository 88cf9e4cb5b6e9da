"""The audit trail of every touched file: a bare git repository under `STATE/history`.

One branch for each host and tree, one commit each for `found`, `patched` and `reverted`, tagged `exp/41/found` and so
on. `git -C STATE/history log -p --all` is the trail; `git diff exp/41/found exp/41/reverted` is empty when the revert
was byte for byte. There is no work tree and no index: a commit is one `git fast-import` with everything in its input.

A git of ours inherits the lock that is held while it runs. So once the lock is free no git of ours runs, even where the
process that started it was killed, and lock files that git left behind can be removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from orchestrator.core.ports import Clock
from orchestrator.errors import Bug, Busy, Refused

Stage = Literal["found", "patched", "reverted"]
STAGES: tuple[Stage, ...] = ("found", "patched", "reverted")
Files = Mapping[str, bytes | None]
"""Path → content, None where there is no file. A path is absolute on the host, or begins at the tree."""

TIMEOUT_S = 30.0
_NOWHERE = "0" * 40
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_PARAMETERS": "",
    "GIT_CONFIG_COUNT": "0",
    "GIT_NAMESPACE": "",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class History:
    """Commits of one state directory. Safe to use from several processes and from a thread beside the run.

    Git missing, not writable or failing → `Refused`; another process at it for longer than `TIMEOUT_S` → `Busy`.
    """

    def __init__(self, state_dir: Path, *, clock: Clock) -> None:
        self.path = state_dir / "history"
        self._lock_path = state_dir / "history.lock"
        self._clock = clock

    def commit_found(self, files: Files, *, experiment_id: int, host: str, tree: str, label: str = "") -> str:
        """The commit's name. Begins anew: tags of the later stages, if there are any, go."""
        return self._commit("found", files, experiment_id, host, tree, label)

    def commit_patched(self, files: Files, *, experiment_id: int, host: str, tree: str, label: str = "") -> str:
        return self._commit("patched", files, experiment_id, host, tree, label)

    def commit_reverted(self, files: Files, *, experiment_id: int, host: str, tree: str, label: str = "") -> str:
        return self._commit("reverted", files, experiment_id, host, tree, label)

    def stages(self, experiment_id: int) -> dict[Stage, str]:
        """Which commits an experiment has; what is absent did not happen."""
        if not self.path.exists():
            return {}
        found = {stage: self._tip(f"refs/tags/{tag(experiment_id, stage)}") for stage in STAGES}
        return {stage: commit for stage, commit in found.items() if commit is not None}

    def diff(self, experiment_id: int, before: Stage = "found", after: Stage = "reverted") -> str:
        """Unified diff between two stages, empty where they are the same bytes. A stage that is missing → `Refused`."""
        missing = [stage for stage in (before, after) if stage not in self.stages(experiment_id)]
        if missing:
            raise Refused(f"experiment #{experiment_id} has no {' and no '.join(missing)} state in its history")
        with self._locked() as lock:
            words = ["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--full-index"]
            return self._git(lock, *words, tag(experiment_id, before), tag(experiment_id, after))

    def _commit(self, stage: Stage, files: Files, experiment_id: int, host: str, tree: str, label: str) -> str:
        branch = f"refs/heads/{_slug(host)}/{_slug(tree.strip('/'))}"
        subject = f"{stage}: {' '.join(label.split())}" if label.strip() else stage
        message = f"{subject}\n\nExperiment: #{experiment_id}\nHost: {host}\nTree: {tree}\n"
        paths = {_path(host, tree, path): content for path, content in files.items()}
        with self._locked() as lock:
            self._prepare(lock, branch)
            stream = commit_stream(
                branch=branch,
                parent=self._tip(branch),
                message=message,
                epoch_s=int(self._clock.now()),
                files=paths,
                tags={
                    f"refs/tags/{tag(experiment_id, s)}": s == stage
                    for s in STAGES[STAGES.index(stage) :]
                    if s == stage or self._tip(f"refs/tags/{tag(experiment_id, s)}")
                },
            )
            with tempfile.TemporaryFile() as file:
                file.write(stream)
                file.seek(0)
                return self._git(lock, "fast-import", "--quiet", "--force", "--done", istream=file).strip()

    def _prepare(self, lock: IO[str], branch: str) -> None:
        """Make the repository once, and take away what a killed git left."""
        if not all((self.path / name).exists() for name in ("HEAD", "config", "objects", "refs")):
            self._git(lock, "init", "--bare", "--quiet", "--template=", f"--initial-branch={branch[11:]}")
            self._git(lock, "config", "core.autocrlf", "false")
        for leftover in [
            *self.path.glob("*.lock"),
            *self.path.glob("refs/**/*.lock"),
            *self.path.glob("objects/pack/tmp_*"),
            *self.path.glob("fast_import_crash_*"),
        ]:
            leftover.unlink(missing_ok=True)

    def _tip(self, ref: str) -> str | None:
        """What a ref points at, read without a process."""
        loose = self.path / ref
        if loose.is_file():
            return loose.read_text().strip()
        packed = self.path / "packed-refs"
        if packed.is_file():
            found = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", packed.read_text(), re.MULTILINE)
            return found[1] if found else None
        return None

    @contextmanager
    def _locked(self) -> Iterator[IO[str]]:
        deadline = time.monotonic() + TIMEOUT_S
        try:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            lock = self._lock_path.open("a")
        except OSError as error:
            raise Refused(f"the history cannot be written: {error}", facts={"file": str(self.path)}) from error
        with lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Busy("another process is at the history", facts={"file": str(self.path)}) from None
                    time.sleep(0.005)
            yield lock

    def _git(self, lock: IO[str], *words: str, istream: IO[bytes] | None = None) -> str:
        try:
            import git
        except ImportError as error:
            raise Refused(f"the history needs git: {error}", hint="Install git on this machine.") from error
        command = ["git", f"--git-dir={self.path}", "-c", "gc.auto=0", *words]
        if words[0] == "init":
            command = ["git", "-c", "gc.auto=0", *words, str(self.path)]
        try:
            text = git.Git(str(self.path.parent)).execute(
                command,
                istream=istream,  # type: ignore[arg-type]
                env=_ENVIRONMENT | {"GIT_OBJECT_DIRECTORY": str(self.path / "objects")},
                kill_after_timeout=TIMEOUT_S,
                strip_newline_in_stdout=False,
                pass_fds=(lock.fileno(),),
            )
        except git.GitError as error:
            said = str(getattr(error, "stderr", "") or error).strip()
            raise Refused(
                f"the history could not be written: git {words[0]} failed",
                facts={"file": str(self.path), "git": said[-500:]},
            ) from error
        return text


def tag(experiment_id: int, stage: Stage) -> str:
    return f"exp/{experiment_id}/{stage}"


def commit_stream(
    *, branch: str, parent: str | None, message: str, epoch_s: int, files: Files, tags: Mapping[str, bool]
) -> bytes:
    """Input of `git fast-import` for one commit; git prints the commit's name. `tags`: ref → set it, or remove it."""
    out = io.BytesIO()

    def data(content: bytes) -> None:
        out.write(b"data %d\n%s\n" % (len(content), content))

    out.write(b"feature done\ncommit %s\nmark :1\n" % branch.encode())
    out.write(b"committer orchestrator <orchestrator@localhost> %d +0000\n" % epoch_s)
    data(message.encode("utf-8", "backslashreplace"))
    if parent is not None:
        out.write(b"from %s\n" % parent.encode())
    for path, content in sorted(files.items()):
        quoted = _quoted(path)
        if content is None:
            out.write(b"D %s\n" % quoted)
        else:
            out.write(b"M 100644 inline %s\n" % quoted)
            data(content)
    out.write(b"\n")
    for ref, is_set in tags.items():
        out.write(b"reset %s\nfrom %s\n\n" % (ref.encode(), b":1" if is_set else _NOWHERE.encode()))
    out.write(b"get-mark :1\ndone\n")
    return out.getvalue()


def _quoted(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _path(host: str, tree: str, path: str) -> str:
    """`host/opt/sglang/…`: where a file of a host lies in the repository."""
    whole = path if path.startswith("/") else f"{tree}/{path}"
    parts = [part for part in whole.split("/") if part]
    if not parts or any(part in (".", "..") or part.lower() == ".git" for part in parts) or "\0" in path:
        raise Bug(f"{path!r} cannot be kept in the history")
    return "/".join([_slug(host), *parts])


def _slug(name: str) -> str:
    """A name as a part of a ref: unchanged where git allows it, else told apart by a digest."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "root"
    if plain == name:
        return name
    return f"{plain}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:6]}"
