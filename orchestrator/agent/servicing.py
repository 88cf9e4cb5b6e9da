"""What served before, as the open tree's requests have it: stop, give back, wait for it, say whether it is back."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from orchestrator.agent import containers, found, holders, processes, programs, service, supervisors, web
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


_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(?:API|ACCESS|PRIVATE|SIGNING|ENCRYPTION)_?KEY")
_SECRET_VALUE = re.compile(
    r"^(hf_|sk-|ghp_|gho_|github_pat_|xox[a-z]-|AKIA|eyJ)[A-Za-z0-9_./+-]{8,}|://[^/\s:]+:[^/\s@]+@"
)


def is_secret(name: str, value: str) -> bool:
    """Wider than what is masked elsewhere: what leaves a host by mistake cannot be taken back."""
    folded = name.strip("-").replace("-", "_").upper()
    is_named = _SECRET_NAME.search(folded) is not None and "TOKENIZER" not in folded
    return bool(value) and ((is_named and not value.isdigit()) or _SECRET_VALUE.search(value) is not None)


def look(port: int) -> Dict[str, Any]:
    """The reply to `service_look`: who answers on a port, and who would start it again. Changes nothing, needs no
    tree. Values of secrets are null in `variables`, and `***` in `cmdline`."""
    serving = found.look(port)
    return {"serving": _describe(port, serving) if serving is not None else None}


def find(words: List[str]) -> Dict[str, Any]:
    """The reply to `service_find`: every server one of whose words holds one of these, by its own main process."""
    listeners = holders.read_listeners()
    known: Dict[int, Dict[str, Any]] = {}
    for port in sorted({one.port for one in listeners}):
        try:
            serving = found.look(port)
        except AgentError:  # another user's, whom we may not look at
            continue
        if serving is None:
            continue
        seen = _describe(port, serving)
        if any(word in one for one in seen["cmdline"] for word in words):
            known.setdefault(seen["pid"], {**seen, "ports": []})["ports"].append(port)
    return {"servers": [known[pid] for pid in sorted(known)]}


def _describe(port: int, serving: found.Serving) -> Dict[str, Any]:
    chain = serving.chain
    unclear = chain if isinstance(chain, supervisors.Unclear) else None
    main = chain.main if isinstance(chain, supervisors.Chain) else min(serving.listeners)
    above = chain.above if isinstance(chain, supervisors.Chain) else []
    environ = processes.read_environ(main)
    shown = {name: None if is_secret(name, value) else value for name, value in (environ or {}).items()}
    cgroup = found.cgroup_of(main)
    return {
        "port": port,
        "pid": main,
        "user": processes.user_name(processes.owner_of(main) or 0),
        "program": programs.program_of(main),
        "cmdline": mask_words(processes.read_cmdline(main)),
        "cwd": processes.read_link(main, "cwd"),
        "variables": shown if environ is not None else None,
        "above": [{"pid": pid, "cmdline": mask_words(processes.read_cmdline(pid))} for pid in above],
        "unit": supervisors.unit_of(cgroup),
        "container": containers.container_of(main),
        "unclear": {"why": unclear.why, "hint": unclear.hint} if unclear is not None else None,
    }


def mask_words(words: List[str]) -> List[str]:
    """Values of secret flags become `***`, as the word after the flag or behind its `=`."""
    shown: List[str] = []
    for index, word in enumerate(words):
        flag, mark, value = word.partition("=")
        before = words[index - 1] if index else ""
        if mark and word.startswith("-") and is_secret(flag, value):
            shown.append(f"{flag}=***")
        elif before.startswith("-") and "=" not in before and is_secret(before, word):
            shown.append("***")
        else:
            shown.append("***" if is_secret("", word) else word)
    return shown
