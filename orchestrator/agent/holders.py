"""Who holds a device, a file or a port: descriptors, mappings and sockets of every process that may be looked at."""

from __future__ import annotations

import errno
import glob
import os
import socket
import stat as stat_bits
import sys
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Set, Tuple

from orchestrator.agent import containers, ports, processes, programs

_LISTEN = "0A"


class Wanted(NamedTuple):
    """Device numbers and file identities → the paths as asked for."""

    numbers: Dict[int, str]
    files: Dict[Tuple[int, int], str]
    paths: Set[str]


class Holding(NamedTuple):
    """pid → what it holds; `unreadable` are processes that may hold anything."""

    devices: Dict[int, Set[str]]
    inodes: Dict[int, Set[int]]  # socket inode → pids
    unreadable: Set[int]


def find_wanted(patterns: Iterable[str]) -> Wanted:
    """Devices count by number, since a container has nodes of its own; ordinary files by device and inode."""
    wanted = Wanted({}, {}, set())
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            try:
                seen = os.stat(path)
            except FileNotFoundError:
                continue
            wanted.paths.add(path)
            if stat_bits.S_ISCHR(seen.st_mode) or stat_bits.S_ISBLK(seen.st_mode):
                wanted.numbers[seen.st_rdev] = path
            else:
                wanted.files[(seen.st_dev, seen.st_ino)] = path
    return wanted


def scan(wanted: Wanted, inodes: Set[int], among: Iterable[int] | None = None) -> Holding:
    """One walk over /proc/*/fd and, when devices are wanted, /proc/*/maps. `among`: only these pids."""
    holding = Holding({}, {}, set())
    for pid in processes.pids() if among is None else among:
        try:
            _scan_fds(pid, wanted, inodes, holding)
            if wanted.paths:
                _scan_maps(pid, wanted, holding)
        except OSError as error:
            if processes.is_gone(error):
                continue
            if error.errno not in (errno.EACCES, errno.EPERM):
                raise
            holding.unreadable.add(pid)
    return holding


def _scan_fds(pid: int, wanted: Wanted, inodes: Set[int], holding: Holding) -> None:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            link = os.readlink(f"{folder}/{name}")
            inode = int(link[8:-1]) if link.startswith("socket:[") else -1
            if inode in inodes:
                holding.inodes.setdefault(inode, set()).add(pid)
            if wanted.paths and not link.startswith(("socket:", "pipe:", "anon_inode:")):
                path = _match(os.stat(f"{folder}/{name}"), wanted)
                if path is not None:
                    holding.devices.setdefault(pid, set()).add(path)
        except OSError as error:
            # Closed since the listing, or a file behind a dead network mount.
            if not processes.is_gone(error) and error.errno not in (errno.ESTALE, errno.EIO, errno.ENOTCONN):
                raise


def _match(seen: os.stat_result, wanted: Wanted) -> str | None:
    if stat_bits.S_ISCHR(seen.st_mode) or stat_bits.S_ISBLK(seen.st_mode):
        return wanted.numbers.get(seen.st_rdev)
    return wanted.files.get((seen.st_dev, seen.st_ino))


class Mapping(NamedTuple):
    """One line of /proc/PID/maps that has a file."""

    span: str
    dev: int
    ino: int
    path: str


def read_maps(pid: int) -> Iterator[Mapping]:
    """Raises OSError as the kernel does: EACCES for other users' processes."""
    with open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            fields = line.rstrip(b"\n").split(None, 5)
            if len(fields) == 6 and fields[4] != b"0":
                major, minor = fields[3].split(b":")
                path = os.fsdecode(fields[5])
                yield Mapping(
                    os.fsdecode(fields[0]),
                    os.makedev(int(major, 16), int(minor, 16)),
                    int(fields[4]),
                    path[: -len(" (deleted)")] if path.endswith(" (deleted)") else path,
                )


