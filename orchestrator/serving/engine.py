"""What every engine answers, and the three that exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import Bug

if TYPE_CHECKING:
    from orchestrator.core.model import Measure, Target, Workload
    from orchestrator.serving.configuration import Configuration
    from orchestrator.serving.vocabulary import Vocabulary


@dataclass(frozen=True)
class LaunchPlan:
    """A launch as the agent's `launch`, `await_ready` and `decode` take it (docs/protocol.md)."""

    launch_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    ready: Mapping[str, Any]
    grace_s: float


class Engine(Protocol):
    """Pure knowledge about one kind of server."""

    @property
    def name(self) -> str: ...

    @property
    def package(self) -> str | None:
        """The Python package whose source tree is tuned; None where nothing is known about it."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """Where its source says which flags and variables it knows."""
        ...

    @property
    def reuses_address(self) -> bool:
        """Whether it binds its port while closed connections of an earlier server still wait on it (SO_REUSEADDR)."""
        ...

    def argv(self, target: Target, configuration: Configuration, launch_id: str) -> tuple[str, ...]: ...

    def ready_spec(self, target: Target, launch_id: str) -> dict[str, Any]: ...

    def decode_spec(self, target: Target, workload: Workload, measure: Measure, launch_id: str) -> dict[str, Any]: ...

    def generate_request(self, target: Target, prompt: str, tokens: int, launch_id: str) -> dict[str, Any]:
        """`http` request for one greedy answer."""
        ...

    def long_request(self, target: Target, tokens: int, launch_id: str) -> dict[str, Any]:
        """`http` request with a prompt of `tokens` tokens, exactly so many where the engine takes numbers."""
        ...

    def answer_text(self, body: Mapping[str, Any]) -> str: ...

    def info_path(self) -> str | None:
        """Path that tells the resolved configuration, or None."""
        ...

    def told_environ(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """What `info_path` said → variables as the ranks have them, where the server reports any."""
        ...

    def resolved(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """What `info_path` said → resolved flags by key."""
        ...


def engine_for(target: Target) -> Engine:
    from orchestrator.serving.command import CommandEngine
    from orchestrator.serving.sglang import SglangEngine
    from orchestrator.serving.vllm import VllmEngine

    engines: dict[str, Engine] = {e.name: e for e in (SglangEngine(), VllmEngine(), CommandEngine())}
    if target.engine not in engines:
        raise Bug(f"no engine is called {target.engine!r}")
    return engines[target.engine]


def plan_launch(
    target: Target, configuration: Configuration, base_env: Mapping[str, str], launch_id: str, *, cwd: str
) -> LaunchPlan:
    """Everything the agent needs to start the server and to know when it serves."""
    from orchestrator.serving.environment import server_environment

    engine = engine_for(target)
    return LaunchPlan(
        launch_id=launch_id,
        argv=engine.argv(target, configuration, launch_id),
        env=server_environment(target, configuration, base_env),
        cwd=cwd,
        ready=engine.ready_spec(target, launch_id),
        grace_s=target.stop_grace,
    )
