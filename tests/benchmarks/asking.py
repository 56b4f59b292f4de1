"""The client of everybody who asks the server of `limited`: one request an item, an error for a refusal."""

from __future__ import annotations

import os
from typing import Any

import httpx2

import agentrun


class Client:
    def __init__(self) -> None:
        self._http = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=60.0)
        self._url = os.environ["BENCH_SERVER"]

    async def ask(self, data: dict[str, Any]) -> dict[str, Any]:
        answer = await self._http.post(self._url, json={"key": data["id"]})
        answer.raise_for_status()
        answered: dict[str, Any] = answer.json()
        return answered

    async def aclose(self) -> None:
        await self._http.aclose()


class Asking(Client):
    """The same as an agent."""

    async def __call__(self, item: agentrun.Item) -> dict[str, Any]:
        return await self.ask(item.data)
