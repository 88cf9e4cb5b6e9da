"""What served before, as the open tree's requests have it: stop, give back, wait for it, say whether it is back."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from orchestrator.agent import found, processes, service, supervisors, web
from orchestrator.agent.errors import AgentError
from orchestrator.agent.guardlink import GuardLink
from orchestrator.agent.processes import Identity
from orchestrator.agent.tree import Tree

_ALIVE = (200, 401, 403)
"""A server that demands a key is well."""
_ASK_S = 5.0


class Servicing:
    """`guard` gives a living guard, made where there is none: what is started must be no child of a connection."""

    def __init__(
        self, tree: Tree, boot: str, guard: Callable[[], GuardLink], known: Callable[[], Optional[Identity]]
    ) -> None:
        self._tree, self._boot, self._guard, self._known = tree, boot, guard, known

    def stop(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        self._guard()
        return service.stop(self._tree, self._boot, request, self._start)

    def start(self) -> List[str]:
        """Gives back what is stopped; sentences about it."""
        return service.give_back(self._tree, self._boot, self._start)

    def start_if_free(self) -> List[str]:
        """As `start`, but leaves it stopped where a launch or a held change is still open."""
        is_open = self._tree.open_launch() is not None or self._tree.open_transaction() is not None
        return [] if is_open else self.start()

    def _start(self) -> int:
        return int(self._guard().call("start_service")["pid"])

    def wait(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """The reply to `service_await`."""
        health = str(request["health"])
        return service.await_back(
            self._tree.state_dir, self._known, float(request["limit_s"]), lambda port: _is_well(port, health)
        )

    def report(self) -> Optional[Dict[str, Any]]:
        return service.report(self._tree, self._known())

    def values(self, names: Iterable[str]) -> Dict[str, str]:
        """Variables of the found server, for a launch: they go from here to there, and nowhere else."""
        wanted = [str(name) for name in names]
        if not wanted:
            return {}
        environ = (found.load(self._tree.state_dir) or {}).get("server_env", {})
        missing = [name for name in wanted if name not in environ]
        if missing:
            facts = {"variables": ", ".join(missing)}
            raise AgentError("refused", "what served before has no such variable, or did not serve", facts)
        return {name: environ[name] for name in wanted}


def _is_well(port: int, health: str) -> bool:
    try:
        return int(web.request("GET", f"http://127.0.0.1:{port}{health}", {}, None, _ASK_S)["status"]) in _ALIVE
    except AgentError:  # not yet
        return False


def look(port: int) -> Dict[str, Any]:
    """The reply to `service_look`: who answers on a port, and who would start it again. Changes nothing, needs no tree.

    `variables` are names only, and values of those that were `asked` for."""
    serving = found.look(port)
    if serving is None:
        return {"serving": None}
    chain = serving.chain
    unclear = chain if isinstance(chain, supervisors.Unclear) else None
    main = chain.main if isinstance(chain, supervisors.Chain) else min(serving.listeners)
    above = chain.above if isinstance(chain, supervisors.Chain) else []
    environ = processes.read_environ(main)
    return {
        "serving": {
            "pid": main,
            "user": processes.user_name(processes.owner_of(main) or 0),
            "cmdline": processes.read_cmdline(main),
            "cwd": processes.read_link(main, "cwd"),
            "variables": sorted(environ) if environ is not None else None,
            "above": [{"pid": pid, "cmdline": processes.read_cmdline(pid)} for pid in above],
            "unclear": {"why": unclear.why, "hint": unclear.hint} if unclear is not None else None,
        }
    }
