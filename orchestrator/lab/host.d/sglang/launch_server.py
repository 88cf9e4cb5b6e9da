"""`python -m sglang.launch_server --model-path DIR …`"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.server_args import prepare_server_args


def main(argv: Sequence[str]) -> int:
    """Run a server to its end; the result is its exit status."""
    return launch_server(prepare_server_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
