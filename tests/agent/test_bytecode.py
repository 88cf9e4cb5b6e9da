"""Which code runs: servers launched by the real agent before, during and after a change that no size or second shows.

The edit turns `==` into `!=`: the same size, made within the second that the file says it is of. An interpreter that
trusts its compiled form by second and size would run the other version.
"""

from __future__ import annotations

import base64
import hashlib
import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import AgentClient, AgentReply
from tests.agent.conftest import launch

OLD = b"def which():\n    return 1 == 2\n"
NEW = b"def which():\n    return 1 != 2\n"
WAYS = ["prefix", "beside"]
"""With the bytecode prefix of ours, as engines are launched; and without, compiled forms lying in the tree."""


def ask(agent: AgentClient, tmp_path: Path, root: Path, way: str, launch_id: str) -> str:
    """What a server says that imports the module."""
    code = f"import sys; sys.path.insert(0, {str(root)!r}); import which; print('says', which.which(), flush=True)"
    launch(agent, tmp_path, sys.executable, "-u", "-c", code, launch_id=launch_id, pycache=way == "prefix")
    agent.wait_event("exit")
    said = next(line for line in reversed(agent.lines()) if line.startswith("says "))
    agent.call("stop", launch_id=launch_id, grace_s=0.0)
    agent.events.clear()
    return said.removeprefix("says ")


def change(path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "kind": "replace",
        "before_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "content_b64": base64.b64encode(NEW).decode(),
        "mode": None,
    }


def compiled_beside(root: Path) -> list[Path]:
    return sorted((root / "__pycache__").glob("which.*.pyc"))


def compiled(path: Path) -> Path:
    """The compiled form of a file, made beside it."""
    made = py_compile.compile(str(path), doraise=True)
    assert made is not None
    return Path(made)


@pytest.fixture
def module(root: Path) -> Path:
    path = root / "which.py"
    path.write_bytes(OLD)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_same_second_same_size_edit_runs_and_the_old_code_after_it(
    agent: AgentClient, tmp_path: Path, root: Path, module: Path, way: str
) -> None:
    """Old, new, old, new, old: each launch runs what lies there, with a compiled form of the version before it at
    hand, and the file written in the very second of the change."""
    said = []
    for number in range(2):
        for path in compiled_beside(root):
            path.unlink()  # ours was moved on by a second, which may be the second of the next line
        os.utime(module)
        said.append(ask(agent, tmp_path, root, way, f"before{number}"))
        agent.call("apply", txn=f"t{number}", files=[change(module)])
        said.append(ask(agent, tmp_path, root, way, f"during{number}"))
        agent.call("revert", txn=f"t{number}", reason="test")
        assert module.read_bytes() == OLD
    said.append(ask(agent, tmp_path, root, way, "after"))
    assert said == ["False", "True", "False", "True", "False"]
    assert (compiled_beside(root) == []) is (way == "prefix")


@pytest.mark.parametrize("way", WAYS)
def test_the_trap_is_real(agent: AgentClient, tmp_path: Path, root: Path, module: Path, way: str) -> None:
    """The same edit made by hand within the file's second runs the old code: what the tests above would show if nobody
    took care of it."""
    second = int(os.stat(module).st_mtime)
    assert ask(agent, tmp_path, root, way, "before") == "False"
    module.write_bytes(NEW)
    os.utime(module, (second, second))
    assert ask(agent, tmp_path, root, way, "after") == "False"


@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_form_checked_by_its_hash_does_not_hide_the_edit(
    agent: AgentClient, tmp_path: Path, root: Path, module: Path, way: str
) -> None:
    """A distribution's checked-hash `.pyc` beside the file: new code while applied, old code after."""
    py_compile.compile(str(module), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    assert ask(agent, tmp_path, root, way, "before") == "False"
    agent.call("apply", txn="t", files=[change(module)])
    assert ask(agent, tmp_path, root, way, "during") == "True"
    agent.call("revert", txn="t", reason="test")
    assert ask(agent, tmp_path, root, way, "after") == "False"


@pytest.mark.parametrize("level", [-1, 1, 2])
def test_a_compiled_form_that_is_never_checked_refuses_the_edit(
    agent: AgentClient, tmp_path: Path, root: Path, module: Path, level: int
) -> None:
    """An unchecked-hash `.pyc`, at any level of optimization: the edit would have no effect, so it is refused, and
    nothing changes."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(module), doraise=True, invalidation_mode=mode, optimize=level)
    held = {path: path.read_bytes() for path in compiled_beside(root)}
    with pytest.raises(AgentReply) as refused:
        agent.call("apply", txn="t", files=[change(module)])
    assert refused.value.kind == "refused"
    assert module.read_bytes() == OLD
    assert {path: path.read_bytes() for path in compiled_beside(root)} == held
    assert ask(agent, tmp_path, root, "beside", "after") == "False"


def test_the_trees_own_compiled_forms_are_neither_read_nor_touched(
    agent: AgentClient, tmp_path: Path, root: Path, module: Path
) -> None:
    """With the prefix: a compiled form in the tree that claims to be of this second and size, and is of other code, is
    not run, and is afterwards as it was."""
    path = compiled(module)
    header = path.read_bytes()[:16]
    liar = root / "liar.py"
    liar.write_bytes(OLD.replace(b"1 == 2", b"'of the tree'"))
    lying = compiled(liar).read_bytes()
    path.write_bytes(header + lying[16:])
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert ask(agent, tmp_path, root, "beside", "trap") == "of the tree"
    assert ask(agent, tmp_path, root, "prefix", "before") == "False"
    agent.call("apply", txn="t", files=[change(module)])
    assert ask(agent, tmp_path, root, "prefix", "during") == "True"
    agent.call("revert", txn="t", reason="test")
    assert ask(agent, tmp_path, root, "prefix", "after") == "False"
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
