"""The guard as an open tree needs it: found where one lives, started before the first change, told when to go."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, Optional

from orchestrator.agent import ending, escape
from orchestrator.agent.errors import AgentError
from orchestrator.agent.guardlink import GuardLink
from orchestrator.agent.nursery import LOG, Nursery
from orchestrator.agent.processes import Identity

_GUARD_S = 5.0


class GuardKeeper:
    """`params` are the guard's own, with the `state_dir` it is found by; `way_out` the command that takes it out of our
    login, empty where it outlives that anyway. `on_exit` hears of a server's end, `on_lost` of the guard's."""

    def __init__(
        self,
        nursery: Nursery,
        boot: str,
        params: Mapping[str, Any],
        way_out: List[str],
        on_exit: Callable[[Dict[str, Any]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._nursery, self._boot, self._params, self._way_out = nursery, boot, dict(params), way_out
        self._on_exit, self._on_lost = on_exit, on_lost
        self._link: Optional[GuardLink] = None
        self._lock = threading.Lock()

    @property
    def link(self) -> Optional[GuardLink]:
        """To the living guard."""
        return self._link if self._link is not None and self._link.is_alive else None

    @property
    def identity(self) -> Optional[Identity]:
        """Of the living guard."""
        return self.link.identity if self.link is not None else None

    def facts(self) -> Dict[str, Any]:
        identity = self.identity
        return {"pid": identity.pid if identity is not None else None, "alive": identity is not None}

    def exit_of(self, launch_id: str) -> Optional[Dict[str, Any]]:
        """How a server ended, as the guard knew it when we connected; None where it knew of no end."""
        return self._link.exits.get(launch_id) if self._link is not None else None

    def connect(self) -> bool:
        """Whether a guard of this tree lives."""
        link = GuardLink.dial(str(self._params["state_dir"]), self._boot, self._on_exit, self._on_lost)
        if link is None:
            return False
        self._link = link
        return True

    def ensure(self) -> GuardLink:
        """A living guard before anything is changed. Raises `refused` where none can be had."""
        with self._lock:
            if self.link is None and not self.connect():
                started = self._nursery.start_guard(self._params)
                if self._way_out:
                    self._free(started)
                if not self.connect():
                    raise AgentError("refused", "the guard ended at once", {"log": LOG}, "nothing was changed")
            assert self._link is not None
            return self._link

    def _free(self, guard: Identity) -> None:
        """Out of the login's scope, or not at all: a guard that ends with the connection guards nothing."""
        try:
            escape.leave_login(guard.pid, self._way_out)
        except AgentError:
            ending.kill_and_wait(guard, self._boot, _GUARD_S)
            raise
