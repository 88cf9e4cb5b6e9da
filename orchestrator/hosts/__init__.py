"""Routes to hosts, and the client of the agent at their end. `connect` is the one way in."""

from orchestrator.hosts.client import Connection, Traffic, connect

__all__ = ["Connection", "Traffic", "connect"]
