"""A first playbook from what a host shows: the live server as baseline, blanks for what is unknown. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ENGINE_WORDS = ("sglang", "vllm")
MASK = "***"
_PORTS = {"sglang": 30000, "vllm": 8000}
_MODEL = ("model-path", "model")
_OF_TARGET = frozenset({"port", *_MODEL})
_OF_LAUNCHES = frozenset({"weight-version", "served-model-name"})
"""Each launch of ours names itself by these."""
_PASSING = frozenset(
    {
        "_", "PWD", "OLDPWD", "SHLVL", "TERM", "LS_COLORS", "COLORTERM", "SHELL", "MAIL", "LESSOPEN",
        "LESSCLOSE", "DISPLAY", "TMUX", "TMUX_PANE", "STY", "WINDOW", "HOSTNAME", "INVOCATION_ID",
        "JOURNAL_STREAM", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "SYSTEMD_EXEC_PID",
        "DBUS_SESSION_BUS_ADDRESS", "MOTD_SHOWN", "PS1", "TERM_PROGRAM", "TERM_PROGRAM_VERSION",
        "VIRTUAL_ENV_PROMPT", "TMPDIR", "PYTHONPYCACHEPREFIX", "ORC_RUN_ID",
    }
)  # fmt: skip
"""What comes and goes with a login, a terminal, a start."""
_PASSING_PREFIX = ("SSH_", "XDG_SESSION", "XDG_RUNTIME", "SUDO_", "BASH_FUNC_", "LC_TERMINAL", "VSCODE_")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


@dataclass(frozen=True)
class Live:
    """A server as the agent's `service_find` shows it, read. `blanks`: what its command line did not tell."""

    engine: str
    pid: int
    port: int
    python: str
    model: str | None
    args: Mapping[str, Any]
    secret_args: tuple[str, ...]
    env: Mapping[str, str | None]
    from_service: tuple[str, ...]
    gpus: tuple[int, ...] | None
    cwd: str | None
    service: Mapping[str, Any] | None
    above: tuple[str, ...]
    seen: Mapping[str, Any] = field(repr=False)

    @property
    def sentence(self) -> str:
        return f"pid {self.pid} of {self.seen['user']}, port {self.port}: {' '.join(self.seen['cmdline'])[:120]}"


def read_live(seen: Mapping[str, Any], account: Mapping[str, str]) -> Live | None:
    """What a server was started as; None where it is not launched in a way that we could repeat. `account`: what a
    launch of ours inherits anyway."""
    words = list(seen["cmdline"])
    start = _after_module(words)
    if start is None:
        return None
    engine, rest = start
    model, flags = _flags(rest)
    named = next((str(flags[name]) for name in _MODEL if name in flags), model)
    port = int(flags.get("port") or _PORTS[engine])
    secret = tuple(name for name, value in flags.items() if value == MASK)
    left = _OF_TARGET | _OF_LAUNCHES | set(secret)
    variables = dict(seen["variables"] or {})
    return Live(
        engine=engine,
        pid=int(seen["pid"]),
        port=port,
        python=str(seen["program"] or words[0]),
        model=named,
        args={name: value for name, value in flags.items() if name not in left},
        secret_args=secret,
        env=_own(variables, account),
        from_service=tuple(sorted(name for name, value in variables.items() if value is None)),
        gpus=_cards(variables.get("CUDA_VISIBLE_DEVICES")),
        cwd=seen["cwd"],
        service=_service(seen),
        above=tuple(" ".join(one["cmdline"]) for one in seen["above"]),
        seen=seen,
    )


