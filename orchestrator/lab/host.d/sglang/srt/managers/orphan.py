"""A process that outlives the server: in a session of its own, with a GPU in its hands. For the fault `orphan`."""

from __future__ import annotations

import os
import time

from lab_hardware import settings
from lab_hardware.gpu import Device


def leave_orphan(seconds: float) -> None:
    """Fork twice; the grandchild holds GPU 0 for `seconds` and asks for no parent-death signal."""
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    device = Device(settings().root, 0)
    device.allocate(settings().machine.gpu_memory_mib // 4)
    time.sleep(seconds)
    os._exit(0)
