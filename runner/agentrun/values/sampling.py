"""Drawing a sample that is spread over a list."""

from __future__ import annotations

import random
from itertools import pairwise


def spread(total: int, wanted: int, seed: str) -> list[int]:
    """Positions in a list of `total`: one at random from each of `wanted` parts of the same length, in order; all of
    them if there are no more. The same for the same seed."""
    if wanted >= total:
        return list(range(total))
    # Not for secrets: the same seed must draw the same sample.
    draw = random.Random(seed)  # noqa: S311
    edges = [part * total // wanted for part in range(wanted + 1)]
    return [draw.randrange(first, last) for first, last in pairwise(edges)]
