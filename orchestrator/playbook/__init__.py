"""Playbooks and inventories: YAML in, typed models out, and every complaint with its line and column."""

from orchestrator.playbook.inventories import load_inventory
from orchestrator.playbook.loading import Loaded, check, load
from orchestrator.playbook.schema import schema

__all__ = ["Loaded", "check", "load", "load_inventory", "schema"]
