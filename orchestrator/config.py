"""Settings, each with where it came from.

A flag wins over the environment (`ORCHESTRATOR_STATE`, `ORCHESTRATOR_HOSTS`, `ORCHESTRATOR_COLOR`, then `NO_COLOR`),
that over `orchestrator.toml` in this directory or the nearest one above, that over the user's file
(`$XDG_CONFIG_HOME/orchestrator/config.toml`, by default below `~/.config`), that over the default. An empty variable
counts as unset. Paths in a file are relative to the file, others to the working directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.errors import Place, UsageError

PROJECT_FILE = "orchestrator.toml"
USER_FILE = "orchestrator/config.toml"
COLORS = ("auto", "always", "never")

_KEYS = ("state", "hosts", "color")
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Setting(Generic[T_co]):
    """A value and its origin in words: `--state`, `ORCHESTRATOR_STATE`, `orchestrator.toml:2`, `default`."""

    value: T_co
    origin: str


@dataclass(frozen=True)
class Config:
    state: Setting[Path]
    """Directory of the ledger and the artifacts."""
    hosts: Setting[Path | None]
    """Inventory that wins over a playbook's own."""
    color: Setting[str]
    """`auto`, `always` or `never`."""


@dataclass(frozen=True)
class _Found:
    text: str
    origin: str
    base: Path  # what a relative path is relative to
    place: Place | None = None


def load_config(flags: Mapping[str, str | Path | None], env: Mapping[str, str], cwd: Path, home: Path) -> Config:
    """Settings from all sources. `flags` maps `state`, `hosts`, `color` to what the command line gave, or None.

    Raises `UsageError` with the place of an unknown key, a bad value or a file that cannot be read.
    """
    found = _from_file(_user_file(env, home))
    project = _project_file(cwd)
    if project is not None:
        found |= _from_file(project)
    found |= _from_environment(env, cwd)
    found |= {key: _Found(str(flags[key]), f"--{key}", cwd) for key in _KEYS if flags.get(key) is not None}
    return Config(
        state=_path(found["state"], home) if "state" in found else Setting(cwd / "state", "default"),
        hosts=_path(found["hosts"], home) if "hosts" in found else Setting(None, "default"),
        color=_color(found["color"]) if "color" in found else Setting("auto", "default"),
    )


def _from_environment(env: Mapping[str, str], cwd: Path) -> dict[str, _Found]:
    found = {}
    if env.get("NO_COLOR"):
        found["color"] = _Found("never", "NO_COLOR", cwd)
    for key in _KEYS:
        name = f"ORCHESTRATOR_{key.upper()}"
        if env.get(name):
            found[key] = _Found(env[name], name, cwd)
    return found


def _user_file(env: Mapping[str, str], home: Path) -> Path:
    base = Path(env.get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else home / ".config") / USER_FILE  # the XDG rule: a relative one is ignored


def _project_file(cwd: Path) -> Path | None:
    return next((file for folder in (cwd, *cwd.parents) if (file := folder / PROJECT_FILE).is_file()), None)


def _from_file(file: Path) -> dict[str, _Found]:
    if not file.is_file():
        return {}
    import tomllib  # only where there is a file to read

    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), file, text) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8", where=Place(str(file))) from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", where=Place(str(file))) from error
    return {key: _entry(key, value, file, text) for key, value in values.items()}


def _syntax_error(said: str, file: Path, text: str) -> UsageError:
    """tomllib gives the place in its sentence, or says that it is the end."""
    lines = text.rstrip().split("\n")
    at = _POSITION.search(said)
    line, column = (int(at[1]), int(at[2])) if at and at[1] else (len(lines), len(lines[-1]) + 1)
    place = Place(str(file), line, column, text.split("\n")[line - 1])
    return UsageError(f"not valid TOML: {_POSITION.sub('', said)}", where=place)


def _entry(key: str, value: object, file: Path, text: str) -> _Found:
    place = _place(key, file, text)
    if key not in _KEYS:
        raise UsageError(f"unknown key `{key}`", where=place, hint=_suggest(key))
    if not isinstance(value, str):
        raise UsageError(f"`{key}` must be text", where=place, hint="put it in quotes")
    if not value:
        raise UsageError(f"`{key}` is empty", where=place, hint="write a value, or remove the line")
    return _Found(value, f"{file}:{place.line}" if place.line else str(file), file.parent, place)


def _place(key: str, file: Path, text: str) -> Place:
    """Where a top-level key or table begins; tomllib keeps no positions."""
    pattern = re.compile(rf"""\s*\[*\s*["']?({re.escape(key)})["']?\s*[=.\]]""")
    for number, line in enumerate(text.split("\n"), 1):
        if match := pattern.match(line):
            return Place(str(file), number, match.start(1) + 1, line.rstrip("\r"))
    return Place(str(file))


def _suggest(key: str) -> str:
    from difflib import get_close_matches

    meant = get_close_matches(key.lower(), _KEYS, 1)
    return f"did you mean `{meant[0]}`?" if meant else f"keys: {', '.join(_KEYS)}"


def _path(found: _Found, home: Path) -> Setting[Path]:
    text = found.text
    if text == "~" or text.startswith("~/"):
        return Setting(home / text[2:], found.origin)
    return Setting(found.base / text, found.origin)


def _color(found: _Found) -> Setting[str]:
    if found.text not in COLORS:
        hint = f"choose one of: {', '.join(COLORS)}"
        raise UsageError(f"`{found.text}` is no choice of color ({found.origin})", where=found.place, hint=hint)
    return Setting(found.text, found.origin)
