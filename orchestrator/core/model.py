"""What a playbook says: hosts, targets, changes, hypotheses. Frozen, and strict about unknown keys.

These models are the shape of the YAML; `orchestrator.playbook` reads the file, keeps positions and resolves
references. Nothing here touches a file.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from orchestrator.core.basis import EnvName as EnvName
from orchestrator.core.basis import EnvValue as EnvValue
from orchestrator.core.basis import FlagValue as FlagValue
from orchestrator.core.basis import Model as Model
from orchestrator.core.basis import Name as Name
from orchestrator.core.goal import parse_condition
from orchestrator.core.measures import Gate as Gate
from orchestrator.core.measures import GuardOrNumber, Metric
from orchestrator.core.measures import Measure as Measure
from orchestrator.core.measures import Workload as Workload
from orchestrator.core.units import Duration, Percent

# ---------------------------------------------------------------- hosts and routes


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


class SshHop(Model):
    """A further `ssh` run on the far side. Needs keys there; prompts are refused (`BatchMode=yes`)."""

    ssh: str = Field(description="user@host, as seen from the place before it")
    options: tuple[str, ...] = Field((), description="words for that `ssh`, such as -p 2222")


Hop = Annotated[
    Annotated[SshHop, Tag("ssh")]
    | Annotated[
        tuple[str, ...],
        Field(min_length=1),
        BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...]),
        Tag("words"),
    ],
    Discriminator(lambda v: "ssh" if isinstance(v, Mapping | SshHop) else "words"),
]
"""A command prefix such as `pct exec 129 --`, as text or as a list of words, or `{ssh: user@inner}`."""


class Route(Model):
    """This machine, or SSH, then any number of hops. `route: local` is the empty route."""

    ssh: str | None = Field(None, description="user@host, host, or a name from ~/.ssh/config")
    port: int | None = Field(None, ge=1, le=65535, description="port of the SSH server")
    key: str | None = Field(None, description="private key file; ~ is expanded on the controller")
    known_hosts: str | None = Field(None, description="instead of ~/.ssh/known_hosts")
    config: str | None = Field("~/.ssh/config", description="ssh configuration to read; null reads none")
    jump: tuple[str, ...] = Field((), description="jump hosts, outermost first: user@host:port")
    hops: tuple[Hop, ...] = Field((), description="prefixes walked after SSH, such as `pct exec 129 --`")
    sudo: bool = Field(False, description="run the agent as root through `sudo -n` at the end of the route")
    python: str = Field("python3", description="interpreter for the agent on the host, 3.8 or newer")
    connect_timeout: Duration = Field(15.0, description="for each leg of the route")
    keepalive: Duration = Field(15.0, description="how often a silent connection is asked")

    @property
    def is_local(self) -> bool:
        return self.ssh is None

    def __str__(self) -> str:
        legs = [f"ssh {self.ssh}" if self.ssh else "local"]
        legs += [f"ssh {h.ssh}" if isinstance(h, SshHop) else " ".join(h) for h in self.hops]
        return " → ".join(legs + (["sudo"] if self.sudo else []))


def _route(value: object) -> object:
    if value == "local":
        return {}
    if isinstance(value, str):
        return {"ssh": value}
    return value


class ServiceProcess(Model):
    """A server under a script, in a terminal or on its own; its ancestors up to a login belong to it."""

    start: Annotated[
        tuple[str, ...] | None, BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...] | None)
    ] = Field(None, description="command that starts it; null is that of its outermost process, as found")


class Service(Model):
    """What serves on the target's port when we come: stopped for the time of a run, and given back."""

    systemd: str | None = Field(None, description="unit of systemd that it is")
    user: bool = Field(False, description="a unit of the account's own systemd")
    docker: str | None = Field(None, description="container of docker or podman that it runs in")
    process: ServiceProcess | None = Field(None, description="neither: a process with its supervising script")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if [self.systemd, self.docker, self.process].count(None) != 2:
            raise ValueError("write one of `systemd`, `docker`, `process`")
        if self.user and self.systemd is None:
            raise ValueError("`user` belongs to `systemd`")
        return self

    @property
    def sentence(self) -> str:
        if self.systemd is not None:
            return f"systemd {'user ' if self.user else ''}unit {self.systemd}"
        return f"container {self.docker}" if self.docker is not None else "process on its port"


