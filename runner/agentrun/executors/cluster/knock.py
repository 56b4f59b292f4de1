"""Whether there is anything at an address at all. Clusters' own clients take long to say so, and say it badly."""

from __future__ import annotations

import asyncio
import socket

from agentrun.errors import LaterError

KNOCK_SECONDS = 10.0


async def knock(on: str, what: str, address: str) -> None:
    """LaterError if nothing answers at `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(KNOCK_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except socket.gaierror:
        why = f'there is no host "{host}"'
    except ConnectionRefusedError:
        why = f"nothing listens at {address}"
    except TimeoutError:
        why = f"no answer in {KNOCK_SECONDS:g} s"
    except (OSError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
    else:
        writer.close()
        return
    raise LaterError(f"{on}: no {what} answers there ({why}); start it, or correct --on, then resume")
