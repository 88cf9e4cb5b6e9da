"""A file → a campaign with everything it refers to, or all that is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from orchestrator.core.model import Context, Host, Hypothesis, Inventory, Playbook, Target
from orchestrator.core.secrets import Masker, secret_values
from orchestrator.core.units import AS_WRITTEN
from orchestrator.errors import Bug, Place, PlaybookError, Problem
from orchestrator.playbook.attachments import Attachments, read_attachments
from orchestrator.playbook.complaints import problems_in
from orchestrator.playbook.document import Document, read_document
from orchestrator.playbook.inventories import NoHost, Stock, as_written, choose_host, find_stock, parts
from orchestrator.playbook.references import check_references
from orchestrator.playbook.schema import shape_of
from orchestrator.playbook.settings import check_contradictions, check_effect, check_settings


@dataclass(frozen=True)
class Loaded:
    """A playbook that is ready to run on `host`."""

    playbook: Playbook
    path: Path
    host_name: str
    host: Host
    target: Target
    inventory: Inventory
    inventory_origin: str
    """The inventory file, `playbook`, or `last seen`."""
    texts: Mapping[str, bytes]
    """Content of every diff and `from` file, by the name that the playbook gives it."""
    digest: str
    """SHA-256 of the playbook and of `texts`, in hexadecimal."""


@dataclass
class _Findings:
    """What a reading has found so far; the fields stay None where the file does not tell."""

    problems: list[Problem] = field(default_factory=list)
    document: Document | None = None
    playbook: Playbook | None = None
    stock: Stock | None = None
    host_name: str | None = None
    target: Target | None = None
    attachments: Attachments = field(default_factory=Attachments)


def load(
    path: Path,
    *,
    hosts_file: Path | None = None,
    cwd: Path | None = None,
    last_seen: Inventory | None = None,
    host: str | None = None,
) -> Loaded:
    """Read a playbook with its inventory and files. Raises `PlaybookError` with every problem.

    `hosts_file` wins over the playbook's own hosts; `cwd` (here by default) is searched for hosts.yaml; `last_seen` is
    the inventory of an earlier run, used when there is no other; `host` wins over the playbook's.
    """
    found = _read(path, hosts_file, cwd or Path.cwd(), last_seen, host)
    if found.problems:
        raise PlaybookError(found.problems)
    if not (found.document and found.playbook and found.stock and found.host_name and found.target):
        raise Bug("a playbook without problems is incomplete", where=Place(str(path)))
    chosen = found.stock.hosts[found.host_name]
    assert chosen is not None
    texts = found.attachments.texts
    return Loaded(
        playbook=found.playbook,
        path=path,
        host_name=found.host_name,
        host=chosen,
        target=found.target,
        inventory=found.stock.inventory(),
        inventory_origin=found.stock.origin,
        texts=MappingProxyType(texts),
        digest=_digest(found.document.text.content, texts),
    )


def check(
    path: Path,
    *,
    hosts_file: Path | None = None,
    cwd: Path | None = None,
    last_seen: Inventory | None = None,
    host: str | None = None,
    needs_host: bool = True,
) -> list[Problem]:
    """All problems that `load` would raise, in the order of the file.

    With `needs_host=False` it is no problem that nothing says where the campaign shall run.
    """
    return _read(path, hosts_file, cwd or Path.cwd(), last_seen, host, needs_host=needs_host).problems


def _read(
    path: Path,
    hosts_file: Path | None,
    cwd: Path,
    last_seen: Inventory | None,
    host: str | None,
    *,
    needs_host: bool = True,
) -> _Findings:
    found = _Findings()
    try:
        found.document, problems = read_document(path)
        found.problems += problems
        _validate(found, found.document)
        found.problems += check_references(found.document)
        found.problems += check_settings(found.document)
        found.attachments = read_attachments(found.document, path.parent)
        found.problems += found.attachments.problems
        found.stock, problems = find_stock(found.document, path, hosts_file, cwd, last_seen)
        found.problems += problems
        found.host_name = choose_host(found.stock, found.document, host)
        found.target = _target(found.stock, found.host_name)
    except NoHost as error:
        found.problems += error.problems if needs_host else []
    except PlaybookError as error:
        found.problems += error.problems
    if found.document is not None:
        found.problems += _judged(found, found.document)
    found.problems = _presented(found, str(path))
    return found


def _validate(found: _Findings, document: Document) -> None:
    try:
        found.playbook = Playbook.model_validate(document.data, context=AS_WRITTEN)
    except ValidationError as error:
        found.problems += problems_in(error, document, shape_of(Playbook))


def _target(stock: Stock, host_name: str) -> Target | None:
    host = stock.hosts[host_name]
    if host is None:
        return None
    return host.target if isinstance(host.target, Target) else stock.targets.get(host.target)


def _judged(found: _Findings, document: Document) -> Iterator[Problem]:
    """Complaints about hypotheses as wholes, beside the target when it is known."""
    written = document.data.get("contexts", {"plain": {}})
    contexts = {name: context for name, context in parts(Context, written).items() if context is not None}
    rows = document.data.get("hypotheses")
    for i, row in enumerate(rows if isinstance(rows, list) else []):
        hypothesis = as_written(Hypothesis, row)
        if hypothesis is None:
            continue
        yield from check_contradictions(document, ("hypotheses", i), hypothesis)
        if found.target is not None:
            yield from check_effect(document, ("hypotheses", i), hypothesis, found.target, contexts)


def _presented(found: _Findings, path: str) -> list[Problem]:
    """In the order of the file, each once, and without the secrets that the files hold."""
    masker = Masker(_secrets(found))
    unique = list({(p.what, str(p.where)): p for p in found.problems}.values())
    unique.sort(key=lambda p: _order(p, path))
    return [_masked(problem, masker) for problem in unique]


def _order(problem: Problem, path: str) -> tuple[bool, str, int, int]:
    where = problem.where or Place("")
    return where.file != path, where.file, where.line or 0, where.column or 0


def _secrets(found: _Findings) -> set[str]:
    secrets: set[str] = set()
    for document in (found.document, found.stock.document if found.stock else None):
        if document is not None:
            targets = [*_mappings(document.data.get("targets")), *_mappings(document.data.get("hosts"), "target")]
            marked = [name for target in targets for name in _words(target.get("secrets"))]
            secrets |= secret_values(document.data, marked)
    return secrets


def _mappings(value: object, key: str | None = None) -> list[dict[str, object]]:
    items = list(value.values()) if isinstance(value, dict) else []
    inner = [item.get(key) if key and isinstance(item, dict) else item for item in items]
    return [item for item in inner if isinstance(item, dict)]


def _words(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _masked(problem: Problem, masker: Masker) -> Problem:
    where = problem.where
    if where and where.text:
        where = replace(where, text=masker.text(where.text))
    hint = masker.text(problem.hint) if problem.hint else None
    facts = {name: masker.text(fact) for name, fact in problem.facts.items()}
    return Problem(masker.text(problem.what), where, hint, facts)


def _digest(playbook: str, texts: Mapping[str, bytes]) -> str:
    """Every part with its length in front, so that no two sets of files look alike."""
    digest = hashlib.sha256()
    for part in (playbook.encode(), *(p for name in sorted(texts) for p in (name.encode(), texts[name]))):
        digest.update(f"{len(part)}:".encode() + part)
    return digest.hexdigest()
