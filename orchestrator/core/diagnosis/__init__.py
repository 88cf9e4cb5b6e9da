"""Why a server did not come up, died, hangs, or is quietly not what was asked for.

`diagnose` reads a whole log. `LiveWatch` reads along while the server runs and speaks as soon as it is lost.
Both are pure: text in, values out.
"""

from __future__ import annotations

from orchestrator.core.diagnosis.model import CATEGORIES, Certainty, Diagnosis, Evidence, Outcome, Phase
from orchestrator.core.diagnosis.passing import may_pass
from orchestrator.core.diagnosis.reading import Reading
from orchestrator.core.diagnosis.suspicion import Changes
from orchestrator.core.diagnosis.verdict import Case, judge
from orchestrator.core.diagnosis.watch import LiveWatch, WatchEvent

__all__ = [
    "CATEGORIES",
    "Certainty",
    "Changes",
    "Diagnosis",
    "Evidence",
    "LiveWatch",
    "Outcome",
    "Phase",
    "WatchEvent",
    "diagnose",
    "may_pass",
]

_NOTHING: Changes = {}


def diagnose(
    text: str,
    *,
    exit_code: int | None = None,
    changed_paths: Changes = _NOTHING,
    changed_names: Changes = _NOTHING,
) -> Diagnosis:
    """The named cause of what a log shows, with its evidence. Never raises, whatever the text is.

    `exit_code` is the status of the main process if it ended, negative for a signal (137 is read as -9).
    `changed_paths` maps the id of a change to the path or paths it edited, absolute or relative to the source tree;
    `changed_names` maps the id of a change to the environment variables and flags it set, as "NCCL_ALGO" or
    "--mem-fraction-static". Changes that the cause touches come back as `suspects`.
    """
    return judge(Case(Reading(text), exit_code, changed_paths, changed_names))
