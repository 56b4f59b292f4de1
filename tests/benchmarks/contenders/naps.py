"""What is done for an item in the figure of clusters: nothing, for a tenth of a second; and the clusters' own ways."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SECONDS = 0.1
RUN_IN = 100
"""Items of the clusters' own that do not count: workers are there then, and have loaded what they need."""


def nap(item: Any) -> list[float]:
    """When it began and when it ended."""
    began = time.time()
    time.sleep(SECONDS)
    return [began, time.time()]


def on_dask(scheduler_file: str, total: int) -> list[list[float]]:
    from distributed import Client

    with Client(scheduler_file=scheduler_file, set_as_default=False) as client:
        client.gather(client.map(nap, range(RUN_IN), pure=False))
        return list(client.gather(client.map(nap, range(total), pure=False)))


def on_ray(address: str, total: int) -> list[list[float]]:
    """An actor for each CPU."""
    import ray
    from ray.util import ActorPool

    class Napper:
        def nap(self, item: int) -> list[float]:
            return nap(item)

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    make = ray.remote(num_cpus=1)(Napper).remote
    pool = ActorPool([make() for _ in range(int(ray.cluster_resources()["CPU"]))])
    ask = lambda actor, item: actor.nap.remote(item)  # noqa: E731
    list(pool.map_unordered(ask, range(RUN_IN)))
    return list(pool.map_unordered(ask, range(total)))


if __name__ == "__main__":
    way = {"dask": on_dask, "ray": on_ray}[sys.argv[1]]
    print(json.dumps(way(sys.argv[2], int(sys.argv[3]))))
