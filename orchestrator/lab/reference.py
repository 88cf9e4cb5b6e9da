"""The tables of docs/lab.md, out of the model: `python -m orchestrator.lab.reference` prints them."""

from __future__ import annotations

import sys

from orchestrator.lab.hardware.model import Constants, Machine, describe


def table(record: Constants | Machine) -> str:
    """Name, default, unit, mark and meaning of every value, as a Markdown table."""
    lines = ["| name | default | unit | | meaning |", "|---|---|---|---|---|"]
    for name, entry in describe(record).items():
        value = entry["value"]
        shown = f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else value
        lines.append(f"| `{name}` | {shown} | {entry['unit']} | {entry['mark']} | {entry['says']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    sys.stdout.write(f"{table(Constants())}\n{table(Machine())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
