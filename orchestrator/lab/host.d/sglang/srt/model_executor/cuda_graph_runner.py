"""Capturing the decoding step. What fails inside comes out wrapped, with advice that rarely fits."""

from __future__ import annotations

import time
from collections.abc import Callable

from lab_hardware import settings

from sglang.srt.utils.log import bare, log

CUDA_GRAPH_CAPTURE_FAILED_MSG = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
)


def capture(forward: Callable[[], float], *, rank: int, max_bs: int, available_gib: float) -> float:
    """Run the pass once while capturing; the result is the pass's c. Raises Exception around whatever fails."""
    log(f"Capture cuda graph begin. This can take up to several minutes. avail mem={available_gib:.2f} GB")
    began = time.monotonic()
    try:
        call_ms = forward()
    except RuntimeError as e:
        message = f"Capture cuda graph failed: {e}\n{CUDA_GRAPH_CAPTURE_FAILED_MSG}"
        raise Exception(message)  # noqa: B904, TRY002 - raised as SGLang raises it, so that the log is as hard to read
    time.sleep(settings().constants.capture_s)
    if rank == 0:
        bare(f"Capturing batches (bs={max_bs} avail_mem={available_gib:.2f} GB): 100%|##########| 1/1")
    taken_gib = max_bs * settings().constants.graph_mib_per_bs / 1024
    log(
        f"Capture cuda graph end. Time elapsed: {time.monotonic() - began:.2f} s. "
        f"mem usage={taken_gib:.2f} GB. avail mem={available_gib - taken_gib:.2f} GB."
    )
    return call_ms
