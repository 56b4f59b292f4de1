"""The hosts by how busy they are, so that the next attempt goes to the least busy one.

Finding it takes as long with a thousand hosts as with ten: with a look at every host, a runner with a thousand of them
spent nine tenths of its CPU time on that.
"""

from __future__ import annotations

from agentrun.executors.cluster.link import HostLink


class Ranking:
    """Hosts that can be given attempts. Only `take` and `give_back` change the load of a host."""

    def __init__(self) -> None:
        self._by_share: dict[float, set[HostLink]] = {}
        """By load per slot, of which there are few different ones."""
        self._shares: dict[HostLink, float] = {}

    def put(self, link: HostLink) -> None:
        """Rank a host that became usable, or whose slots have changed."""
        self.drop(link)
        if link.tube.slots > 0:
            share = self._shares[link] = link.load / link.tube.slots
            self._by_share.setdefault(share, set()).add(link)

    def drop(self, link: HostLink) -> None:
        if (share := self._shares.pop(link, None)) is not None:
            links = self._by_share[share]
            links.discard(link)
            if not links:
                del self._by_share[share]

    def take(self, depth: int) -> HostLink | None:
        """The least busy host with less than `depth` attempts a slot, with one more; None if there is none."""
        for share in sorted(self._by_share):
            if share >= depth:
                return None
            links = self._by_share.pop(share)
            while links:
                link = links.pop()
                del self._shares[link]
                # A host that is no longer usable never is again; the end of its link is noticed later.
                if link.is_usable:
                    if links:
                        self._by_share[share] = links
                    link.load += 1
                    self.put(link)
                    return link
        return None

    def give_back(self, link: HostLink) -> None:
        """An attempt of the host has ended, or was not sent after all."""
        link.load -= 1
        if link.is_usable:
            self.put(link)
