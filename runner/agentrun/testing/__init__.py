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
`search`, `history`) need not be implemented to pass. `CatalogueContract` does the same for a `Catalogue`, by
`make_catalogue`.

The suite needs pytest, which agentrun itself does not depend on. `agentrun.testing.examples` has the checkpoints,
records, summaries and messages that the tests commit, for further tests of your own.
"""

import pytest

# Before they are imported: pytest shows the values in a failed assertion only in modules that it has rewritten.
pytest.register_assert_rewrite(
    *(f"agentrun.testing.{name}" for name in ("catalogues", "commits", "inboxes", "leases", "readers", "runs", "sides"))
)

from agentrun.testing.catalogues import CatalogueContract  # noqa: E402
from agentrun.testing.commits import CommitContract  # noqa: E402
from agentrun.testing.inboxes import InboxContract  # noqa: E402
from agentrun.testing.leases import LeaseContract  # noqa: E402
from agentrun.testing.readers import ReaderContract  # noqa: E402
from agentrun.testing.runs import RunContract  # noqa: E402
from agentrun.testing.sides import SideFileContract  # noqa: E402


class StoreContract(LeaseContract, CommitContract, RunContract, InboxContract, SideFileContract, ReaderContract):
    """What every store does. Subclass it and implement `make_store`."""


__all__ = ["CatalogueContract", "StoreContract"]
