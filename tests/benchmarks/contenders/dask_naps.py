"""What is done for an item in the figure of clusters: nothing, for a tenth of a second; and Dask's own way to do it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SECONDS = 0.1


def nap(item: Any) -> list[float]:
    """When it began and when it ended."""
    began = time.time()
    time.sleep(SECONDS)
    return [began, time.time()]


def main(scheduler_file: str, total: int) -> None:
    from distributed import Client

    with Client(scheduler_file=scheduler_file, set_as_default=False) as client:
        client.gather(client.map(nap, range(-100, 0), pure=False))  # the workers are there, and have loaded it
        print(json.dumps(client.gather(client.map(nap, range(total), pure=False))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
