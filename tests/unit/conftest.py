"""What the unit tests share."""

from __future__ import annotations

import pytest

from unit.made import STORES, StoreKind


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    found: StoreKind = request.param
    return found
