"""Patches in memory: read unified diffs, apply changes exactly where they say, show what is left of them."""

from orchestrator.core.patching.blocks import env_source, marker_ids, with_block
from orchestrator.core.patching.diff import Action, FileDiff, Hunk, Patch, parse
from orchestrator.core.patching.edits import (
    Block,
    Change,
    FileEdit,
    TextEdit,
    WholeFile,
    paths_of,
    plan_files,
)
from orchestrator.core.patching.fit import Offset
from orchestrator.core.patching.merge import Merge, Overlap, merge
from orchestrator.core.patching.residue import Residue, residue, unified

__all__ = [
    "Action",
    "Block",
    "Change",
    "FileDiff",
    "FileEdit",
    "Hunk",
    "Merge",
    "Offset",
    "Overlap",
    "Patch",
    "Residue",
    "TextEdit",
    "WholeFile",
    "env_source",
    "marker_ids",
    "merge",
    "parse",
    "paths_of",
    "plan_files",
    "residue",
    "unified",
    "with_block",
]