def _after_module(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The engine, and the words after what starts it: `-m sglang.launch_server`, `sglang serve`, `vllm serve`."""
    for index, word in enumerate(words):
        if word == "-m" and words[index + 1 : index + 2]:
            module = words[index + 1]
            if module in ("sglang.launch_server", "vllm.entrypoints.openai.api_server"):
                return module.partition(".")[0], list(words[index + 2 :])
        name = word.rsplit("/", 1)[-1]
        if name in ENGINE_WORDS and words[index + 1 : index + 2] == ["serve"]:
            return name, list(words[index + 2 :])
    return None


def _flags(words: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    """The word before the first flag, and flags as a playbook writes them."""
    first = words[0] if words and not words[0].startswith("--") else None
    flags: dict[str, Any] = {}
    name = ""
    for word in words[1:] if first is not None else words:
        if word.startswith("--") and len(word) > 2:
            name, mark, value = word[2:].partition("=")
            name = name.replace("_", "-")
            flags[name] = _value(value) if mark else True
        elif name:
            known = flags[name]
            flags[name] = (
                _value(word) if known is True else [*(known if isinstance(known, list) else [known]), _value(word)]
            )
    return first, flags


def _value(word: str) -> Any:  # noqa: ANN401 - a flag's value
    """As a number where the server gets the same word back, else as text."""
    if not _NUMBER.fullmatch(word):
        return word
    number = float(word) if "." in word else int(word)
    return number if str(number) == word else word


def _own(variables: Mapping[str, str | None], account: Mapping[str, str]) -> dict[str, str | None]:
    """What its environment has, beyond the account's and what comes and goes with a login; null where it lacks what the
    account has."""
    kept = {
        name: value
        for name, value in sorted(variables.items())
        if value is not None
        and name not in _PASSING
        and not name.startswith(_PASSING_PREFIX)
        and account.get(name) != value
    }
    if _cards(variables.get("CUDA_VISIBLE_DEVICES")) is not None:
        kept.pop("CUDA_VISIBLE_DEVICES", None)  # said by `gpus`
    lacking = {name: None for name in sorted(account) if name not in variables and name not in _PASSING}
    return {**kept, **lacking}


def _cards(text: str | None) -> tuple[int, ...] | None:
    if text is None or not re.fullmatch(r"\d+(,\d+)*", text):
        return None
    return tuple(int(one) for one in text.split(","))


def _service(seen: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who starts it, as a target says it; None where that is not told."""
    if seen["unclear"] is None:
        return {"process": {}}
    if seen["unit"] is not None:
        is_users = "user: true" in seen["unclear"]["hint"]
        return {"systemd": seen["unit"], **({"user": True} if is_users else {})}
    kind, _, name = str(seen["container"] or "").partition(" ")
    return {"docker": name} if kind in ("docker", "podman") else None


# ---------------------------------------------------------------- the text


@dataclass(frozen=True)
class Draft:
    """All that a first playbook says. `notes`: what was found, as comments; `blanks`: what was not, with the command
    that would tell; `resolved`: what the server says of flags that are not on its command line."""

    name: str
    host: Mapping[str, Any]
    live: Live
    source: str | None
    notes: Sequence[str] = ()
    blanks: Sequence[tuple[str, str]] = ()
    resolved: Mapping[str, Any] = field(default_factory=dict)


def _said(text: str) -> str:
    """For a comment: one line, whatever was seen there."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def write(draft: Draft) -> str:
    """The playbook's text: it can be run as it is."""
    return "\n".join([*_head(draft), *_hosts(draft), *_target(draft), *_campaign(draft)]) + "\n"


def _head(draft: Draft) -> Iterator[str]:
    yield f"# What serves on {draft.name}, as it was found: {_said(draft.live.sentence)}"
    yield from (f"# {_said(note)}" for note in draft.notes)
    yield f"campaign: tune-{re.sub(r'[^A-Za-z0-9._-]+', '-', draft.name)}"
    yield ""


def _hosts(draft: Draft) -> Iterator[str]:
    yield "hosts:"
    yield f"  {json.dumps(draft.name)}:"
    for key, value in draft.host.items():
        yield f"    {key}: {json.dumps(value)}"
    yield "    target: found"
    yield ""


def _target(draft: Draft) -> Iterator[str]:
    live = draft.live
    yield "targets:"
    yield "  found:"
    plain = {
        "engine": live.engine, "python": live.python, "source": draft.source, "model": live.model, "gpus": live.gpus,
        "port": live.port, "cwd": live.cwd,
    }  # fmt: skip
    for key, value in plain.items():
        if value is not None:
            yield f"    {key}: {json.dumps(value)}"
    for what, command in draft.blanks:
        yield f"    # BLANK {_said(what)}; this would tell: {_said(command)}"
    yield "    args:  # what stood on its command line" if live.args else "    args: {}"
    yield from (f"      {json.dumps(name)}: {json.dumps(value)}" for name, value in live.args.items())
    for name in live.secret_args:
        yield f"      # BLANK {_said(name)}: its value stayed on the host; write it here when the server demands it"
    for name, value in sorted(draft.resolved.items()):
        yield f"      # {_said(name)}: {json.dumps(value)}"
    yield "    env:  # beyond what the account has anyway" if live.env else "    env: {}"
    yield from (f"      {name}: {json.dumps(value)}" for name, value in live.env.items())
    if live.from_service:
        yield f"    from_service: {json.dumps(list(live.from_service))}  # taken there from what serves"
    if live.service is not None:
        above = f"  # under: {_said(' < '.join(reversed(live.above)))}" if live.above else ""
        yield f"    service: {json.dumps(live.service)}{above}"


def _campaign(draft: Draft) -> Iterator[str]:
    yield ""
    yield "workload: {prompt_tokens: 128, output_tokens: 256, concurrency: 1}"
    yield "measure: {metric: output_tps, direction: higher, min_effect: 2%, repetitions: 3, launches: 2}"
    yield ""
    yield "hypotheses:"
    yield "  # Nothing but the noise: a variable that nobody reads. Put your own in its place."
    yield "  - id: nothing"
    yield "    claim: a variable that nobody reads changes nothing"
    yield "    changes:"
    yield "      - env: {NOBODY_READS_THIS: '1'}"
