"""The guard: parent and subreaper of the server, and the one that undoes everything when the lease runs out.

It is forked by the nursery, a child that the agent makes before it has any thread. It needs the journal and the lease
file, nothing from the agent's memory; the agent's death means nothing to it, the lease does. Everything it uses is
imported before the fork: the archive it came from may be gone by then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional

from orchestrator.agent import ending, kernel, leftovers, processes, spawn
from orchestrator.agent.errors import AgentError, failed
from orchestrator.agent.fs import Fs
from orchestrator.agent.lease import Lease, read_lease
from orchestrator.agent.processes import Grip, Identity
from orchestrator.agent.rpc import FrameError, Wire, pack
from orchestrator.agent.runs import Run
from orchestrator.agent.tree import Tree

SOCKET = "guard.sock"
LOG = "guard.log"
LEASE = "lease"
START_S = 10.0
_LOOK_S = 5.0
"""The longest sleep. poll() does not count suspended time, the lease does."""
_RETRY_S = 2.0
_TRIES = 30
_MAX_DIFFERENCES = 50
_AGENT_S = 5.0


class Nursery:
    """The agent's side: a child with one thread that forks guards, and leaves with the agent."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._wire_socket = ours
        agent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _rear(theirs, agent)
        theirs.close()

    def start_guard(self, params: Mapping[str, Any]) -> Identity:
        """Returns when the guard listens. Raises `refused` when it cannot."""
        self._wire_socket.settimeout(START_S)
        self._wire_socket.sendall(pack(params))
        try:
            answer = _receive(self._wire_socket)
        except (OSError, FrameError) as error:
            raise AgentError("refused", f"the guard did not start: {error}", hint="see guard.log") from error
        if answer is None or "error" in answer:
            said = (answer or {}).get("error", "its process ended")
            raise AgentError("refused", f"the guard did not start: {said}", hint="nothing was changed")
        return Identity(answer["pid"], answer["start_ticks"], answer["boot_id"])


def _receive(sock: socket.socket) -> Optional[Dict[str, Any]]:
    """One frame from a blocking socket with a timeout."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        block = sock.recv(65536)
        if not block:
            return None
        data += block
    result: Dict[str, Any] = json.loads(data[4:])
    return result


def _rear(sock: socket.socket, agent: int) -> NoReturn:
    """The nursery: holds nothing of the agent's but the socket, so that no channel stays open for it."""
    try:
        kernel.set_name("orc-nursery")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        kernel.close_all_but({0, 1, 2, sock.fileno()})
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        boot = processes.boot_id()
        parent = processes.identity_of(agent, boot)
        wire = Wire(sock.fileno(), sock.fileno())
        while True:
            params = wire.receive()
            if params is None:
                break
            child = os.fork()
            if child == 0:
                os.setsid()
                if os.fork() == 0:
                    _guard(sock, params, parent, boot)
                os._exit(0)
            os.waitpid(child, 0)
    finally:
        os._exit(0)


