"""The archive, and the program that asks for it."""

from __future__ import annotations

import ast
import contextlib
import os
import secrets
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path

import pytest

from orchestrator.hosts.bootstrap import SOURCE, marker, program, start_argv
from orchestrator.hosts.bundle import Bundle, agent_sources, bundle, pack

NONCE = "ab" * 32
STARTER = b"def start(path):\n import sys\n sys.stdout.write('\\nstarted '+path+'\\n')\n"


@pytest.fixture
def tiny() -> Iterator[Bundle]:
    """An archive of this test alone; where it went to the shared place below /tmp, it is taken away again."""
    made = pack({"start.py": STARTER + b"#" + secrets.token_hex(8).encode()})
    yield made
    shared = Path(f"/tmp/orchestrator-{os.getuid()}")
    (shared / made.digest).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or somebody else's archives are in it
        shared.rmdir()


OUTSIDE_TMP = os.path.realpath(sys.executable)
"""This interpreter, also where its environment lies in a directory that a test mounts something over."""


def boot(
    archive: Bundle, env: Mapping[str, str], *, sent: bytes | None = None, python: str = sys.executable
) -> subprocess.CompletedProcess[bytes]:
    """Run the bootstrap with `sent` (by default the archive) as its whole input."""
    argv = start_argv(python, archive.digest, len(archive.content), NONCE)
    sent = archive.content if sent is None else sent
    return subprocess.run(argv, input=sent, capture_output=True, env={"PATH": os.environ["PATH"], **env}, check=False)


def answer(done: subprocess.CompletedProcess[bytes]) -> str:
    found = marker(NONCE).search(done.stdout)
    assert found, done.stderr
    return found[1].decode()


def started_from(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode().partition("\nstarted ")[2].strip()


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def test_the_archive_has_the_same_bytes_every_time() -> None:
    """Two packings of the same sources give the same digest, and it is that of the content."""
    sources = agent_sources()
    assert pack(sources) == pack(dict(reversed(sources.items()))) == bundle()


def test_the_archive_holds_the_agent_and_an_empty_parent() -> None:
    """Package names are kept; our own `orchestrator/__init__.py` does not travel."""
    with zipfile.ZipFile(BytesIO(bundle().content)) as archive:
        names = archive.namelist()
        assert "orchestrator/agent/main.py" in names and "start.py" in names
        assert archive.read("orchestrator/__init__.py") == b""
        assert all(name.startswith("orchestrator/") for name in names if name != "start.py")


def test_the_bootstrap_is_below_a_kilobyte_and_plain_to_every_shell() -> None:
    """Under 1000 characters, none of which a shell treats as special between single quotes."""
    assert len(program()) < 1000
    assert not set("'\\\n!").intersection(program())


def test_what_travels_is_python_3_8() -> None:
    """Bootstrap and starter parse as 3.8, and the version is looked at before anything newer than 2.7 runs."""
    ast.parse(SOURCE, feature_version=(3, 8))
    ast.parse(agent_sources()["start.py"], feature_version=(3, 8))
    assert SOURCE.split("\n")[2].startswith("if sys.version_info<(3,8):sys.exit")


def test_the_second_start_needs_nothing(tiny: Bundle, home: dict[str, str], tmp_path: Path) -> None:
    """The archive is asked for once, stored private, and found the next time without a byte of input."""
    first, second = boot(tiny, home), boot(tiny, home, sent=b"")
    assert (answer(first), answer(second)) == ("need", "have")
    folder = tmp_path / ".cache" / "orchestrator"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [p.name for p in folder.iterdir()] == [tiny.digest]
    assert started_from(second) == str(folder / tiny.digest)


def test_a_tampered_archive_is_asked_for_again(tiny: Bundle, home: dict[str, str], tmp_path: Path) -> None:
    """A stored archive whose bytes differ is never run."""
    boot(tiny, home)
    (tmp_path / ".cache" / "orchestrator" / tiny.digest).write_bytes(b"evil")
    assert answer(boot(tiny, home)) == "need"


def test_a_directory_that_others_can_enter_is_not_used(tiny: Bundle, home: dict[str, str], tmp_path: Path) -> None:
    """Neither a group-readable cache nor a symbolic link in its place is trusted."""
    folder = tmp_path / ".cache" / "orchestrator"
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    assert str(folder) not in started_from(boot(tiny, home))
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert str(tmp_path) not in started_from(boot(tiny, home))


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + b"x", lambda b: b""])
def test_a_short_or_damaged_archive_is_refused(
    damage: Callable[[bytes], bytes], tiny: Bundle, home: dict[str, str], tmp_path: Path
) -> None:
    """Nothing is stored and nothing runs unless length and digest fit."""
    done = boot(tiny, home, sent=damage(tiny.content))
    assert done.returncode == 1 and b"bad archive" in done.stderr
    assert not list((tmp_path / ".cache" / "orchestrator").iterdir())