class Target(Model):
    """What is tuned, and its known-good configuration."""

    engine: Literal["sglang", "vllm", "command"] = Field("sglang", description="how it is launched, asked, measured")
    python: str = Field("python3", description="the server's interpreter, absolute on the host")
    source: str | None = Field(None, description="root of the source tree; asked of the interpreter when absent")
    tree: Literal["in_place", "shadow"] = Field(
        "in_place", description="patches are applied where the tree lies, or to a copy of it that the server runs from"
    )
    shadow_dir: str | None = Field(None, description="where that copy lies; null is the account's state directory")
    model: str | None = Field(None, description="model path or name, as the server is given it")
    gpus: tuple[int, ...] | None = Field(None, description="indices of the GPUs it may use; null is all of them")
    args: dict[str, FlagValue] = Field(default_factory=dict, description="flags of the server, without the dashes")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="environment of the server")
    cwd: str | None = Field(None, description="working directory of the server; null is the agent's choice")
    port: int = Field(30000, ge=1, le=65535, description="port the server answers on")
    launch: tuple[str, ...] | None = Field(
        None, description="the whole command of a `command` engine; {port} and {model} are replaced"
    )
    health: str = Field("/health", description="path that answers 200 when a `command` server is up")
    guarded: tuple[str, ...] = Field((), description="further paths whose manifest must not change")
    secrets: tuple[EnvName, ...] = Field((), description="further environment names whose values are masked")
    from_service: tuple[EnvName, ...] = Field(
        (), description="variables that are taken from what serves there, on the host, and never leave it"
    )
    service: Service | None = Field(None, description="what serves there when we come; null is nothing of ours to stop")
    ready: Limits = Field(default_factory=lambda: Limits(), description="how long a start may take")
    stop_grace: Duration = Field(10.0, description="between TERM and KILL")

    @model_validator(mode="after")
    def _command_has_launch(self) -> Self:
        if (self.engine == "command") != (self.launch is not None):
            raise ValueError("`launch` belongs to engine `command`, and that engine needs it")
        return self


class Limits(Model):
    """How long a start may take: `limit` in all, `stall` without any progress."""

    limit: Duration = Field(1800.0, description="longest start")
    stall: Duration = Field(300.0, description="longest time without progress in log, CPU, I/O and GPU")


class Host(Model):
    """A machine, the way to it, and what is tuned there."""

    route: Annotated[Route, BeforeValidator(_route, json_schema_input_type=str | Route)] = Field(
        default_factory=Route, description="`local`, a name for SSH, or a mapping"
    )
    target: Name | Target = Field(description="a name from `targets`, or the target itself")
    gpu_tool: str = Field("nvidia-smi", description="the program that is asked about GPUs")
    gpu_devices: tuple[str, ...] = Field(
        ("/dev/nvidia[0-9]*",), description="device paths whose holders hold a GPU; shell patterns"
    )
    reap: Literal["ours", "engine"] | tuple[int, ...] = Field(
        "ours", description="processes that may be ended: our own, any of the engine, or these pids as well"
    )
    write: bool = Field(True, description="false: this host is only looked at")


class Inventory(Model):
    """`hosts.yaml`: hosts and targets apart from the campaign."""

    hosts: dict[Name, Host] = Field(default_factory=dict, description="name → host")
    targets: dict[Name, Target] = Field(default_factory=dict, description="name → target, shared by hosts")


# ---------------------------------------------------------------- changes


class Edit(Model):
    """Search and replace anchored on text; `find` must occur exactly `count` times."""

    file: str = Field(description="path that begins at the directory holding the source tree")
    find: str = Field(min_length=1, description="text as it is, line ends and indentation included")
    replace: str = Field(description="text as it shall be")
    count: int = Field(1, ge=1, description="how often `find` occurs")