def _guard(sock: socket.socket, params: Mapping[str, Any], agent: Optional[Identity], boot: str) -> NoReturn:
    code = 1
    try:
        log = os.open(os.path.join(params["state_dir"], LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.close(log)
        os.chdir("/")
        kernel.set_name("orc-guard")
        kernel.become_subreaper()
        guard = Guard(params, agent, boot)
        me = processes.identity_of(os.getpid(), boot)
        assert me is not None
        sock.sendall(pack({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": boot}))
        sock.close()
        guard.watch()
        code = 0
    except BaseException as error:
        traceback.print_exc()
        if sock.fileno() >= 0:
            sock.sendall(pack({"error": f"{type(error).__name__}: {error}"}))
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Peer:
    """A connected agent. What it sends is cut into frames as it comes."""

    def __init__(self, sock: socket.socket, identity: Optional[Identity]) -> None:
        self.sock, self.identity = sock, identity
        self._data = b""

    def frames(self) -> Optional[List[Dict[str, Any]]]:
        """Complete frames; None at the end of the connection."""
        try:
            block = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not block:
            return None
        self._data += block
        found = []
        while len(self._data) >= 4 and len(self._data) >= 4 + int.from_bytes(self._data[:4], "big"):
            size = 4 + int.from_bytes(self._data[:4], "big")
            found.append(json.loads(self._data[4:size]))
            self._data = self._data[size:]
        return found

    def send(self, message: Mapping[str, Any]) -> bool:
        """False when it cannot take a message of some bytes: stopped for good, or gone."""
        try:
            self.sock.sendall(pack(message))
        except OSError:
            return False
        return True


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
        self._peers: Dict[int, _Peer] = {}
        self._runs: Dict[int, Run] = {}  # pid of a server's main process → its run
        self._exits: Dict[str, Dict[str, Any]] = {}
        self._leaving = False
        self._wakeup = _receive_signals()
        self._listener = listen(self._state_dir)
        self._requests: Dict[str, Callable[[Mapping[str, Any]], Dict[str, Any]]] = {
            "hello": self._hello,
            "launch": self._launch,
            "leave": self._leave,
        }

    def watch(self) -> None:
        """Until told to leave, or the lease is over and everything undone."""
        while not self._leaving:
            left_s = self._lease_left_s()
            if left_s <= 0 and self._try_to_expire():
                break
            self._wait(min(left_s if left_s > 0 else _RETRY_S, _LOOK_S))
        # Whoever listens at this name from now on is another guard.
        unlink_socket(self._state_dir)

    def _lease_left_s(self) -> float:
        """Zero or less: over, or of another boot. A record caught half written is read again."""
        for _ in range(20):
            lease = read_lease(self._fs, os.path.join(self._state_dir, LEASE))
            if lease is not None:
                self._lease = lease
                return lease.deadline_s - processes.boottime_s() if lease.boot_id == self._boot else 0.0
            time.sleep(0.005)
        return 0.0

    def _try_to_expire(self) -> bool:
        """Whether there is nothing more to guard. A full or broken disk now may be a better one in a moment."""
        if self._lease is None or self._lease.deadline_s == 0.0:
            return True  # given back by an agent that closed the tree: nothing is open
        try:
            return self._expire()
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
        self._tries += 1
        if self._tries < _TRIES:
            return False
        if self._tree is not None:
            self._give_back(self._tree)
        return True

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
                self._serve(self._peers[fd])

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.settimeout(1.0)
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self._peers[sock.fileno()] = _Peer(sock, processes.identity_of(kernel.peer_of(raw), self._boot))

    def _serve(self, peer: _Peer) -> None:
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
                answer = {"error": failed(error, frame["do"]).as_reply()}
            if not peer.send({"id": frame["id"], **answer}):
                self._drop(peer)
                return

    def _drop(self, peer: _Peer) -> None:
        """An agent that is gone changes nothing: the lease runs on, and another may come."""
        del self._peers[peer.sock.fileno()]
        peer.sock.close()

    # -- what the agent asks for -----------------------------------------------------------------------------------

    def _hello(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        me = processes.identity_of(os.getpid(), self._boot)
        assert me is not None
        return {"pid": me.pid, "start_ticks": me.start_ticks, "exits": self._exits}

    def _launch(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        run = Run(self._state_dir, str(request["launch_id"]))
        command = spawn.Command(list(request["argv"]), dict(request["env"]), str(request["cwd"]), run.log)
        pid = spawn.spawn(command)
        self._runs[pid] = run
        identity = processes.identity_of(pid, self._boot)
        assert identity is not None  # our child: at worst a zombie that we have not reaped
        return {"pid": pid, "start_ticks": identity.start_ticks}

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

    def _tell_exit(self, run: Run, pid: int, status: int) -> None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = -number if number is not None else os.WEXITSTATUS(status)
        end = {"launch_id": run.launch_id, "pid": pid, "exit_code": code, "signal": number}
        end["at_s"] = processes.boottime_s()
        self._exits[run.launch_id] = end
        for peer in list(self._peers.values()):
            if not peer.send({"event": "exit", "data": end}):
                self._drop(peer)
        try:
            run.save_exit(end)
        except OSError:  # a full disk: the end is still told to whoever connects to us
            traceback.print_exc()

    # -- the end of the lease --------------------------------------------------------------------------------------

    def _expire(self) -> bool:
        """Undo everything; True when there is nothing more to guard."""
        tree = self._tree
        if tree is None:
            assert self._lease is not None
            self._end_agent()
            try:
                tree = Tree.for_guard(
                    self._fs,
                    str(self._params["root"]),
                    list(self._params["guarded"]),
                    self._state_dir,
                    self._lease.epoch,
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

    def _give_back(self, tree: Tree) -> None:
        self._tree = None
        tree.beat(0.0)
        tree.leave()

    def _end_agent(self) -> None:
        """A hung or stopped agent still holds the lock."""
        agents = {self._agent}
        if self._lease is not None and self._lease.role == "agent":
            agents.add(Identity(self._lease.host_pid, self._lease.start_ticks, self._lease.boot_id))
        for agent in agents:
            if agent is not None:
                kill_and_wait(agent, self._boot, _AGENT_S)

    def _undo(self, tree: Tree) -> None:
        launch = tree.open_launch()
        if launch is None and tree.open_transaction() is None:
            return
        did: List[str] = []
        left = self._end_launch(tree, launch, did) if launch is not None else []
        reason = "the lease ended without a word from the controller"
        result = tree.recover_files(reason)
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
        return left


def kill_and_wait(identity: Identity, boot: str, timeout_s: float) -> bool:
    """SIGKILL to exactly this process; whether it is gone. The agent ends an older one of its holder this way too."""
    grip = Grip.take(identity, boot)
    if grip is None:
        return True
    try:
        grip.send(signal.SIGKILL)
        deadline = time.monotonic() + timeout_s
        while not grip.has_ended() and time.monotonic() < deadline:
            ending.wait_for_end([grip], ending.POLL_S)
        return grip.has_ended()
    finally:
        grip.close()


def _receive_signals() -> int:
    """Read end of a pipe that turns readable when a child ends. Other signals that would end us are ignored."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def listen(state_dir: str) -> socket.socket:
    """A listening socket at `guard.sock`, whatever the length of the path. Whoever had the name before is dead: the
    caller's agent holds the lock of the tree and asked."""
    unlink_socket(state_dir)
    with _Folder(state_dir) as folder:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(f"{folder}/{SOCKET}")
    sock.listen(4)
    return sock


def dial(state_dir: str, timeout_s: float) -> Optional[socket.socket]:
    """A connection to the living guard of this tree, or None."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        with _Folder(state_dir) as folder:
            sock.connect(f"{folder}/{SOCKET}")
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    return sock


def unlink_socket(state_dir: str) -> None:
    try:
        os.unlink(os.path.join(state_dir, SOCKET))
    except FileNotFoundError:
        return


class _Folder:
    """A short name for a directory: socket paths hold 107 bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
