"""The store contract as a pytest suite, for everyone who writes a store of their own.

Subclass `StoreContract` in a test module, and say how to open the store:

    import agentrun.testing
    from my_store import MyStore

    class TestMyStore(agentrun.testing.StoreContract):
        def make_store(self, tmp_path):
            return MyStore(tmp_path / "store")

Each call of `make_store` within a test opens the same store, as the next launch or another process would: what one
committed, the next one finds. A store that lives in memory returns the same object every time; pytest makes a new
instance of the class for each test, so `self` is a good place for it. Each test has a `tmp_path` of its own, and its
store must be empty at first.

The methods with a default body in the port (`begin`, `compact`, `size`, `prune`, `set_aside`, `salvage`, `note`,
`search`, `history`, `contents`, `adopt`, `forget`) need not be implemented to pass. `CatalogueContract` does the same
for a `Catalogue`, by `make_catalogue`.

A store for many machines is best written as a `Home` (`agentrun.store.keyed.home`), the smaller port: `KeyedStore` has
the lease, the fencing and the recovery, and needs of a home only conditional writes. Four suites say that it is right:

    class OnMyHome:
        def make_home(self, tmp_path):
            return MyPlace(ADDRESS, prefix=tmp_path.name).home("triage")

    class TestMyHome(OnMyHome, agentrun.testing.HomeContract): ...      # what each method does, and refuses to do
    class TestMyFences(OnMyHome, agentrun.testing.FenceContract): ...   # of two runners, only one changes anything

Each call of `make_home` opens the same job through a home of its own, as another process would. `PlaceContract`, by
`make_place`, is about many jobs in one place; and `StoreContract` about a `KeyedStore` on the home. A home that holds a
lease for fresh a little longer than it was asked to, because its clock is coarse, says so: `margin_seconds = 3`.

The suite needs pytest, which agentrun itself does not depend on. `agentrun.testing.examples` has the checkpoints,
records, summaries and messages that the tests commit, for further tests of your own.
"""

import pytest

# Before they are imported: pytest shows the values in a failed assertion only in modules that it has rewritten.
pytest.register_assert_rewrite(
    *(
        f"agentrun.testing.{name}"
        for name in (
            *("catalogues", "commits", "inboxes", "leases", "moves", "readers", "runs", "sides"),
            *("fences", "home_runs", "home_sides", "homes", "places"),
        )
    )
)

from agentrun.testing.catalogues import CatalogueContract  # noqa: E402
from agentrun.testing.commits import CommitContract  # noqa: E402
from agentrun.testing.fences import FenceContract  # noqa: E402
from agentrun.testing.home_runs import HomeRunContract  # noqa: E402
from agentrun.testing.home_sides import HomeSideContract  # noqa: E402
from agentrun.testing.homes import HomeLeaseContract  # noqa: E402
from agentrun.testing.inboxes import InboxContract  # noqa: E402
from agentrun.testing.leases import LeaseContract  # noqa: E402
from agentrun.testing.moves import MoveContract  # noqa: E402
from agentrun.testing.places import PlaceContract  # noqa: E402
from agentrun.testing.readers import ReaderContract  # noqa: E402
from agentrun.testing.runs import RunContract  # noqa: E402
from agentrun.testing.sides import SideFileContract  # noqa: E402


class StoreContract(
    LeaseContract, CommitContract, RunContract, InboxContract, SideFileContract, ReaderContract, MoveContract
):
    """What every store does. Subclass it and implement `make_store`."""


class HomeContract(HomeLeaseContract, HomeRunContract, HomeSideContract):
    """What every home does. Subclass it and implement `make_home`."""


__all__ = ["CatalogueContract", "FenceContract", "HomeContract", "PlaceContract", "StoreContract"]
