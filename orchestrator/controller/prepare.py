"""What every command about a host needs first: playbook or inventory, ledger, the holder's token, the masker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.secrets import Masker, secret_values
from orchestrator.errors import Bug, UsageError

if TYPE_CHECKING:
    from orchestrator.controller.interrupts import Interrupts
    from orchestrator.controller.narration import Costs, Narrator
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Host, Inventory, Playbook, Target
    from orchestrator.core.ports import Clock
    from orchestrator.ledger import Ledger
    from orchestrator.playbook import Loaded

DEFAULT_LEASE_S = 600.0


@dataclass(frozen=True)
class Place:
    """One host of an inventory, with its target and the ledger that knows its history."""

    host_name: str
    host: Host
    target: Target
    ledger: Ledger
    token: str
    masker: Masker
    lease_s: float = DEFAULT_LEASE_S


@dataclass(frozen=True)
class Prepared(Place):
    """A place, and the campaign that is to run there."""

    campaign: Loaded | None = None

    @property
    def loaded(self) -> Loaded:
        if self.campaign is None:
            raise Bug("a prepared run without a playbook")
        return self.campaign

    @property
    def playbook(self) -> Playbook:
        return self.loaded.playbook

    @property
    def playbook_text(self) -> str:
        return self.masker.text(self.loaded.path.read_text(encoding="utf-8"))


def prepare(playbook: Path, state: Path, hosts: Path | None, host: str | None, *, clock: Clock) -> Prepared:
    """Load a playbook and open the ledger of `state`. Raises `PlaybookError` before anything is created."""
    from orchestrator.controller.members import PartialTexts
    from orchestrator.ledger import open_ledger
    from orchestrator.playbook import load

    loaded = load(playbook, hosts_file=hosts, last_seen=last_seen(state, clock), host=host)
    everything: Mapping[str, Any] = {
        "playbook": loaded.playbook.model_dump(mode="json"),
        "inventory": loaded.inventory.model_dump(mode="json"),
    }
    masker = Masker(secret_values(everything, loaded.target.secrets))
    ledger = open_ledger(state, clock=clock, mask=masker.data)
    ledger.remember_inventory(loaded.inventory)
    return Prepared(
        host_name=loaded.host_name,
        host=loaded.host,
        target=loaded.target,
        ledger=ledger,
        token=_token(ledger, loaded.host_name, loaded.target),
        masker=masker,
        lease_s=loaded.playbook.lease,
        campaign=replace(loaded, texts=PartialTexts(loaded.texts)),
    )


def prepare_host(name: str, state: Path, hosts: Path | None, *, clock: Clock) -> Place:
    """One host by name, from `--hosts`, `./hosts.yaml`, or as last seen in the ledger."""
    from orchestrator.ledger import open_ledger

    inventory = inventory_of(state, hosts, clock)
    if name not in inventory.hosts:
        known = ", ".join(sorted(inventory.hosts)) or "none"
        raise UsageError(f"no host is called {name!r}", facts={"known": known}, hint="name its inventory with --hosts")
    host = inventory.hosts[name]
    target = inventory.targets[host.target] if isinstance(host.target, str) else host.target
    masker = Masker(secret_values(inventory.model_dump(mode="json"), target.secrets))
    ledger = open_ledger(state, clock=clock, mask=masker.data)
    return Place(name, host, target, ledger, _token(ledger, name, target), masker)


def inventory_of(state: Path, hosts: Path | None, clock: Clock) -> Inventory:
    """Raises `UsageError` when there is none to be found."""
    from orchestrator.playbook import load_inventory

    beside = Path("hosts.yaml")
    if hosts is not None:
        return load_inventory(hosts)
    if beside.is_file():
        return load_inventory(beside)
    seen = last_seen(state, clock)
    if seen is None:
        raise UsageError("no inventory: no --hosts, no ./hosts.yaml, and no ledger that has seen one")
    return seen


def last_seen(state: Path, clock: Clock) -> Inventory | None:
    from orchestrator.ledger import open_ledger

    if not (state / "ledger.db").is_file():
        return None
    with open_ledger(state, clock=clock, create=False) as ledger:
        return ledger.last_inventory()


def _token(ledger: Ledger, host: str, target: Target) -> str:
    return ledger.holder_token(host, target.source or target.python)


def prepare_session(
    place: Place, narrator: Narrator, interrupts: Interrupts, clock: Clock, costs: Costs
) -> HostSession:
    from orchestrator.controller.memory import idle_memory_of
    from orchestrator.controller.session import HostSession

    return HostSession(
        place.host_name,
        place.host,
        place.target,
        token=place.token,
        lease_s=place.lease_s,
        narrator=narrator,
        interrupts=interrupts,
        clock=clock,
        costs=costs,
        idle=idle_memory_of(place.ledger, place.host_name),
    )
