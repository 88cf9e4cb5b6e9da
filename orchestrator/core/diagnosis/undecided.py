"""Categories of signatures that only the rest of the log can tell apart."""

from __future__ import annotations

OOM = "oom"
"""GPU memory ran out; phase and frames say for what."""

KILLED = "killed"
"""A process was killed by signal 9; the phase says whether host memory is the likely reason."""

UNSPECIFIC = "unspecific"
"""An exception whose type says little; the frames say which part of the engine raised it."""