def _scan_maps(pid: int, wanted: Wanted, holding: Holding) -> None:
    inodes = {ino for _, ino in wanted.files}
    for mapping in read_maps(pid):
        path = wanted.files.get((mapping.dev, mapping.ino))
        if path is None and (mapping.path in wanted.paths and (not wanted.files or mapping.ino in inodes)):
            path = mapping.path  # overlay and btrfs show another device number here
        if path is None and wanted.numbers and mapping.path.startswith("/dev/"):
            path = _mapped_device(pid, mapping, wanted)
        if path is not None:
            holding.devices.setdefault(pid, set()).add(path)


def _mapped_device(pid: int, mapping: Mapping, wanted: Wanted) -> str | None:
    """By number where the kernel lets us follow the mapping, else by the name it shows."""
    if mapping.path in wanted.paths:
        return mapping.path
    try:
        return _match(os.stat(f"/proc/{pid}/map_files/{mapping.span}"), wanted)
    except OSError as error:
        if processes.is_gone(error) or error.errno in (errno.EACCES, errno.EPERM):
            return None
        raise


class Listener(NamedTuple):
    """A listening TCP socket of this network namespace."""

    address: str
    port: int
    inode: int


def read_listeners() -> list[Listener]:
    return [*_parse_tcp("/proc/self/net/tcp"), *_parse_tcp("/proc/self/net/tcp6")]


def _parse_tcp(path: str) -> Iterator[Listener]:
    try:
        with open(path, encoding="ascii") as file:
            next(file)
            for line in file:
                fields = line.split()
                if fields[3] == _LISTEN:
                    address, _, port = fields[1].partition(":")
                    yield Listener(_address(address), int(port, 16), int(fields[9]))
    except FileNotFoundError:  # a kernel without IPv6
        return


def _address(text: str) -> str:
    """The kernel prints 32-bit words in its own byte order."""
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    raw = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


NOTHING = Wanted({}, {}, set())


def listening_ports(among: Iterable[int]) -> Dict[int, Set[int]]:
    """pid → TCP ports it listens on, for the processes asked about."""
    listeners = read_listeners()
    return _ports(listeners, scan(NOTHING, {one.inode for one in listeners}, among))


def _ports(listeners: Iterable[Listener], holding: Holding) -> Dict[int, Set[int]]:
    found: Dict[int, Set[int]] = {}
    for one in listeners:
        for pid in holding.inodes.get(one.inode, ()):
            found.setdefault(pid, set()).add(one.port)
    return found


def find_processes(
    devices: Iterable[str],
    port: int | None,
    run_ids: Iterable[str],
    guard: processes.Identity | None,
    also: Iterable[int] = (),
) -> Dict[str, Any]:
    """The reply to `processes`: holders, owners of the port, carriers of a run id, those of `also` that live, and all
    their ancestors.

    `unreadable` are pids whose descriptors are not shown to us: they may hold anything, which is not "free".
    """
    wanted = find_wanted(devices)
    listeners = [one for one in read_listeners() if port is None or one.port == port]
    holding = scan(wanted, {one.inode for one in listeners})
    listens = _ports(listeners, holding)
    view = processes.take_view(guard, holding.devices, listens, holding.unreadable)
    found = set(holding.devices) | (set(listens) if port is not None else set())
    found |= set(also) & set(view.table)
    ids = set(run_ids)
    if ids:
        found |= {pid for pid in view.table if (processes.read_environ(pid) or {}).get(processes.RUN_ID) in ids}
    for pid in list(found):
        found |= processes.ancestors(view.table, pid)
    hidden = sorted(holding.unreadable & set(view.table))
    shown = [
        {**p, "container": containers.container_of(p["pid"]), "program": programs.program_of(p["pid"])}
        for p in processes.describe(found, view)
    ]
    reply: Dict[str, Any] = {"processes": shown, "unreadable": hidden}
    if port is not None:
        reply["port"] = ports.look_at_port(port, listeners, holding)
    return reply
