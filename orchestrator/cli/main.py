"""The command line. Each command imports what it needs when it runs, so that `--help` costs nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from orchestrator.cli import diagnostics
from orchestrator.cli.streams import ReaderLeft, secure_streams
from orchestrator.errors import Interrupted, OrchestratorError, UsageError

PLAIN = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": True}


def _group(text: str) -> typer.Typer:
    return typer.Typer(help=text, add_completion=False, **PLAIN)  # type: ignore[arg-type]


def build_app() -> typer.Typer:
    """All commands. The order here is the order of `--help`."""
    from orchestrator.cli import (
        audit,
        decisions,
        diagnose,
        findings,
        host,
        init,
        lab,
        ledger,
        playbook,
        run,
        settings,
        todo,
        tui,
    )

    app = typer.Typer(
        help="Tunes LLM inference servers on real hosts: one change at a time, every revert proved byte for byte.",
        epilog="Start here: orchestrator demo",
        **PLAIN,  # type: ignore[arg-type]
    )
    lab.add_demo(app)
    init.add(app)
    run.add(app)
    audit.add(app)
    tui.add(app)
    playbook.add(app)
    diagnose.add(app)
    findings.add_why(app)
    groups: list[tuple[str, str, Callable[[typer.Typer], None]]] = [
        ("campaign", "End a campaign.", run.add_campaign),
        ("host", "Look at a host, prove it clean, recover it.", host.add),
        ("playbook", "Facts about playbooks.", playbook.add_group),
        ("todo", "Hypotheses, ranked; plans in and out.", todo.add),
        ("decision", "What will be done, and why.", decisions.add_decision),
        ("insight", "What was understood.", decisions.add_insight),
        ("finding", "What was learned.", findings.add_finding),
        ("experiment", "What was done.", findings.add_experiment),
        ("ledger", "Export and check the ledger; the trail.", ledger.add),
        ("lab", "A simulated host to try everything on.", lab.add),
        ("config", "Settings and where they come from.", settings.add),
    ]
    for name, text, add in groups:
        group = _group(text)
        add(group)
        app.add_typer(group, name=name)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: runs one command and exits with the code of its kind."""
    secure_streams()
    code = run_command(list(sys.argv[1:] if argv is None else argv))
    if (
        code == Interrupted.exit_code
    ):  # one more Ctrl-C while Python leaves must not turn the code into a death by signal
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def run_command(words: list[str]) -> int:
    """Exit code of one command line. Errors are shown here and nowhere else."""
    as_json = "--json" in words
    if not _has_working_directory():
        gone = UsageError("the working directory does not exist any more", hint="change to one that does")
        return diagnostics.show_error(gone, as_json=as_json)
    command = typer.main.get_command(build_app())
    try:
        result = command.main(args=words, prog_name="orchestrator", standalone_mode=False)
        sys.stdout.flush()
    except OrchestratorError as error:
        return diagnostics.show_error(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return diagnostics.show_error(Interrupted("stopped; no host was being changed"), as_json=as_json)
    except ReaderLeft:
        return 0
    except Exception as error:
        return _library_error(error, as_json=as_json)
    return int(result) if isinstance(result, int) else 0


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _library_error(error: Exception, *, as_json: bool) -> int:
    """The command-line library's complaints become ours; anything else is a bug."""
    message = getattr(error, "format_message", None)
    if not callable(message):
        return diagnostics.show_bug(error)
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "orchestrator")
    text = str(message())
    if not text.strip():  # a group without a subcommand has shown its help
        return 2
    return diagnostics.show_error(UsageError(text, hint=f"{path} --help"), as_json=as_json)


if __name__ == "__main__":
    main()
