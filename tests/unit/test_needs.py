"""What a test needs and does not find: a failure in CI, a loud skip elsewhere."""

from __future__ import annotations

import pytest

from needs import require, require_module, require_program


def test_elsewhere_a_test_whose_need_is_missing_is_skipped_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match="NOT TESTED: there is no program no-such; get it with: make system"
    ):
        require_program("no-such")
    with pytest.raises(pytest.skip.Exception, match=r"no module no_such; install the extra: .*\[llm\]"):
        require_module("no_such", extra="llm")


def test_in_ci_a_test_whose_need_is_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="NOT TESTED: there is no server; start one"):
        require(False, "there is no server", remedy="start one")


def test_a_test_that_has_what_it_needs_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither raises: a skip or a failure here would be an exception."""
    monkeypatch.setenv("CI", "true")
    require_program("sh", "cat")
    require_module("pytest", "orjson", extra="dev")
