"""Arguments and figures that the commands about records share."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

Campaign = Annotated[Optional[str], typer.Option("--campaign", help="Which campaign of the ledger.")]  # noqa: UP045
Because = Annotated[str, typer.Option("--because", help="Why: kept as a decision.", show_default=False)]
OnFindings = Annotated[
    list[str], typer.Option("--finding", metavar="N", help="A finding that it rests on; may be given several times.")
]
HypothesisId = Annotated[str, typer.Argument(metavar="ID", help="A hypothesis of the todo.", show_default=False)]
FindingName = Annotated[
    str,
    typer.Argument(metavar="N|ID", help="Number of the finding, or a hypothesis: its last one.", show_default=False),
]


def percent(value: float | None) -> str | None:
    return None if value is None else f"{value:+.1%}"


def interval(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"[{low:+.1%}, {high:+.1%}]"
