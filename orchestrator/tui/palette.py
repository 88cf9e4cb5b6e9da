"""The command palette: every action as `area: verb`."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from orchestrator.tui.actions import DEEDS, Deed


class Deeds(Provider):
    async def discover(self) -> Hits:
        for deed in DEEDS:
            yield DiscoveryHit(deed.title, partial(self._start, deed), help=deed.does)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for deed in DEEDS:
            score = matcher.match(deed.title)
            if score > 0:
                yield Hit(score, matcher.highlight(deed.title), partial(self._start, deed), help=deed.does)

    async def _start(self, deed: Deed) -> None:
        await self.app.run_action(deed.call)
