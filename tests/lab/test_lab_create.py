"""What `create` makes, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.core.model import Inventory, Playbook
from orchestrator.errors import Refused, UsageError
from orchestrator.lab import Lab, create
from orchestrator.playbook import load
from tests.lab.lab_server import launched, query


def digest(*folders: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_lab_is_made_at_once(tmp_path: Path) -> None:
    """The best of three attempts stays below half a second."""
    times = []
    for n in range(3):
        began = time.perf_counter()
        create(tmp_path / str(n))
        times.append(time.perf_counter() - began)
    assert min(times) < 0.5


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import orchestrator.lab` leaves venv and its kin alone."""
    code = "import sys, orchestrator.lab; print([m for m in ('venv', 'random', 'pydantic') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                           env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})  # fmt: skip
    assert shown.stdout.strip() == "[]"


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    """Nothing of anybody's is overwritten."""
    (tmp_path / "mine").write_text("x")
    with pytest.raises(Refused):
        create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """An operating-system error comes out as a refusal."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refused):
        create(tmp_path / "file" / "lab")


def test_an_unknown_constant_is_named(tmp_path: Path) -> None:
    """A misspelt constant is a usage error, before anything is written."""
    with pytest.raises(UsageError, match="plain_compute"):
        create(tmp_path / "lab", constants={"plain_compute": 1.0})
    assert not (tmp_path / "lab").exists()


def test_the_interpreter_finds_its_own_sitecustomize_and_tree(lab: Lab) -> None:
    """Whatever the base interpreter ships, the lab's sitecustomize is the one that runs."""
    code = (
        "import sitecustomize, sglang, os, importlib.metadata as m;"
        "print(sitecustomize.__file__, sglang.__file__, os.environ['NCCL_MAX_NCHANNELS'],"
        " m.version('sglang'), m.version('flashinfer-python'), m.version('torch'))"
    )
    shown = subprocess.run([str(lab.python), "-c", code], capture_output=True, text=True, check=True, env={})
    assert shown.stdout.split() == [
        str(lab.sitecustomize),
        str(lab.source / "__init__.py"),
        "16",
        "0.5.10.post1",
        "0.6.7.post3",
        "2.9.1",
    ]


def test_a_sitecustomize_beside_the_standard_library_does_not_win(lab: Lab, tmp_path: Path) -> None:
    """A folder ahead of site-packages, as Debian's standard library is one, is passed over; PYTHONPATH is not."""
    code = "import sys; print([p for p in sys.path if p].index(sys.argv[1]) < sys.path.index(sys.argv[2]))"
    library = str(Path(os.__file__).parent)
    shown = subprocess.run(
        [str(lab.python), "-c", code, str(lab.site), library], capture_output=True, text=True, check=True, env={}
    )
    (tmp_path / "sitecustomize.py").write_text("")
    mine = subprocess.run(
        [str(lab.python), "-c", "import sitecustomize; print(sitecustomize.__file__)"],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert shown.stdout.strip() == "True"
    assert mine.stdout.strip() == str(tmp_path / "sitecustomize.py")


def test_the_packages_the_campaign_asks_for(lab: Lab) -> None:
    """flashinfer and torch can be imported, mscclpp cannot."""
    code = "from importlib.util import find_spec as f; print([bool(f(n)) for n in ('flashinfer', 'torch', 'mscclpp')])"
    shown = subprocess.run([str(lab.python), "-c", code], capture_output=True, text=True, check=True, env={})
    assert shown.stdout.strip() == "[True, True, False]"


def test_running_a_server_changes_neither_tree_nor_packages(lab: Lab) -> None:
    """Everything is compiled when the lab is made: a run leaves tree and site-packages byte for byte alone."""
    before = digest(lab.root / "tree", lab.site)
    with launched(lab) as server:
        server.await_ready().terminate()
    query(lab, "-L")
    assert digest(lab.root / "tree", lab.site) == before


def test_record_lists_the_tree_as_shipped(lab: Lab) -> None:
    """sglang's RECORD names every source file with its size, relative to site-packages as pip writes it."""
    record = (lab.site / "sglang-0.5.10.post1.dist-info" / "RECORD").read_text().splitlines()
    sizes = {(lab.site / line.split(",")[0]).resolve(): int(line.rsplit(",", 1)[1]) for line in record}
    assert sizes == {path: path.stat().st_size for path in lab.source.rglob("*.py")}


def test_inventory_and_playbook_load(lab: Lab) -> None:
    """The lab's own YAML passes the product's own loader."""
    loaded = load(lab.playbook_file, hosts_file=lab.hosts_file)
    assert isinstance(loaded.playbook, Playbook)
    assert isinstance(loaded.inventory, Inventory)
    assert loaded.target.port == lab.port
    assert loaded.target.source == str(lab.source)
