"""Settings: who wins over whom, where each came from, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.errors import UsageError


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "deep" / "er"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_defaults(cwd: Path, home: Path) -> None:
    """Without any source: ./state, no inventory, color by itself."""
    config = load_config({}, {}, cwd, home)
    assert (config.state.value, config.state.origin) == (cwd / "state", "default")
    assert (config.hosts.value, config.color.value) == (None, "auto")


def test_precedence(cwd: Path, home: Path) -> None:
    """Flag, environment, project file, user file, default: each wins over those after it and says its name."""
    user = write(home / ".config/orchestrator/config.toml", 'state = "u"\n')

    def state(flags: dict[str, str | Path | None], env: dict[str, str]) -> tuple[Path, str]:
        setting = load_config(flags, env, cwd, home).state
        return setting.value, setting.origin

    assert state({}, {}) == (user.parent / "u", f"{user}:1")
    project = write(cwd.parents[1] / "orchestrator.toml", '# ours\nstate = "p"\n')
    assert state({}, {}) == (project.parent / "p", f"{project}:2")
    env = {"ORCHESTRATOR_STATE": "e"}
    assert state({}, env) == (cwd / "e", "ORCHESTRATOR_STATE")
    assert state({"state": Path("f")}, env) == (cwd / "f", "--state")
    assert state({"state": None}, {"ORCHESTRATOR_STATE": ""}) == (project.parent / "p", f"{project}:2")


def test_nearest_project_file_counts(cwd: Path, home: Path) -> None:
    """Of several project files the nearest above the working directory is read, and only that."""
    write(cwd.parents[1] / "orchestrator.toml", 'state = "far"\nhosts = "far.yaml"\n')
    near = write(cwd.parent / "orchestrator.toml", 'state = "near"\n')
    config = load_config({}, {}, cwd, home)
    assert (config.state.value, config.hosts.value) == (near.parent / "near", None)


def test_user_file_below_xdg(cwd: Path, home: Path, tmp_path: Path) -> None:
    """XDG_CONFIG_HOME names the place of the user's file; a relative one is ignored, as XDG says."""
    write(tmp_path / "xdg/orchestrator/config.toml", 'color = "never"\n')
    assert load_config({}, {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, cwd, home).color.value == "never"
    assert load_config({}, {"XDG_CONFIG_HOME": "xdg"}, cwd, home).color.value == "auto"


def test_paths(cwd: Path, home: Path) -> None:
    """`~` is the home, absolute paths stay."""
    config = load_config({"state": "~/s", "hosts": "/etc/hosts.yaml"}, {}, cwd, home)
    assert (config.state.value, config.hosts.value) == (home / "s", Path("/etc/hosts.yaml"))


@pytest.mark.parametrize(
    ("flag", "env", "value", "origin"),
    [
        (None, {"NO_COLOR": "1"}, "never", "NO_COLOR"),
        (None, {"NO_COLOR": ""}, "auto", "default"),
        (None, {"NO_COLOR": "1", "ORCHESTRATOR_COLOR": "always"}, "always", "ORCHESTRATOR_COLOR"),
        ("always", {"NO_COLOR": "1"}, "always", "--color"),
    ],
)
def test_color(flag: str | None, env: dict[str, str], value: str, origin: str, cwd: Path, home: Path) -> None:
    """NO_COLOR, when it is not empty, turns color off unless somebody asked for it by name."""
    color = load_config({"color": flag}, env, cwd, home).color
    assert (color.value, color.origin) == (value, origin)


@pytest.mark.parametrize(
    ("text", "what", "line", "column", "hint"),
    [
        ('state = "s"\nsate = "x"\n', "unknown key `sate`", 2, 1, "did you mean `state`?"),
        ("\n[server]\nx = 1\n", "unknown key `server`", 2, 2, "keys: state, hosts, color"),
        ('"zzz" = 1\n', "unknown key `zzz`", 1, 2, "keys"),
        ("state = 1\n", "`state` must be text", 1, 1, "quotes"),
        ('state = ""\n', "`state` is empty", 1, 1, "remove"),
        ('color = "blue"\n', "`blue` is no choice of color", 1, 1, "auto, always, never"),
        ('state = "s"\nhosts = x\n', "not valid TOML", 2, 9, ""),
        ("state = ", "not valid TOML", 1, 8, ""),
        ("state = 'a", "not valid TOML", 1, 11, ""),
    ],
)
def test_bad_files(text: str, what: str, line: int, column: int, hint: str, cwd: Path, home: Path) -> None:
    """Every mistake in a file is named with file, line and column."""
    file = write(cwd / "orchestrator.toml", text)
    with pytest.raises(UsageError) as caught:
        load_config({}, {}, cwd, home)
    where = caught.value.where
    assert what in caught.value.what
    assert where and (where.file, where.line, where.column) == (str(file), line, column)
    assert hint in (caught.value.hint or "")


def test_file_that_is_not_text(cwd: Path, home: Path) -> None:
    """A file that is not UTF-8 is named."""
    (cwd / "orchestrator.toml").write_bytes(b"state = '\xff'")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_config({}, {}, cwd, home)


def test_bad_color_in_the_environment(cwd: Path, home: Path) -> None:
    """A bad value without a file says which variable it came from."""
    with pytest.raises(UsageError, match="ORCHESTRATOR_COLOR"):
        load_config({}, {"ORCHESTRATOR_COLOR": "blue"}, cwd, home)


def test_config_is_light() -> None:
    """Importing the settings loads neither tomllib nor anything of ours but errors."""
    code = (
        "import sys, orchestrator.config\n"
        "print(sorted(m for m in sys.modules if m.startswith(('orchestrator.', 'tomllib', 'pydantic', 'difflib'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['orchestrator.config', 'orchestrator.errors']"
    assert Config.__dataclass_params__.frozen  # type: ignore[attr-defined]
