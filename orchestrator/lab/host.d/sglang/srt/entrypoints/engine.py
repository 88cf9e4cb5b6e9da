"""The processes of a server: one for each rank and the detokenizer, forked from main."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from lab_hardware import settings
from lab_hardware.faults import Faults
from lab_hardware.gpu import forget_the_dead, holders, visible
from lab_hardware.model import Noise

from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
from sglang.srt.managers.io_struct import Pipe
from sglang.srt.managers.orphan import leave_orphan
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.server_args import ServerArgs


@dataclass(frozen=True)
class Death:
    """A child that ended: its name in the log, and its exit status as Python counts it."""

    name: str
    pid: int
    status: int


class Engine:
    """Starts the children, sees them die, ends them."""

    def __init__(self, server_args: ServerArgs, noise: Noise, faults: Faults) -> None:
        self._main_pid = os.getpid()
        self._names: dict[int, str] = {}
        self.pipes = self._start(server_args, noise, faults)

    def reap(self) -> list[Death]:
        """The children that ended since the last look."""
        deaths = []
        for pid, name in list(self._names.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._names[pid]
                deaths.append(Death(name, pid, os.waitstatus_to_exitcode(status)))
        return deaths

    def kill_process_tree(self) -> None:
        """End every child and wait until it is gone."""
        for pid in self._names:
            os.kill(pid, signal.SIGKILL)
        for pid in self._names:
            os.waitpid(pid, 0)
        self._names.clear()

    def _start(self, server_args: ServerArgs, noise: Noise, faults: Faults) -> list[Pipe]:
        here = settings()
        forget_the_dead(here.root)
        used_mib = [here.machine.idle_memory_mib] * here.machine.gpu_count
        for holder in holders(here.root, stranger_mib=here.machine.stranger_memory_mib):
            used_mib[holder.index] += holder.memory_mib
        gpus = visible(os.environ, here.machine.gpu_count)
        if (fault := faults.of("orphan")) is not None:
            leave_orphan(fault.seconds)
        pairs = [socket.socketpair() for _ in range(server_args.tp_size)]
        for rank, (_, theirs) in enumerate(pairs):

            def live(rank: int = rank, theirs: socket.socket = theirs) -> None:
                for ours, other in pairs:
                    ours.close()
                    if other is not theirs:
                        other.close()
                run_scheduler_process(
                    server_args,
                    rank,
                    Pipe(theirs),
                    main_pid=self._main_pid,
                    gpu=gpus[rank],
                    used_mib=used_mib[gpus[rank]],
                    noise=noise,
                    faults=faults,
                )

            self._names[_fork(live)] = f"scheduler_{rank}"
        self._names[_fork(lambda: run_detokenizer_process(self._main_pid))] = "detokenizer_0"
        for _, theirs in pairs:
            theirs.close()
        return [Pipe(ours) for ours, _ in pairs]


def _fork(live: Callable[[], None]) -> int:
    """A child that does nothing but `live`, with the signals of a fresh process."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        live()
        status = 0
    finally:
        os._exit(status)