def _patch(value: object) -> object:
    if isinstance(value, str):
        return {"files": (value,)}
    if isinstance(value, list | tuple):
        return {"files": tuple(value)}
    return value


class Patch(Model):
    """Unified diffs, or edits, or both. Paths begin at the directory that holds the source tree."""

    files: tuple[str, ...] = Field((), description="diff files, relative to the playbook")
    edits: tuple[Edit, ...] = Field((), description="search and replace")
    strip: int = Field(1, ge=0, description="leading path components of the diff to drop, as `patch -p`")
    offset: Literal["exact", "unique"] = Field(
        "exact", description="exact: hunks at their line numbers; unique: where their text occurs exactly once"
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.files and not self.edits:
            raise ValueError("a patch needs `files` or `edits`")
        return self


class Sitecustomize(Model):
    """A guarded block in the server interpreter's `sitecustomize.py`: variables, code, or both."""

    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="variables set at interpreter start")
    code: str = Field("", description="Python run at interpreter start, after `env`")

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.env and not self.code.strip():
            raise ValueError("a sitecustomize block needs `env` or `code`")
        return self


class File(Model):
    """One file created, replaced or deleted. `path` is absolute, or relative to the source tree's parent."""

    path: str = Field(description="absolute, or relative to the directory that holds the source tree")
    content: str | None = Field(None, description="the text of the file")
    source: str | None = Field(None, alias="from", description="a file on the controller, relative to the playbook")
    delete: bool = Field(False, description="true: the file is removed")
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] | None = Field(
        None, description="octal, such as '0644'; null keeps what is there"
    )

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        given = [self.content is not None, self.source is not None, self.delete]
        if sum(given) != 1:
            raise ValueError("a file change needs exactly one of `content`, `from`, `delete: true`")
        return self


class PatchChange(Model):
    patch: Annotated[Patch, BeforeValidator(_patch, json_schema_input_type=str | list[str] | Patch)] = Field(
        description="a diff file, several, or a mapping"
    )


class EnvChange(Model):
    env: dict[EnvName, EnvValue] = Field(min_length=1, description="environment of the server; null unsets")


class SitecustomizeChange(Model):
    sitecustomize: Sitecustomize = Field(description="variables or code at interpreter start")


class ArgsChange(Model):
    args: dict[str, FlagValue] = Field(min_length=1, description="flags of the server; null or false removes one")


class FileChange(Model):
    file: File = Field(description="one file created, replaced or deleted")


_KINDS = ("patch", "env", "sitecustomize", "args", "file")


def change_kind(value: Any) -> str | None:  # noqa: ANN401 - a mapping as written, or any change model
    """The kind of a change, of a mapping as written or of a model: its one key."""
    keys = value.keys() if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    return next((k for k in _KINDS if k in keys), None)


Change = Annotated[
    Annotated[PatchChange, Tag("patch")]
    | Annotated[EnvChange, Tag("env")]
    | Annotated[SitecustomizeChange, Tag("sitecustomize")]
    | Annotated[ArgsChange, Tag("args")]
    | Annotated[FileChange, Tag("file")],
    Discriminator(
        change_kind,
        custom_error_type="change_kind",
        custom_error_message="a change is one of: patch, env, sitecustomize, args, file",
    ),
]


# ---------------------------------------------------------------- the campaign


class Goal(Model):
    """What the campaign is after, across its contexts. It ends when this is reached."""

    conditions: tuple[str, ...] = Field(
        min_length=1, description="such as `speculative.output_tps > plain.output_tps`; all must hold"
    )
    verify_share: Percent | None = Field(
        None, description="part of a speculative cycle that is the verify pass: gives the metric `verify_ms`"
    )

    @model_validator(mode="after")
    def _conditions_can_be_read(self) -> Self:
        for text in self.conditions:
            parse_condition(text)
        return self


class Spending(Model):
    """What one run may spend. No launch is started that would not come to its end."""

    time: Duration | None = Field(None, description="from the start of the run until the host is given back")
    launches: int | None = Field(None, ge=1, description="launches of the server")
    gpu_hours: float | None = Field(None, gt=0, description="hours of all GPUs of the target together")


