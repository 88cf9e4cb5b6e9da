"""A person's word on a held transaction: whose version stays at each path. Nothing is deleted.

What does not stay is moved to `kept/` in the state directory. Every step looks at what is there, so that a release that
was cut short is simply done again.
"""

from __future__ import annotations

import os
from typing import List, Optional, Sequence

from orchestrator.agent import files
from orchestrator.agent.decisions import BACK, HOLD, Change, decide
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.identity import Identity, identify, is_same
from orchestrator.agent.preflight import Place

THEIRS = "theirs"  # what lies at the path now stays
FOUND = "found"  # the file as it was found comes back


def kept_dir(place: Place) -> str:
    return os.path.join(place.state_dir, "kept")


def release(
    fs: Fs, place: Place, transaction: files.Transaction, placed: Sequence[Optional[bool]], choice: str
) -> List[str]:
    """Settles every file: those that nobody touched are reverted, the others go by `choice`. Returns the kept files.

    `refused` when a file is to come back whose original is gone.
    """
    if fs.find(kept_dir(place)) is None:
        fs.mkdir(kept_dir(place), 0o700)
        fs.sync_dir(place.state_dir)
    for index, change in enumerate(transaction.changes):
        now, parked = identify(fs, change.path), identify(fs, change.stage)
        action = decide(change, now, parked, placed[index]).action
        if action == BACK or (action == HOLD and choice == FOUND):
            _bring_back(fs, change, now, parked)
    files.sync_all(fs, transaction)
    kept = [_keep(fs, place, change) for change in transaction.changes if fs.find(change.stage) is not None]
    fs.sync_dir(kept_dir(place))
    files.clear_away(fs, transaction)
    return kept


def _bring_back(fs: Fs, change: Change, now: Optional[Identity], parked: Optional[Identity]) -> None:
    """The file as found at its path, whatever was there under the stage name."""
    before = change.before
    if before is None:
        if now is not None:
            files.move(fs, change.path, _free_name(fs, change.stage) if parked is not None else change.stage)
        return
    if now is not None and is_same(now, before):
        return
    if parked is None or (parked.ino != before.ino and not is_same(parked, before)):
        raise AgentError("refused", "the original is gone", {"path": change.given}, "keep theirs")
    if now is None:
        files.move(fs, change.stage, change.path)
    else:
        files.swap(fs, change.stage, change.path)


def _keep(fs: Fs, place: Place, change: Change) -> str:
    """Moves what lies under the stage name out of the way, under a name that tells whose place it had."""
    name = f"{os.path.basename(change.path)}.{_short(change)}"
    target = _free_name(fs, os.path.join(kept_dir(place), name))
    try:
        files.move(fs, change.stage, target)
    except OSError as error:
        if error.errno != files.EXDEV:
            raise
        target = _free_name(fs, os.path.join(os.path.dirname(change.stage), f"{name}.kept"))  # staged beside
        files.move(fs, change.stage, target)
    fs.sync_dir(os.path.dirname(change.stage))
    return target


def _short(change: Change) -> str:
    return os.path.basename(change.stage).rpartition("-")[2]


def _free_name(fs: Fs, path: str) -> str:
    number = 1
    candidate = path
    while fs.find(candidate) is not None:
        candidate = f"{path}.{number}"
        number += 1
    return candidate
