"""Lists that grow: what is kept of them gives them back."""

from __future__ import annotations

from typing import Any

import ormsgpack
from hypothesis import given
from hypothesis import strategies as st

from agentrun.frameworks.langgraph.growth import grown, growth

values = st.lists(st.integers() | st.text() | st.lists(st.none(), max_size=3), max_size=40).map(
    lambda found: [one for one in found if not isinstance(one, int) or abs(one) < 2**63]
)


@given(values, values)
def test_a_list_that_grew_is_given_back_and_only_what_was_added_is_kept(before: list[Any], added: list[Any]) -> None:
    old, new = ormsgpack.packb(before), ormsgpack.packb([*before, *added])
    more = growth(old, new)
    assert more is not None
    assert grown(old, *more) == new
    assert len(more[1]) <= len(ormsgpack.packb(added))


@given(st.binary() | values.map(ormsgpack.packb), st.binary() | values.map(ormsgpack.packb))
def test_whatever_the_two_are_what_is_kept_gives_back_the_second(old: bytes, new: bytes) -> None:
    more = growth(old, new)
    assert more is None or grown(old, *more) == new


def test_a_list_whose_elements_changed_is_no_growth() -> None:
    assert growth(ormsgpack.packb([1, 2]), ormsgpack.packb([1, 3, 4])) is None
    assert growth(ormsgpack.packb({"a": 1}), ormsgpack.packb({"a": 1, "b": 2})) is None