class Axis(Model):
    """One variable or flag of a search, and its values."""

    env: EnvName | None = Field(None, description="a variable of the server's environment")
    sitecustomize: EnvName | None = Field(None, description="a variable set at interpreter start")
    args: str | None = Field(None, description="a flag of the server, without the dashes")
    values: tuple[str | int | float | bool | None, ...] = Field(min_length=2, description="what it may be")
    ordered: bool = Field(False, description="true: neighbours in the list are alike")

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if sum(name is not None for name in (self.env, self.sitecustomize, self.args)) != 1:
            raise ValueError("an axis needs exactly one of `env`, `sitecustomize`, `args`")
        return self

    @property
    def kind(self) -> Literal["env", "sitecustomize", "args"]:
        return "env" if self.env is not None else "sitecustomize" if self.sitecustomize is not None else "args"

    @property
    def name(self) -> str:
        return str(self.env or self.sitecustomize or self.args)


class Search(Model):
    """A space of variables and flags that is searched when no hypothesis is due."""

    space: tuple[Axis, ...] = Field(min_length=1, description="what is varied")
    context: Name | None = Field(None, description="where; the first context when absent")
    strategy: Literal["surrogate", "random", "optuna"] = Field(
        "surrogate", description="who proposes; `optuna` needs the extra `search`"
    )
    trials: int = Field(20, ge=1, description="points to try at the most")
    seed: int = Field(0, description="of the proposals")


class Bottleneck(Model):
    """One pass of the server as calls × cost + rest."""

    context: Name | None = Field(None, description="the context it describes; the first one when absent")
    calls: float = Field(ge=0, description="calls in one pass")
    cost: Duration = Field(description="of one call")
    rest: Duration = Field(description="everything else in the pass")


class Pull(Model):
    """What a hypothesis would change in the bottleneck: parts that become what is stated."""

    lever: Literal["calls", "cost", "rest"] | None = Field(
        None, description="the part it is about; without a value, that part may vanish"
    )
    calls: float | None = Field(None, ge=0, description="calls afterwards")
    cost: Duration | None = Field(None, description="of one call afterwards")
    rest: Duration | None = Field(None, description="the rest afterwards")
    extra: Duration = Field(0.0, description="what the change itself adds to a pass")


class Probe(Model):
    """A micro-benchmark on the host that tests an assumption before any launch. It may demote, never keep."""

    command: tuple[str, ...] = Field(
        min_length=1, description="words of the command; {python} is the server's interpreter"
    )
    pattern: str = Field(description="regular expression for its output, with one group: the number")
    now: float = Field(gt=0, description="the number as it is now; smaller is better")
    then: float = Field(gt=0, description="what the hypothesis needs it to be")
    timeout: Duration = Field(60.0, description="how long the command may take")


class Part(Model):
    """How one change of a bundle is called, and what it claims, when it has to stand alone."""

    change: int = Field(ge=1, description="its place in `changes`, from 1")
    claim: str = Field(description="one sentence")
    why: str = Field("", description="what makes it likely")
    expect: Percent | None = Field(None, description="expected gain of the metric")
    family: str = Field("", description="approach it belongs to")
    context: tuple[Name, ...] = Field((), description="where it is judged; the bundle's contexts when absent")


class Context(Model):
    """A named variation of the target in which hypotheses are judged."""

    args: dict[str, FlagValue] = Field(default_factory=dict, description="over the target's; null or false removes")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="over the target's; null unsets")
    workload: Workload | None = Field(None, description="instead of the campaign's, as a whole")


class Requires(Model):
    """Preconditions, probed before any launch; unmet → `not_applicable` with the evidence."""

    packages: dict[str, str] = Field(
        default_factory=dict, description="name → version condition such as '>=0.5.22,<0.6', or '*' for present"
    )
    gpu_arch: tuple[str, ...] = Field((), description="compute capabilities, such as '12.0'")
    gpu_links: tuple[str, ...] = Field(
        (), description="kinds of link between any two GPUs, as `nvidia-smi topo -m` names them; shell patterns"
    )
    files: tuple[str, ...] = Field((), description="paths that must exist below the source tree's parent")


