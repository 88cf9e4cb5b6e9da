"""Engines: how a server is launched, when it is ready, what it is asked, what it says of itself.

Engines are pure: they turn a target and a configuration into a `LaunchPlan`, and replies into facts. What talks to a
host does so through a `HostPort`.
"""

from orchestrator.serving.configuration import Configuration, merge_env, merge_flags
from orchestrator.serving.engine import Engine, LaunchPlan, engine_for

__all__ = ["Configuration", "Engine", "LaunchPlan", "engine_for", "merge_env", "merge_flags"]
