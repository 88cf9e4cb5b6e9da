"""Where the hosts come from, and which of them is meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.core.model import Host, Inventory, Target
from orchestrator.core.units import AS_WRITTEN
from orchestrator.errors import Place, PlaybookError, Problem
from orchestrator.playbook.complaints import problems_in
from orchestrator.playbook.document import Document, read_document
from orchestrator.playbook.references import check_targets
from orchestrator.playbook.schema import shape_of, suggest
from orchestrator.playbook.settings import check_settings

FILE_NAME = "hosts.yaml"
FROM_PLAYBOOK = "playbook"
LAST_SEEN = "last seen"

_M = TypeVar("_M", bound=BaseModel)


def as_written(model: type[_M], value: object) -> _M | None:
    """The model of a readable part of a file; None where it is broken, which validation of the whole reports."""
    try:
        return model.model_validate(value, context=AS_WRITTEN)
    except ValidationError:
        return None


def parts(model: type[_M], value: object) -> dict[str, _M | None]:
    """Name → model of a mapping as written; None where one is broken."""
    return {name: as_written(model, item) for name, item in value.items()} if isinstance(value, dict) else {}


class NoHost(PlaybookError):
    """Nothing says where it shall run. The playbook may be right all the same."""


@dataclass
class Stock:
    """Hosts and targets as found, broken ones included (None), and where they were found."""

    origin: str
    hosts: Mapping[str, Host | None] = field(default_factory=dict)
    targets: Mapping[str, Target | None] = field(default_factory=dict)
    document: Document | None = None

    def inventory(self) -> Inventory:
        hosts = {name: host for name, host in self.hosts.items() if host is not None}
        targets = {name: target for name, target in self.targets.items() if target is not None}
        return Inventory(hosts=hosts, targets=targets)


def read_inventory(path: Path) -> tuple[Stock, list[Problem]]:
    """A file of hosts and targets, and everything wrong in it. Raises `PlaybookError` where it cannot be read."""
    document, problems = read_document(path)
    try:
        Inventory.model_validate(document.data, context=AS_WRITTEN)
    except ValidationError as error:
        problems += problems_in(error, document, shape_of(Inventory))
    problems += check_settings(document)
    return _stock(str(path), document), problems


def load_inventory(path: Path) -> Inventory:
    """`hosts.yaml` as an inventory. Raises `PlaybookError` with all problems."""
    stock, problems = read_inventory(path)
    if stock.document is not None:
        problems += check_targets(stock.document, stock.targets)
    if problems:
        raise PlaybookError(problems)
    return stock.inventory()


def find_stock(
    playbook: Document, path: Path, hosts_file: Path | None, cwd: Path, last_seen: Inventory | None
) -> tuple[Stock, list[Problem]]:
    """The inventory that counts: a file that was named, the playbook's own hosts, hosts.yaml beside it, hosts.yaml
    here, what was last seen. The playbook's targets join it, and win over those of a file that was not named."""
    own = _stock(FROM_PLAYBOOK, playbook)
    if hosts_file is None and own.hosts:
        return own, list(check_targets(playbook, own.targets))
    candidates = [hosts_file] if hosts_file else [path.parent / FILE_NAME, cwd / FILE_NAME]
    file = next((one for one in candidates if hosts_file or one.exists()), None)
    problems: list[Problem] = []
    if file is not None:
        stock, problems = read_inventory(file)
    elif last_seen is not None:
        stock = Stock(LAST_SEEN, last_seen.hosts, last_seen.targets)
    else:
        raise NoHost([_no_inventory(path, candidates)])
    stock.targets = {**own.targets, **stock.targets} if hosts_file else {**stock.targets, **own.targets}
    if stock.document is not None:
        problems += check_targets(stock.document, stock.targets)
    return stock, problems


def _stock(origin: str, document: Document) -> Stock:
    data: dict[str, Any] = document.data
    return Stock(origin, parts(Host, data.get("hosts")), parts(Target, data.get("targets")), document)


def _no_inventory(path: Path, looked_in: list[Path]) -> Problem:
    return Problem(
        "no host to run on: the playbook has no `hosts`, and no inventory was found",
        Place(str(path)),
        f"write {FILE_NAME} beside the playbook, or name a file with --hosts",
        {"looked in": ", ".join(map(str, dict.fromkeys(p.absolute() for p in looked_in)))},
    )


def choose_host(stock: Stock, playbook: Document, wanted: str | None) -> str:
    """The name of the host: as asked for, as the playbook says, or the only one. Raises `NoHost`, and
    `PlaybookError` for a name that is not there."""
    names = list(stock.hosts)
    hint = f"hosts in {stock.origin}: {', '.join(names) or 'none'}"
    written = playbook.data.get("host")
    name = wanted or (written if isinstance(written, str) else None)
    place = Place(playbook.text.name) if wanted or not name else playbook.place(("host",))
    if name is None:
        if len(names) == 1:
            return names[0]
        what = "there are several hosts; say which" if names else "the inventory has no hosts"
        raise NoHost([Problem(what, place, hint)])
    if name not in names:
        meant = suggest(name, names, f"hosts in {stock.origin}")
        raise PlaybookError([Problem(f"there is no host `{name}`", place, meant, {"hosts": ", ".join(names)})])
    return name
