"""Two network namespaces and a cable between them, with a delay that can be changed and a cut that nobody is told of.

`python tests/netlab.py NEAR FAR` is the cable: it joins a TUN device in each namespace and holds every packet back.
It reads commands on standard input: a number of milliseconds for each way, or `drop` (no FIN, no RST), one a line.
Root and /dev/net/tun are needed; netem is not.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NEAR_ADDRESS, FAR_ADDRESS = "198.18.0.1", "198.18.0.2"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DEVICE = "cable0"


@dataclass
class Cable:
    """`near` and `far` are the names of the namespaces."""

    near: str
    far: str
    process: subprocess.Popen[str]

    def say(self, command: str) -> None:
        """`25`: milliseconds each way; `drop`: a cut. Returns when it is in force."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer == "ok\n", answer

    def at(self, namespace: str) -> tuple[str, ...]:
        """Command prefix that runs there."""
        return ("ip", "netns", "exec", namespace)


@contextmanager
def cable(delay_ms: float) -> Iterator[Cable]:
    """A cable of its own, taken down at the end. Names carry the process id, so several can lie side by side."""
    near, far = (f"orc{os.getpid()}{end}" for end in "nf")
    for name in (near, far):
        subprocess.run(["ip", "netns", "add", name], check=True)
    process = subprocess.Popen(
        [sys.executable, __file__, near, far], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        lab = Cable(near, far, process)
        lab.say(str(delay_ms))
        for name, address in ((near, NEAR_ADDRESS), (far, FAR_ADDRESS)):
            for words in ("link set lo up", f"link set {_DEVICE} up mtu 1500", f"addr add {address}/30 dev {_DEVICE}"):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield lab
    finally:
        process.kill()
        process.wait()
        for name in (near, far):
            inside = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True)
            for pid in map(int, inside.stdout.split()):
                os.kill(pid, signal.SIGKILL)  # sessions that were never told of the cut
            subprocess.run(["ip", "netns", "del", name], check=True)


def why_not() -> str | None:
    """The reason that no cable can be laid here, if there is one."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return None


# ---------------------------------------------------------------- the forwarder


def _tun_in(namespace: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(there, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(there)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _forward(ends: tuple[int, int], commands: int) -> None:
    """Until standard input ends: packets in, held back, out at the other end."""
    delay_s, dropping, serial = 0.0, False, 0
    held: list[tuple[float, int, int, bytes]] = []
    other = dict(zip(ends, reversed(ends), strict=True))
    while True:
        while held and held[0][0] <= time.monotonic():
            _, _, out, packet = heapq.heappop(held)
            try:
                os.write(out, packet)
            except OSError:
                continue  # the device is not up yet: a lost packet
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        ready, _, _ = select.select([*ends, commands], [], [], wait_s)
        if commands in ready:
            line = os.read(commands, 100).decode().strip()
            if not line:
                return
            dropping = line == "drop"
            delay_s = delay_s if dropping else float(line) / 1000
            os.write(1, b"ok\n")
        for end in ready:
            if end == commands:
                continue
            packet = os.read(end, 65536)
            serial += 1
            if not dropping:
                heapq.heappush(held, (time.monotonic() + delay_s, serial, other[end], packet))


if __name__ == "__main__":
    _forward((_tun_in(sys.argv[1]), _tun_in(sys.argv[2])), 0)