def test_a_non_blocking_input_that_comes_in_drops_is_read_to_its_end(tiny: Bundle, home: dict[str, str]) -> None:
    """sudo's `use_pty` leaves standard input non-blocking: short reads and EAGAIN are waited out."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    argv = start_argv(OUTSIDE_TMP, tiny.digest, len(tiny.content), NONCE)
    process = subprocess.Popen(argv, stdin=read_end, stdout=subprocess.PIPE, env=home)
    os.close(read_end)
    assert process.stdout is not None
    seen = b""
    while b"need\n" not in seen:  # only now does the first read find an empty pipe
        seen += process.stdout.read1()

    def drip() -> None:
        for at in range(0, len(tiny.content), 7):
            os.write(write_end, tiny.content[at : at + 7])
        os.close(write_end)

    thread = threading.Thread(target=drip)
    thread.start()
    rest, _ = process.communicate(timeout=20)
    thread.join()
    assert b"started" in rest


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a filesystem needs root")
def test_a_full_disk_means_running_from_memory(tiny: Bundle, tmp_path: Path) -> None:
    """With no room in the cache and none in /tmp, the archive runs from memory and leaves no half file."""
    done = boot_in_full_mounts(tiny, tmp_path)
    assert answer(done) == "need"
    assert started_from(done).startswith("/proc/self/fd/"), done.stderr


def boot_in_full_mounts(tiny: Bundle, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    """The bootstrap in a mount namespace of its own, where HOME and /tmp are tmpfs without a free page."""
    home = tmp_path / "home"
    home.mkdir()
    archive = tmp_path / "archive"
    archive.write_bytes(tiny.content)
    words = start_argv(OUTSIDE_TMP, tiny.digest, len(tiny.content), NONCE)
    script = (
        'exec 3< "$2"; mount -t tmpfs -o size=16k,nr_inodes=40 none "$1" && mount -t tmpfs -o size=16k none /tmp '
        '&& { dd if=/dev/zero of="$1/fill" bs=4k; dd if=/dev/zero of=/tmp/fill bs=4k; } 2>/dev/null; '
        'export HOME="$1"; shift 2; exec "$@" <&3'
    )
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(home), str(archive), *words]
    return subprocess.run(argv, capture_output=True, check=False, env={"PATH": os.environ["PATH"]})


def other_pythons() -> list[str]:
    """Interpreters of other versions that happen to be installed."""
    roots = [Path("/root/.pyenv/versions"), Path("/usr/bin")] if os.geteuid() == 0 else [Path("/usr/bin")]
    found = [
        p for root in roots if root.is_dir() for p in [*root.glob("3.*/bin/python3"), *root.glob("python3.*[0-9]")]
    ]
    return sorted(str(p) for p in found)


@pytest.mark.parametrize("python", other_pythons())
def test_every_installed_python_starts_it_or_says_that_it_is_too_old(
    tiny: Bundle, python: str, home: dict[str, str]
) -> None:
    """3.8 and newer run the archive; an older one names its version and the client explains it."""
    version = subprocess.run([python, "-c", "import sys;print(sys.version_info[1])"], capture_output=True, check=True)
    done = boot(tiny, home, python=python)
    if int(version.stdout) >= 8:
        assert answer(done) == "need" and b"started" in done.stdout
    else:
        assert b"too old: python 3." in done.stderr


def test_the_agent_is_compiled_once_and_then_found(tmp_path: Path) -> None:
    """The starter writes an archive with bytecode beside the one with sources, under a name that `forget` knows."""
    from orchestrator.hosts.start import compiled

    archive = tmp_path / bundle().digest
    archive.write_bytes(bundle().content)
    made = Path(compiled(str(archive)))
    assert made != archive and len(made.name) == 64 and int(made.name, 16)
    with zipfile.ZipFile(made) as content:
        assert "orchestrator/agent/main.pyc" in content.namelist()
    stamp = made.stat().st_mtime_ns
    assert compiled(str(archive)) == str(made) and made.stat().st_mtime_ns == stamp
    assert sorted(tmp_path.iterdir()) == sorted([archive, made])


def test_where_bytecode_cannot_be_kept_the_sources_are_used(
    tiny: Bundle,
) -> None:
    """An archive in memory has no folder to write to: it is used as it is."""
    from orchestrator.hosts.start import compiled

    fd = os.memfd_create("archive")
    os.write(fd, tiny.content)
    assert compiled(f"/proc/self/fd/{fd}") == f"/proc/self/fd/{fd}"
    os.close(fd)
