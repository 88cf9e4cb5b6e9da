"""Owns stderr and exit codes: errors as blocks, progress as lines, or live on a terminal."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError, Problem

if TYPE_CHECKING:
    from orchestrator.controller.narration import Narrator

_RED, _BOLD, _CYAN, _DIM, _RESET = "\x1b[31m", "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


def is_coloured() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def show_error(error: OrchestratorError, *, as_json: bool) -> int:
    """Print the error and return its exit code. With `as_json` it is one object on stdout instead."""
    if as_json:
        from orchestrator.cli.output import emit_json

        emit_json({"error": {"kind": error.kind, "exit_code": error.exit_code, "problems": _as_json(error)}})
    else:
        for problem in error.problems:
            sys.stderr.write(render(error.kind, problem, coloured=is_coloured()))
    return error.exit_code


def render(kind: str, problem: Problem, *, coloured: bool = False) -> str:
    """What, where (with the line and a caret), facts, and the hint last and apart."""
    from orchestrator.cli.output import printable

    def paint(colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if coloured else text

    lines = [f"{paint(_RED + _BOLD, f'error[{kind}]')}: {printable(problem.what)}"]
    if problem.where is not None:
        lines.append(f"  {paint(_CYAN, '-->')} {printable(str(problem.where))}")
        if problem.where.text is not None:
            number = str(problem.where.line or "")
            lines.append(f"{number:>5} {paint(_CYAN, '|')} {printable(problem.where.text)}")
            if problem.where.column is not None:
                lines.append(f"{'':>5} {paint(_CYAN, '|')} {' ' * (problem.where.column - 1)}{paint(_RED, '^')}")
    width = max((len(name) for name in problem.facts), default=0)
    for name, value in problem.facts.items():
        shown = printable(str(value)).replace("\n", "\n" + " " * (width + 8))
        lines.append(f"   {paint(_CYAN, '=')} {name.ljust(width)}  {shown}")
    if problem.hint:
        lines.append(f"{paint(_BOLD, 'hint')}: {printable(problem.hint)}")
    return "\n".join(lines) + "\n"


def show_bug(error: BaseException) -> int:
    """Something nobody raised on purpose: the whole traceback, and what to do with it."""
    traceback.print_exception(error)
    sys.stderr.write(
        "error[bug]: this is a mistake of ours; the traceback above is the report\n"
        "hint: nothing is left undone on a host silently: `orchestrator host verify HOST` tells its state\n"
    )
    return 70


def narrator() -> Narrator:
    """Live progress on a terminal, one line a phase elsewhere."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from orchestrator.cli.progress import LiveNarrator

        return LiveNarrator()
    return LineNarrator()


class LineNarrator:
    """One line a phase, when it is over; notes as they come."""

    def phase(self, host: str, name: str, detail: str) -> None:
        if detail:
            say(f"{host}: {name} {detail}")

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None:
        say(f"{host}: {name} {result} ({seconds:.2f} s)".replace("  ", " "))

    def server_phase(self, host: str, name: str) -> None:
        say(f"{host}: server is at {name}")

    def note(self, text: str) -> None:
        say(text)

    def warn(self, text: str) -> None:
        say(f"warning: {text}")


def say(text: str) -> None:
    """One line of narration."""
    from orchestrator.cli.output import printable

    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def _as_json(error: OrchestratorError) -> list[dict[str, object]]:
    return [
        {
            "what": p.what,
            "where": str(p.where) if p.where else None,
            "facts": {k: str(v) for k, v in p.facts.items()},
            "hint": p.hint,
        }
        for p in error.problems
    ]
