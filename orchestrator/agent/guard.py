"""The guard: parent and subreaper of the server, and the one that undoes everything when the lease runs out.

It is forked by the nursery, a child that the agent makes before it has any thread. It needs the journal and the lease
file, nothing from the agent's memory; the agent's death means nothing to it, the lease does. Everything it uses is
imported before the fork: the archive it came from may be gone by then.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional

from orchestrator.agent import ending, guardsocket, kernel, leftovers, processes, service, spawn
from orchestrator.agent.errors import AgentError, failed
from orchestrator.agent.fs import Fs
from orchestrator.agent.guardsocket import Peer
from orchestrator.agent.lease import Lease, read_lease
from orchestrator.agent.processes import Identity
from orchestrator.agent.runs import Run
from orchestrator.agent.tree import Tree

LEASE = "lease"
_LOOK_S = 1.0
"""The longest sleep: a lease can be shortened, and poll() does not count suspended time as the lease does."""
_RETRY_S = 2.0
_TRIES = 30
_MAX_DIFFERENCES = 50
_AGENT_S = 5.0
_ORPHANS_S = 3.0
"""For orphans that do not go: an agent that connects meanwhile must not take us for stopped."""


class Guard:
    """One tree, one thread. Children are the servers it started and whatever came back to it from below them."""

    def __init__(self, params: Mapping[str, Any], agent: Optional[Identity], boot: str) -> None:
        self._params, self._boot = params, boot
        self._state_dir = str(params["state_dir"])
        self._fs = Fs()
        self._agent = agent  # the one that started us or connected last
        self._lease: Optional[Lease] = None  # as last read
        self._tree: Optional[Tree] = None  # once we hold the lock
        self._tries = 0
        self._tmps: List[str] = []
        self._peers: Dict[int, Peer] = {}
        self._runs: Dict[int, Run] = {}  # pid of a server's main process → its run
        self._launches: Dict[int, ending.Launched] = {}  # by the same pid
        self._headless: List[ending.Launched] = []  # their main process has ended
        self._exits: Dict[str, Dict[str, Any]] = {}
        self._commands: Dict[int, Optional[Dict[str, Any]]] = {}  # pid of a benchmark → its end, None while it runs
        self._leaving = False
        self._wakeup = _receive_signals()
        self._listener = guardsocket.Door(self._state_dir)
        self._requests: Dict[str, Callable[[Mapping[str, Any]], Dict[str, Any]]] = {
            "hello": self._hello,
            "launch": self._launch,
            "run": self._run,
            "start_service": self._start_service,
            "leave": self._leave,
        }

    def watch(self) -> None:
        """Until told to leave, or the lease is over and everything undone."""
        while not self._leaving:
            try:
                # Once the tree is ours, the lease that runs is our own: what failed is tried again at once.
                left_s = self._lease_left_s() if self._tree is None else 0.0
                if left_s <= 0 and self._expire():
                    break
                self._wait(min(left_s if left_s > 0 else _RETRY_S, _LOOK_S))
                self._tries = 0
            except Exception:  # a full or broken disk now may be a better one in a moment; the lease is watched on
                traceback.print_exc()
                sys.stderr.flush()
                self._tries += 1
                if self._tries >= _TRIES or not os.path.isdir(self._state_dir):
                    self._abandon()
                    break
                time.sleep(_RETRY_S)
        self._listener.close()

    def _lease_left_s(self) -> float:
        """Zero or less: over, or of another boot. A record caught half written is read again."""
        for _ in range(20):
            lease = read_lease(self._fs, os.path.join(self._state_dir, LEASE))
            if lease is not None:
                self._lease = lease
                return lease.deadline_s - processes.boottime_s() if lease.boot_id == self._boot else 0.0
            time.sleep(0.005)
        return 0.0

    def _wait(self, timeout_s: float) -> None:
        poller = select.poll()
        for fd in (self._wakeup, self._listener.fileno(), *self._peers):
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(timeout_s * 1000 + 1):
            if fd == self._wakeup:
                os.read(fd, 4096)
                self._reap()
            elif fd == self._listener.fileno():
                self._accept()
            elif fd in self._peers:
                try:
                    self._serve(self._peers[fd])
                except (KeyError, TypeError, ValueError):  # not what an agent of ours says
                    traceback.print_exc()
                    self._drop(self._peers[fd])
        if self._headless and not self._peers:
            self._end_orphans()

    def _accept(self) -> None:
        sock = self._listener.accept()
        pid = guardsocket.peer_pid(sock)
        self._peers[sock.fileno()] = Peer(sock, processes.identity_of(pid, self._boot))

    def _serve(self, peer: Peer) -> None:
        frames = peer.frames()
        if frames is None:
            self._drop(peer)
            return
        for frame in frames:
            try:
                answer: Dict[str, Any] = {"ok": self._requests[frame["do"]](frame)}
                if frame["do"] == "hello":
                    self._agent = peer.identity or self._agent
            except AgentError as error:
                answer = {"error": error.as_reply()}
            except OSError as error:
                answer = {"error": failed(error, str(frame["do"])).as_reply()}
            if not peer.send({"id": frame["id"], **answer}):
                self._drop(peer)
                return

    def _drop(self, peer: Peer) -> None:
        """An agent that is gone changes nothing: the lease runs on, and another may come."""
        del self._peers[peer.sock.fileno()]
        peer.sock.close()

    # -- what the agent asks for -----------------------------------------------------------------------------------

    def _hello(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        me = processes.identity_of(os.getpid(), self._boot)
        assert me is not None
        return {"pid": me.pid, "start_ticks": me.start_ticks, "exits": self._exits, "commands": self._ended_commands()}

    def _launch(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        run = Run(self._state_dir, str(request["launch_id"]))
        command = spawn.Command(list(request["argv"]), dict(request["env"]), str(request["cwd"]), run.log)
        pid = spawn.spawn(command)
        self._runs[pid] = run
        self._headless.clear()  # none is launched before the one before it is stopped
        tmp = command.env["TMPDIR"]
        self._tmps.append(tmp)
        identity = processes.identity_of(pid, self._boot)
        assert identity is not None  # our child: at worst a zombie that we have not reaped
        start = identity.start_ticks
        self._launches[pid] = ending.Launched(run.launch_id, pid, start, self._boot, start, tmp)
        return {"pid": pid, "start_ticks": start}

    def _run(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """A command of a launch that is under way: below us like its server, and ended with it."""
        command = spawn.Command(
            list(request["argv"]), dict(request["env"]), str(request["cwd"]), str(request["log"]), "the benchmark"
        )
        pid = spawn.spawn(command)
        self._commands[pid] = None
        identity = processes.identity_of(pid, self._boot)
        assert identity is not None  # our child, not yet reaped
        return {"pid": pid, "start_ticks": identity.start_ticks}

    def _ended_commands(self) -> Dict[str, Dict[str, Any]]:
        return {str(pid): end for pid, end in self._commands.items() if end is not None}

    def _start_service(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        """By us and not by the agent: what is started must outlive a login that takes its processes along."""
        return {"pid": service.start_found(self._state_dir)}

    def _leave(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        self._leaving = True
        return {}

    # -- children --------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect all that ended; a server's end is told at once and kept for whoever connects later."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self._runs.pop(pid, None)
            if run is not None:
                self._tell_exit(run, pid, status)
                self._headless.append(self._launches.pop(pid))
            elif pid in self._commands:
                self._commands[pid] = _end_of(pid, status)
                self._tell(self._commands[pid])

    def _tell(self, end: Optional[Dict[str, Any]]) -> None:
        for peer in list(self._peers.values()):
            if not peer.send({"event": "exit", "data": end}):
                self._drop(peer)

    def _tell_exit(self, run: Run, pid: int, status: int) -> None:
        end = {"launch_id": run.launch_id, **_end_of(pid, status)}
        self._exits[run.launch_id] = end
        self._tell(end)
        try:
            run.save_exit(end)
        except OSError:  # a full disk: the end is still told to whoever connects to us
            traceback.print_exc()

    def _end_orphans(self) -> None:
        """Of a server whose main process has ended while no agent is here to stop it: children that outlive it hold the
        GPUs, or take them half a minute later. Only processes end; files, journal and lease stay as they are."""
        me = processes.identity_of(os.getpid(), self._boot)
        while self._headless:
            launched = self._headless.pop()
            seen = Run(self._state_dir, launched.launch_id).seen(self._boot)
            ours = ending.Ours(launched, me, seen, {os.getpid()})
            ended = ending.end_launch(ours, grace_s=0.0, kill_s=_ORPHANS_S, reap=self._reap)
            if ended.ended or ended.left:
                left = f", {len(ended.left)} left" if ended.left else ""
                print(f"ended {len(ended.ended)} processes that {launched.launch_id} left{left}", file=sys.stderr)
                sys.stderr.flush()

    # -- the end of the lease --------------------------------------------------------------------------------------

    def _expire(self) -> bool:
        """Undo everything; True when there is nothing more to guard."""
        tree = self._tree
        if tree is None:
            lease = self._lease
            if lease is None:
                raise AgentError("failed", "there is no lease to watch", {"path": self._state_dir})
            if lease.deadline_s == 0.0:
                return True  # given back by an agent that closed the tree: nothing is open
            self._end_agent()
            try:
                tree = Tree.for_guard(
                    self._fs,
                    str(self._params["root"]),
                    list(self._params["guarded"]),
                    self._state_dir,
                    lease.epoch,
                    boot_id=self._boot,
                )
            except AgentError as error:
                if error.kind != "busy":
                    raise
                # Extended in the last moment: go on. Or another agent has the lock: it recovers.
                return self._lease_left_s() <= 0
            self._tree = tree
        self._undo(tree)
        self._give_back(tree)
        return True

    def _abandon(self) -> None:
        """What we hold cannot be put back, or is gone altogether: the files are left to the next connection, and our
        processes are ended all the same. They need no journal: they are what is below us."""
        me = processes.identity_of(os.getpid(), self._boot)
        nameless = ending.Launched("", 0, 0, self._boot, 0, "")
        ending.end_launch(ending.Ours(nameless, me, set(), {os.getpid()}), grace_s=0.0, reap=self._reap)
        for tmp in self._tmps:
            leftovers.sweep(tmp=tmp, mapped=set(), pids=set(), since_s=float("inf"))
        if self._tree is not None:
            self._give_back(self._tree)

    def _give_back(self, tree: Tree) -> None:
        self._tree = None
        try:
            tree.give_back()
        finally:
            tree.leave()  # on a broken disk the lease stays as it was written; nobody waits for a lock of ours

    def _end_agent(self) -> None:
        """A hung or stopped agent still holds the lock."""
        agents = {self._agent}
        if self._lease is not None and self._lease.role == "agent":
            agents.add(Identity(self._lease.host_pid, self._lease.start_ticks, self._lease.boot_id))
        for agent in agents:
            if agent is not None:
                ending.kill_and_wait(agent, self._boot, _AGENT_S)

    def _undo(self, tree: Tree) -> None:
        launch = tree.open_launch()
        opened = (launch, tree.open_transaction(), tree.open_shadow(), tree.open_service())
        if all(one is None for one in opened):
            return
        did: List[str] = []
        left = self._end_launch(tree, launch, did) if launch is not None else []
        reason = "the lease ended without a word from the controller"
        result = tree.recover_files(reason)
        if result["state"] == "clean" and not left:  # before the proof: it has been down long enough
            did += service.give_back(tree, self._boot, lambda: service.start_found(self._state_dir))
        outcome: Dict[str, Any] = {
            "reason": reason,
            "did": [*did, *result["did"]],
            "report": result["report"],
            "survivors": left,
        }
        if tree.found is not None:
            verdict = tree.verify()
            outcome["clean"] = bool(verdict["clean"]) and not left
            outcome["differences"] = [d for d in verdict["differences"] if d["ours"]][:_MAX_DIFFERENCES]
        tree.note("GUARD_REVERTED" if result["state"] == "clean" else "GUARD_REFUSED", outcome)

    def _end_launch(self, tree: Tree, launch: Mapping[str, Any], did: List[str]) -> List[Dict[str, Any]]:
        """At once, without grace: nobody waits for its answers any more."""
        me = processes.identity_of(os.getpid(), self._boot)
        run = Run(self._state_dir, str(launch["launch_id"]))
        launched = run.launched(launch)
        ours = ending.Ours(launched, me, run.seen(self._boot), {os.getpid()})
        tree.note("STOP_INTENT", {"launch_id": launched.launch_id, "by": "guard"})
        ended = ending.end_launch(ours, grace_s=0.0, reap=self._reap)
        swept = leftovers.sweep(
            tmp=launched.tmp, mapped=run.mapped(), pids={i.pid for i in ours.seen}, since_s=run.since_s(launch)
        )
        view = processes.take_view(me)
        left = processes.describe([stat.pid for stat in ended.left], view)
        facts = {"launch_id": launched.launch_id, "ended": ended.ended, "left": [p["pid"] for p in left]}
        if not left:
            tree.note("STOPPED", facts)
        did.append(f"ended {len(ended.ended)} processes of launch {launched.launch_id}")
        did += [f"removed {path}" for path in swept.removed]
        did += [f"left in place: {path}" for path in swept.kept]
        return left


def _end_of(pid: int, status: int) -> Dict[str, Any]:
    """Exit code and signal of a child, as `exit` of the protocol has them."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = -number if number is not None else os.WEXITSTATUS(status)
    return {"pid": pid, "exit_code": code, "signal": number, "at_s": processes.boottime_s()}


def _receive_signals() -> int:
    """Read end of a pipe that turns readable when a child ends. Other signals that would end us are ignored."""
    kernel.ignore_signals()
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read
