"""One host, opened for a run: connection, lease, facts, layout. Everything an arm asks of a host goes through here."""

from __future__ import annotations

import getpass
import os
import posixpath
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from orchestrator.controller.memory import IdleMemory
from orchestrator.controller.treatment import Layout, in_shadow
from orchestrator.errors import Busy, Dirty, OrchestratorError, Refused, Unreachable, UsageError
from orchestrator.serving.engine import engine_for

if TYPE_CHECKING:
    from orchestrator.controller.interrupts import Interrupts
    from orchestrator.controller.narration import Costs, Narrator
    from orchestrator.core.model import Host, Target
    from orchestrator.core.ports import Clock
    from orchestrator.hosts import Connection
    from orchestrator.hosts.facts import Facts

RECONNECT_FOR_S = 30.0
MOST_BETWEEN_BEATS_S = 15.0
MISSED_BEATS = 3


class HostSession:
    """Opened by `connect`, `probe`, `open_tree`; closed by `close`. Of one thread, but for the heartbeat."""

    def __init__(
        self,
        name: str,
        host: Host,
        target: Target,
        *,
        token: str,
        lease_s: float,
        narrator: Narrator,
        interrupts: Interrupts,
        clock: Clock,
        costs: Costs,
        idle: IdleMemory | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.target = target
        self.engine = engine_for(target)
        self.narrator = narrator
        self.interrupts = interrupts
        self.clock = clock
        self.costs = costs
        self._token = token
        self._lease_s = lease_s
        self._connection: Connection | None = None
        self._facts: Facts | None = None
        self._layout: Layout | None = None
        self.found_source = ""  # the tree as it was found; `layout.source` is where changes are made
        self._heartbeat: Heartbeat | None = None
        self.idle = idle if idle is not None else IdleMemory()
        self.idle_proved_at = float("-inf")
        self.ahead: tuple[float, Future[dict[str, Any]]] | None = None  # a look at the processes, and when it was asked
        self._is_open = False
        self.has_snapshot = False
        self.holds_service = False  # whether what served before is stopped, and ours to give back
        self.hello: dict[str, Any] = {}

    # ---------------------------------------------------------------- what is known

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise Unreachable(f"{self.name} is not connected")
        return self._connection

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            raise Unreachable(f"{self.name} was not probed")
        return self._facts

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise Unreachable(f"{self.name} was not probed")
        return self._layout

    @property
    def is_open(self) -> bool:
        """Whether we hold the lease of the tree."""
        return self._is_open and self._connection is not None

    @property
    def base_env(self) -> Mapping[str, str]:
        """The account's environment, from which a server gets PATH, HOME and the like."""
        return dict(self.hello.get("environ", {}))

    @property
    def cwd(self) -> str:
        return self.target.cwd or str(self.hello.get("home") or "/")

    # ---------------------------------------------------------------- opening

    def connect(self) -> None:
        from orchestrator.hosts import connect

        with self.interrupts.cancellable():
            self._connection = connect(self.host.route, name=self.name)
            self.hello = self._connection.call("hello", {})

    def adopt_connection(self, other: HostSession) -> None:
        """Go on over another session's connection, which stays that one's to close."""
        self._connection, self.hello = other.connection, other.hello

    def probe(self, packages: list[str]) -> Facts:
        """Facts of the host as the server's interpreter sees them, and where things are."""
        from orchestrator.hosts.facts import parse_facts, probe_commands
        from orchestrator.serving.configuration import Configuration
        from orchestrator.serving.environment import server_environment

        env = server_environment(self.target, Configuration(env=self.target.env), self.base_env)
        commands = probe_commands(
            self.target, engine_package=self.engine.package, packages=packages, gpu_tool=self.host.gpu_tool, env=env,
            cwd=self.cwd,
        )  # fmt: skip
        with self.interrupts.cancellable():
            self._facts = parse_facts(self.connection.call("run", {"commands": commands}, timeout_s=90.0))
        self._layout = self._lay_out(self._facts)
        self.found_source = self._layout.source
        self.idle.learn(self._facts.gpus, self._facts.driver)
        return self._facts

    def _lay_out(self, facts: Facts) -> Layout:
        package = self.engine.package
        origin = facts.engine_origin
        source = self.target.source or (posixpath.dirname(origin) if origin else None)
        if source is None:
            raise UsageError(
                f"the source tree of {self.name} is not known",
                facts={"interpreter": self.target.python, "package": package or "none"},
                hint="name it with `source:` in the target, or point `python:` at the server's interpreter",
            )
        source = source.rstrip("/")
        origins = {package: posixpath.join(source, "__init__.py")} if package is not None else {}
        return Layout(
            source=source,
            base=posixpath.dirname(source),
            package_origin=origins,
            sitecustomize=facts.sitecustomize or facts.sitecustomize_would_be,
            is_site_ours_to_edit=facts.is_sitecustomize_inside_environment,
        )

    def open_tree(self, resources: Iterable[str] = (), escape: Iterable[str] = ()) -> dict[str, Any]:
        """Take the lease, and claim `resources`. Raises `Busy` when somebody else holds one of them. `escape`: the
        command that takes a guard out of our login."""
        request = self._open_request(self.guarded_paths())
        request["resources"], request["escape"] = list(resources), list(escape)
        reply = self.connection.call("open", request)
        if self.target.tree == "shadow":
            self._layout = in_shadow(self.layout, str(reply["root"]))
        self._is_open = True
        self._start_heartbeat()
        return reply

    def tree_request(self) -> dict[str, Any]:
        """How the agent is told of the tree: where it was found, and whether a copy of it is meant."""
        request: dict[str, Any] = {"root": self.found_source}
        if self.target.tree == "shadow":
            request["shadow"] = {"dir": self.target.shadow_dir}
        return request

    def guarded_paths(self) -> list[str]:
        """Paths beside the tree whose manifest must not change."""
        guarded = list(self.target.guarded)
        if self.facts.is_sitecustomize_inside_environment and self.layout.sitecustomize:
            guarded.append(self.layout.sitecustomize)
        return guarded

    def _open_request(self, guarded: list[str]) -> dict[str, Any]:
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        holder = {"token": self._token, "name": who, "pid": os.getpid()}
        request = {**self.tree_request(), "guarded": sorted(set(guarded)), "holder": holder}
        self._last_open = {**request, "lease_s": self._lease_s}
        return self._last_open

    def _start_heartbeat(self) -> None:
        self._stop_heartbeat()
        every_s = min(self._lease_s / 5.0, MOST_BETWEEN_BEATS_S)  # all that can be missed are over before the lease is
        self._heartbeat = Heartbeat(self.connection, every_s, self.narrator.warn)
        self._heartbeat.start()

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def snapshot(self) -> dict[str, Any]:
        """The manifest as found, which every later proof is held against."""
        reply = self.call("snapshot", {}, timeout_s=600.0)
        self.has_snapshot = True
        return reply

    # ---------------------------------------------------------------- asking

    def call(self, do: str, with_: Mapping[str, Any], *, timeout_s: float = 120.0) -> dict[str, Any]:
        """One request that changes something or needs the tree; not interruptible."""
        return self.connection.call(do, with_, timeout_s=timeout_s)

    def call_back(self, do: str, with_: Mapping[str, Any], *, timeout_s: float = 180.0) -> dict[str, Any]:
        """A request of the way back. A lost connection is made anew, and the host recovered as a whole."""
        try:
            return self.connection.call(do, with_, timeout_s=timeout_s)
        except Unreachable as lost:
            return self._after_loss(do, lost)

    def _after_loss(self, do: str, lost: Unreachable) -> dict[str, Any]:
        self.narrator.warn(f"{self.name}: {lost.what}; connecting again to put the host back")
        self.reconnect(lost)
        reply = self.recover()
        if do == "stop":
            return {"exit_code": None, "signal": None, "survivors": reply["survivors"]}
        if do == "revert":
            return {"state": "reverted", "files": []}
        return dict(reply["verify"])

    def reconnect(self, lost: OrchestratorError) -> None:
        """A new connection with the same token. Raises `Dirty` when there is none to be had in time."""
        from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

        from orchestrator.hosts import connect

        self._stop_heartbeat()
        self.connection.close()
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type((Unreachable, Busy)),
                stop=stop_after_delay(RECONNECT_FOR_S),
                wait=wait_exponential(multiplier=0.2, max=3.0),
            ):
                with attempt:
                    self._connection = connect(self.host.route, name=self.name)
                    self._connection.call("hello", {})
                    self._connection.call("open", self._last_open)
        except RetryError as failed:
            raise Dirty(
                f"the connection to {self.name} is lost and does not come back",
                facts={"cause": lost.what, "lease": f"the host puts itself back within {self._lease_s:g} s"},
                hint=f"orchestrator host recover {self.name}",
            ) from failed
        self._start_heartbeat()

    def recover(self) -> dict[str, Any]:
        """Stop, revert, verify whatever is open on the host. Raises `Dirty` when it is held."""
        reply = self.connection.call("recover", {"hold_service": self.holds_service}, timeout_s=300.0)
        if reply["state"] != "clean":
            paths = ", ".join(str(h["path"]) for h in reply["report"][:5])
            raise Dirty(
                f"{self.name} could not be put back: somebody else changed a file of ours",
                facts={"held": paths or "see host verify"},
                hint=f"orchestrator host verify {self.name}",
            )
        return reply

    # ---------------------------------------------------------------- processes and memory

    def reap(self) -> None:
        """End what the policy allows of what holds our GPUs and port; refuse when a stranger stays in the way."""
        from orchestrator.controller.reap import clear_host

        clear_host(self)

    def look_ahead(self) -> None:
        """Ask now who is on our GPUs and port; the next `reap` takes the answer while it is fresh."""
        from orchestrator.controller.reap import look_ahead

        look_ahead(self)

    def begin_idle_wait(self) -> Future[None]:
        """Done when every GPU of the target is back at its recorded idle level, `Dirty` when that does not happen."""
        from orchestrator.controller.reap import begin_idle_wait

        return begin_idle_wait(self)

    # ---------------------------------------------------------------- closing

    def close(self) -> None:
        """Give the lease back and hang up. Nothing may be open any more."""
        self._stop_heartbeat()
        if self._connection is None:
            return
        try:
            if self._is_open:
                self._connection.call("close", {})
        finally:
            self._connection.close()
            self._connection = None

    def give_lease_back(self) -> None:
        """Close the tree and keep the connection. What is still open on it keeps the lease until that ends."""
        self._stop_heartbeat()
        try:
            self.connection.call("close", {})
        except (Dirty, Refused) as error:
            self.narrator.warn(f"{self.name}: the lease stays until it ends: {error.what}")
        else:
            self._is_open = False

    def hang_up(self) -> None:
        """Drop the connection and leave the lease to the guard."""
        self._stop_heartbeat()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Heartbeat:
    """Extends the lease while the run waits for something else, and notices an agent that no longer answers: its
    connection is closed then, so that whatever waits for it fails now and not after its own time limit."""

    def __init__(self, connection: Connection, every_s: float, warn: Callable[[str], None]) -> None:
        self._connection = connection
        self._every_s = every_s
        self._warn = warn
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=1.0)

    def _beat(self) -> None:
        missed = 0
        while not self._done.wait(0.0 if missed else self._every_s):
            try:
                self._connection.call("beat", {}, timeout_s=self._every_s)
                missed = 0
            except Unreachable:
                if not self._connection.alive:
                    return  # the run's next request meets the same loss, and reports it
                missed += 1
            except OrchestratorError:
                return  # the lease is not ours any more; the run's next request is told so too
            if missed == MISSED_BEATS and not self._done.is_set():
                self._warn(f"{self._connection.name} does not answer for {missed * self._every_s:.0f} s; hanging up")
                self._connection.close(grace_s=0.0)


def refuse_read_only(name: str, host: Host) -> None:
    """A host marked `write: false` is only looked at."""
    if not host.write:
        raise Refused(f"{name} is marked `write: false` in the inventory", hint="drop that line to let runs change it")