class Hypothesis(Model):
    """A claim about the metric, and the changes that should bring it about."""

    id: Name = Field(description="the name by which tables and screens call it")
    claim: str = Field(description="one sentence")
    why: str = Field("", description="what makes it likely")
    expect: Percent | None = Field(None, description="expected gain of the metric")
    family: str = Field("", description="approach it belongs to; one whose members are all closed is announced")
    context: Annotated[
        tuple[Name, ...],
        BeforeValidator(lambda v: (v,) if isinstance(v, str) else v, json_schema_input_type=Name | tuple[Name, ...]),
    ] = Field((), description="contexts it is judged in: a name or several")
    changes: tuple[Change, ...] = Field(min_length=1, description="each of one kind")
    bundle: str | None = Field(None, min_length=1, description="why several changes must go together")
    after: tuple[Name, ...] = Field((), description="hypotheses that are decided before it")
    requires: Requires = Field(default_factory=Requires, description="what the host must have")
    revisit_when: tuple[str, ...] = Field(
        (), description="facts a dead end depends on, such as flashinfer-python or gpu_arch"
    )
    marker: str | None = Field(None, description="text that the change makes the server log, as proof it was reached")
    isolate: bool = Field(True, description="false: when the bundle fails its members are not told apart")
    parts: dict[Name, Part] = Field(
        default_factory=dict, description="name → change of the bundle, for when it has to stand alone"
    )
    pull: Pull | None = Field(None, description="what it would change in the bottleneck")
    probe: Probe | None = Field(None, description="tests its assumption before any launch")

    @model_validator(mode="after")
    def _bundles_are_declared(self) -> Self:
        kinds = {change_kind(c) for c in self.changes}
        if len(kinds) > 1 and not self.bundle:
            raise ValueError(
                f"hypothesis {self.id!r} has several kinds of change ({', '.join(sorted(map(str, kinds)))}); "
                "split it, or say why they go together with `bundle:`"
            )
        return self


class Playbook(Model):
    """One campaign."""

    campaign: Name = Field(description="the name of the campaign")
    description: str = Field("", description="what it is about")
    host: Name | None = Field(None, description="where it runs, when the inventory has several hosts")
    hosts: dict[Name, Host] = Field(default_factory=dict, description="an inventory of its own")
    targets: dict[Name, Target] = Field(default_factory=dict, description="name → target")
    workload: Workload = Field(default_factory=Workload, description="what is sent to the server")
    measure: Measure = Field(default_factory=Measure, description="what decides")
    guardrails: dict[Metric, GuardOrNumber] = Field(
        default_factory=dict, description="limits that a better metric may not break"
    )
    gate: Gate = Field(default_factory=Gate, description="the check of answers before any speed counts")
    lease: Duration = Field(600.0, description="after so long without us the guard on the host reverts everything")
    caches: Literal["auto", "shared", "own"] = Field(
        "auto", description="compile caches: own where a change can reach them, shared by all, or own for each change"
    )
    at_end: Literal["found", "baseline", "best"] = Field(
        "found", description="files as found; `baseline` is the same; `best`: those of the largest proven gain stay"
    )
    goal: Goal | None = Field(None, description="success across contexts; ends the campaign when reached")
    budget: Spending = Field(default_factory=Spending, description="what one run may spend")
    bottleneck: Bottleneck | None = Field(None, description="one pass as calls × cost + rest")
    search: Search | None = Field(None, description="a space of variables and flags to search")
    recheck_every: int = Field(8, ge=1, description="experiments after which the baseline is measured again")
    contexts: dict[Name, Context] = Field(
        default_factory=lambda: {"plain": Context()}, description="name → variation of the target"
    )
    hypotheses: tuple[Hypothesis, ...] = Field(min_length=1, description="the todo")


Target.model_rebuild()
