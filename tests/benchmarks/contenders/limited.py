"""What people write around a client whose server refuses, 64 requests at a time; nothing is kept.

    python -m benchmarks.contenders.limited retries|knows WIDTH PER_SECOND BURST

- `retries` has tenacity around each request, as providers' guides show it: six attempts, a random exponential wait.
- `knows` has a bucket like the server's own, which somebody told it, and so begins each request when it may.

Prints how many items failed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
from tenacity import retry, stop_after_attempt, wait_random_exponential

from benchmarks import work
from benchmarks.asking import Client

Ask = Callable[[dict[str, Any]], Awaitable[Any]]


def retrying(client: Client) -> Ask:
    return retry(wait=wait_random_exponential(min=1, max=60), stop=stop_after_attempt(6), reraise=True)(client.ask)


class Knowing:
    """`burst` requests at once, then one every 1/`per_second`."""

    def __init__(self, client: Client, per_second: float, burst: float) -> None:
        self._client = client
        self._each, self._ahead = 1 / per_second, (burst - 1) / per_second
        self._until = 0.0

    async def ask(self, data: dict[str, Any]) -> Any:
        while True:
            now = asyncio.get_running_loop().time()
            self._until = max(self._until, now) + self._each
            await asyncio.sleep(self._until - self._each - self._ahead - now)
            try:
                return await self._client.ask(data)
            except httpx2.HTTPStatusError:
                pass  # its bucket and the server's are not the same to the millisecond


async def run(kind: str, width: int, per_second: float, burst: float) -> int:
    client, failed = Client(), 0
    ask = retrying(client) if kind == "retries" else Knowing(client, per_second, burst).ask

    async def slot(items: Iterator[dict[str, Any]]) -> None:
        nonlocal failed
        for data in items:
            try:
                await ask(data)
            except httpx2.HTTPStatusError:
                failed += 1

    items = work.read_items(work.source())
    await asyncio.gather(*(slot(items) for _ in range(width)))
    await client.aclose()
    return failed


if __name__ == "__main__":
    kind, width, per_second, burst = sys.argv[1:]
    print(asyncio.run(run(kind, int(width), float(per_second), float(burst))))
