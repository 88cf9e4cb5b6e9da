"""An open tree and what runs on it: the requests that need one."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional

from orchestrator.agent import asking, ending, launching, processes, ready, splices, stacks, sweeping
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.guardlink import GuardLink
from orchestrator.agent.keeping import GuardKeeper
from orchestrator.agent.nursery import Nursery
from orchestrator.agent.processes import Identity
from orchestrator.agent.runs import Run, list_runs
from orchestrator.agent.server import Server
from orchestrator.agent.service import summary
from orchestrator.agent.servicing import Servicing
from orchestrator.agent.shadow import Shadow, place
from orchestrator.agent.tree import Tree

_AGENT_S = 5.0
LAPSED = 75
"""Exit code of an agent whose lease ran out with nothing open."""

Emit = Callable[[str, Dict[str, Any]], None]


class Session:
    """One tree, from `open` to `close`. `nursery` starts a guard when the first change comes."""

    def __init__(self, request: Mapping[str, Any], nursery: Nursery, boot: str, emit: Emit) -> None:
        self._boot, self._emit = boot, emit
        self._fs = Fs()
        guarded = [str(path) for path in request["guarded"]]
        self._shadow = shadow_of(self._fs, request)
        self.tree = Tree.open(
            self._fs,
            self._shadow.home if self._shadow is not None else str(request["root"]),
            guarded,
            request["holder"],
            float(request["lease_s"]),
            journal_dir=request.get("journal_dir"),
            kill_agent=self._kill_agent,
            boot_id=boot,
            shadow=self._shadow,
            resources=[str(resource) for resource in request.get("resources") or ()],
        )
        params = {"root": self.tree.root, "guarded": guarded, "state_dir": self.tree.state_dir}
        way_out = [str(word) for word in request.get("escape") or ()]
        self._guard = GuardKeeper(nursery, boot, params, way_out, self._take_exit, self._lose_guard)
        self._server: Optional[Server] = None
        self._benches = asking.Benches(self._guard.ensure)
        self._lock = threading.Lock()
        self._services = Servicing(self.tree, boot, self._guard.ensure, lambda: self._guard.identity)
        self._left = threading.Event()
        try:
            self._guard.connect()
        except BaseException:
            self.tree.leave()
            raise
        self._inherited = self._is_work_open()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()

    def leave(self) -> None:
        """Let go of a tree whose lease is over."""
        self._left.set()
        self.tree.leave()

    def _kill_agent(self, identity: Dict[str, Any]) -> bool:
        if int(identity["pid"]) == os.getpid():
            return False
        named = Identity(int(identity["pid"]), int(identity["start_ticks"]), str(identity["boot_id"]))
        return ending.kill_and_wait(named, self._boot, _AGENT_S)

    def describe(self) -> Dict[str, Any]:
        """The reply to `open`."""
        launch = self.tree.open_launch()
        return {
            "epoch": self.tree.epoch,
            "state_dir": self.tree.state_dir,
            "guard": self._guard.facts(),
            "open": self.tree.open_transaction(),
            "launch": self._launch_facts(launch) if launch is not None else None,
            "outcome": self.tree.outcome(),
            "fs": self.tree.fs_facts(),
            "root": self.tree.root,
            "kept": self.tree.kept(),
            "shadow": self.tree.open_shadow(),
            "service": summary(self.tree.open_service()),
        }

    def adopt(self) -> None:
        """Watch the server that an earlier agent launched: its log from the first line, its end when that is past."""
        launch = self.tree.open_launch()
        if launch is None:
            return
        run = Run(self.tree.state_dir, str(launch["launch_id"]))
        self._server = Server(run, launch, self._guard.identity, self._boot, self._emit)
        end = self._guard.exit_of(run.launch_id) or run.read_exit()
        if end is not None:
            self._server.take_exit(end)

    # -- the guard -------------------------------------------------------------------------------------------------

    @property
    def guard_identity(self) -> Optional[Identity]:
        """Of the living guard."""
        return self._guard.identity

    def _take_exit(self, end: Dict[str, Any]) -> None:
        with self._lock:
            server = self._server
        if server is not None and server.launched.pid == end["pid"]:
            server.take_exit(end)
        else:
            self._benches.take_exit(end)

    def _lose_guard(self) -> None:
        if self._server is not None:
            self._server.lose_guard()
        self._emit("guard_lost", {})
        if self._is_anything_open():
            self._replace_guard()

    def _replace_guard(self) -> None:
        """Not the server's parent, and still the one who undoes all this when the controller falls silent."""
        try:
            self._guard.ensure()
        except AgentError as error:
            print(f"no other guard: {error.what}", file=sys.stderr)

    def _is_anything_open(self) -> bool:
        return self._is_work_open() or self.tree.open_shadow() is not None or self.tree.open_service() is not None

    def _is_work_open(self) -> bool:
        return self.tree.open_transaction() is not None or self.tree.open_launch() is not None

    def _watch_lease(self) -> None:
        """Without a guard nobody ends an agent whose controller is gone, and its lock would hold the tree for ever."""
        while not self._left.wait(1.0):
            if self.tree.lease > processes.boottime_s() or self._guard.identity is not None:
                continue
            if self._is_anything_open():
                self._replace_guard()  # which finds the lease over, and ends us first
            else:
                print("the lease ended: the tree is free", file=sys.stderr)
                sys.stderr.flush()
                os._exit(LAPSED)

    # -- files -----------------------------------------------------------------------------------------------------

    def beat(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        lease_s = request.get("lease_s")
        link = self._guard.link
        if link is not None:
            link.poke()
        return {"until_s": self.tree.beat(float(lease_s) if lease_s is not None else None)}

    def snapshot(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        self._refuse_inherited()
        if self._shadow is not None:
            self._guard.ensure()
        return self.tree.snapshot()

    def apply(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        self._refuse_inherited()
        self._guard.ensure()
        self.tree.make_shadow()
        return self.tree.apply(str(request["txn"]), splices.expand(self._fs, request["files"]))

    def revert(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        result = self.tree.revert(str(request["txn"]), str(request["reason"]))
        self._settle()
        return result

    def verify(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        opened = {"open": self.tree.open_transaction(), "kept": self.tree.kept()}
        return {**self.tree.verify(), **opened, "service": self._services.report()}

    def keep(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        if self.tree.open_launch() is not None:
            raise AgentError("refused", "a launch is still open on this tree", hint="stop it first")
        return self.tree.keep(str(request["txn"]))

    def restore_kept(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        self._refuse_inherited()
        return self.tree.restore_kept()

    def release(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        txn, choice = str(request["txn"]), str(request["choice"])
        if request.get("dry_run"):
            return self.tree.foresee_release(txn, choice)
        result = self.tree.release(txn, choice, request.get("merged") or ())
        self._settle()
        return result

    def acknowledge(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        self.tree.acknowledge()
        return {}

    def _refuse_inherited(self) -> None:
        """What an earlier connection left is looked at or taken back, never built upon."""
        if self._inherited:
            raise AgentError("dirty", "an earlier connection left a change or a launch open", hint="recover first")

    def _settle(self) -> None:
        if not self._is_work_open():
            self._inherited = False

    # -- the server ------------------------------------------------------------------------------------------------

    def launch(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        self._refuse_inherited()
        run = launching.new_run(self.tree.state_dir, str(request["launch_id"]))
        if self.tree.open_launch() is not None:
            raise AgentError("refused", "a launch is still open on this tree", hint="stop it first")
        link = self._guard.ensure()
        self.tree.make_shadow()
        os.makedirs(run.path, mode=0o700)
        record = launching.make_record(run, request, self._boot)
        site = launching.write_site(run, request.get("site_b64") or {})
        added = self._services.values(request.get("from_service") or ())
        first = self._first_on_path(site)
        env = launching.make_environment(request, record, added, first, self.tree.pycache_dir)
        record["env_sha256"] = launching.digest_of(env)
        run.save_record(record)
        self.tree.note("LAUNCH_INTENT", record)
        started = self._start(link, record, env)
        record.update(started)
        self.tree.note("LAUNCHED", record)
        server = Server(run, record, self._guard.identity, self._boot, self._emit)
        with self._lock:
            self._server = server
        self._tell_early_end(link, server)
        reply = {"launch_id": run.launch_id, **started, "log": run.log, "tmp": record["tmp"], "first": first}
        reply["pycache"] = env.get("PYTHONPYCACHEPREFIX")
        return {**reply, "site": site} if site else reply

    def _first_on_path(self, site: str) -> List[str]:
        """Directories that come first on the server's PYTHONPATH: our sitecustomize, then a copy of the package."""
        return [folder for folder in (site, self._shadow.home if self._shadow is not None else "") if folder]

    def _start(self, link: GuardLink, record: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, Any]:
        made = False
        try:
            os.mkdir(record["tmp"], 0o700)
            made = True
            wanted = {name: record[name] for name in ("launch_id", "argv", "cwd")}
            return link.call("launch", {**wanted, "env": dict(env)})
        except (AgentError, OSError):
            if link.is_alive:  # it said no; were it dead, it may have started something before
                if made:
                    os.rmdir(record["tmp"])
                self.tree.note("STOPPED", {"launch_id": record["launch_id"], "why": "it could not be started"})
            raise

    def _tell_early_end(self, link: GuardLink, server: Server) -> None:
        """A server that ended before we watched: the push came too early, the guard still knows."""
        if not server.is_alive:
            end = link.call("hello")["exits"].get(server.launch_id)
            if end is not None:
                server.take_exit(end)

    def adopt_launch(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """Go on with the server, and the change, that an earlier connection of this holder left within its lease."""
        server, launch, change = self._server_of(request), self.tree.open_launch(), self.tree.open_transaction()
        facts = {"launch_id": server.launch_id}
        if not self.tree.is_resumed:
            raise AgentError("refused", "the lease of that launch is over", facts, "recover")
        if launch is None or launch["kind"] != "LAUNCHED" or not server.is_alive:
            raise AgentError("refused", "its server has ended", facts, "recover")
        if change is not None and change["state"] != "applied":
            raise AgentError("dirty", f"its change is {change['state']}", facts, "recover")
        self._guard.ensure()
        self.tree.note("ADOPTED", {**facts, "epoch": self.tree.epoch, "txn": change["txn"] if change else None})
        self._inherited = False
        server.replay_log()
        site = launching.site_of(server.run)
        first = self._first_on_path(site if os.path.isdir(site) else "")
        told = {"argv": launch["argv"], "first": first, "open": change}
        return {**self._launch_facts(launch), **told}

    def _server_of(self, request: Mapping[str, Any]) -> Server:
        with self._lock:
            server = self._server
        if server is None or server.launch_id != request["launch_id"]:
            known = server.launch_id if server is not None else "none"
            what = f"no launch {request['launch_id']} is open"
            raise AgentError("refused", what, {"launch_id": str(request["launch_id"]), "open": known})
        return server

    def await_ready(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return ready.Waiter(self._server_of(request), request["spec"]).run()

    def decode(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return asking.time_tokens(self._server_of(request), request["spec"])

    def bench(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return self._benches.run(self._server_of(request), request)

    def stacks(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return stacks.collect(self._server_of(request))

    def inspect(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return self._server_of(request).inspect(request.get("names") or ())

    def stop(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return self._stop(self._server_of(request), float(request["grace_s"]), "controller")

    def _stop(self, server: Server, grace_s: float, by: str) -> Dict[str, Any]:
        self.tree.note("STOP_INTENT", {"launch_id": server.launch_id, "by": by, "grace_s": grace_s})
        reply = server.stop(grace_s)
        if not reply["survivors"]:
            facts = {"launch_id": server.launch_id, "ended": reply["ended"], "exit_code": reply["exit_code"]}
            self.tree.note("STOPPED", facts)
            with self._lock:
                self._server = None
            self._settle()
        return reply

    # -- what served before ----------------------------------------------------------------------------------------

    def service_stop(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        self._refuse_inherited()
        return self._services.stop(request)

    def service_start(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        return {"did": self._services.start()}

    def service_await(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return self._services.wait(request)

    def recover(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """At once: whoever asks for this has lost the server's answers already."""
        did: List[str] = []
        survivors: List[Dict[str, Any]] = []
        if self._server is None:
            self.adopt()  # a launch of which the guard never said how it came out
        if self._server is not None:
            launch_id = self._server.launch_id
            stopped = self._stop(self._server, 0.0, "recover")
            survivors = stopped["survivors"]
            did.append(f"ended launch {launch_id}: {len(stopped['ended'])} processes, {len(survivors)} left")
            did += [f"removed {path}" for path in stopped["leftovers"]["removed"]]
        result = self.tree.recover_files("recover")
        self._settle()
        if not request.get("hold_service"):
            did += self._services.start_if_free()
        verdict = self.verify({}) if self.tree.found is not None else None
        reply = {"state": result["state"], "did": [*did, *result["did"]], "report": result["report"], "verify": verdict}
        return {**reply, "survivors": survivors}

    def sweep(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        launch = self.tree.open_launch()
        return sweeping.sweep_dead(self.tree.state_dir, self._boot, launch["launch_id"] if launch else None)

    def close(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        link = self._guard.link
        if link is not None and not self._is_anything_open():
            link.leave()  # before the lease is given back: a guard without a lease to watch is none
        self.tree.close()
        self._left.set()
        return {}

    # -- for `processes` -------------------------------------------------------------------------------------------

    def journal_facts(self) -> Dict[str, Any]:
        """Run ids and identities of this boot that launches on this tree had: proof of what is ours."""
        runs = list_runs(self.tree.state_dir)
        identities = sorted({one for run in runs for one in run.seen(self._boot)})
        return {
            "journal_run_ids": [run.launch_id for run in runs],
            "journal_identities": [dict(one._asdict()) for one in identities],
        }

    def _launch_facts(self, launch: Mapping[str, Any]) -> Dict[str, Any]:
        run = Run(self.tree.state_dir, str(launch["launch_id"]))
        main = run.launched(launch).main
        return {
            "launch_id": run.launch_id,
            "pid": main.pid if main is not None else None,
            "start_ticks": main.start_ticks if main is not None else None,
            "log": run.log,
            "tmp": launch.get("tmp"),
            "alive": main is not None and processes.is_alive(main, self._boot),
        }


def shadow_of(fs: Fs, request: Mapping[str, Any]) -> Optional[Shadow]:
    """Where the copy lies, when the request asks for one: `shadow: {dir: path or null}` beside `root`."""
    asked = request.get("shadow")
    return place(fs, str(request["root"]), asked.get("dir")) if asked is not None else None
