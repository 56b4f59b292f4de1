"""How long a server asks to wait, by its headers."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace

import pytest

from agentrun.agents.exceptions import failure_from
from agentrun.agents.failure import Failure, is_refusal, judge
from agentrun.agents.waits import asked_by_headers, whose_quota

NOW = 1_800_000_000.0
IN_AN_HOUR = datetime.fromtimestamp(NOW + 3600, UTC)


def anthropic(what: str, reset: str) -> dict[str, str]:
    return {f"anthropic_ratelimit_{what}_remaining": "0", f"anthropic_ratelimit_{what}_reset": reset}


def asked(headers: dict[str, str], status: int = 429) -> float | None:
    return asked_by_headers({name.replace("_", "-"): value for name, value in headers.items()}, status=status, now=NOW)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": format_datetime(IN_AN_HOUR, usegmt=True)}, 3600),
        ({"retry_after": "3", "x_ratelimit_remaining": "0", "x_ratelimit_reset": "900"}, 3),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "6m0s"}, 360),
        ({"X_RateLimit_Remaining_Tokens": "0", "X_RateLimit_Reset_Tokens": "1h2m3.5s"}, 3723.5),
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "20ms"}, 0.02),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(NOW + 60)}, 60),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(int(NOW + 60) * 1000)}, 60),
        ({"ratelimit_remaining": "0", "ratelimit_reset": "50"}, 50),
        (anthropic("tokens", IN_AN_HOUR.isoformat()), 3600),
        (anthropic("input_tokens", "2027-01-15T08:00:30Z"), 30),
        # The longest of those that are used up; one that is not used up is not the reason.
        (
            {
                "x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "1s",
                "x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "2m",
                "x_ratelimit_remaining_images": "9", "x_ratelimit_reset_images": "5h",
            },
            120,
        ),
    ],
)  # fmt: skip
def test_what_the_headers_say(headers: dict[str, str], seconds: float) -> None:
    assert asked(headers) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"retry_after": "nonsense"},
        {"retry_after": "inf"},
        {"x_ratelimit_reset_requests": "6m0s"},
        {"x_ratelimit_remaining_requests": "7", "x_ratelimit_reset_requests": "6m0s"},
        {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "soon"},
        {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": ""},
    ],
)
def test_headers_that_do_not_say(headers: dict[str, str]) -> None:
    assert asked(headers) is None


def test_limits_that_another_error_tells_of_are_not_its_reason() -> None:
    used_up = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "5h"}
    assert asked(used_up, 400) is None and asked(used_up, 500) is None
    assert asked({"retry_after": "9"}, 503) == 9


def limited(reset: str) -> Failure:
    error = RuntimeError("limit")
    error.status_code = 429  # type: ignore[attr-defined]
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset}
    error.response = SimpleNamespace(headers=headers)  # type: ignore[attr-defined]
    return failure_from(error)


def test_a_limit_that_is_renewed_in_over_15_minutes_is_a_quota() -> None:
    assert is_refusal(limited("15m0s"))
    assert not is_refusal(limited("15m1s")) and judge(limited("15m1s")).passes_by_itself


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("openai.RateLimitError", "openai.APIError"), "openai's quota"),
        (("pydantic_ai.exceptions.ModelHTTPError", "anthropic.RateLimitError"), "anthropic's quota"),
        (("botocore.exceptions.ClientError",), "aws's quota"),
        (("agentrun.errors.Stop",), "the night is over"),
        (("httpx.HTTPStatusError",), "the server's quota"),
    ],
)
def test_whose_quota_it_is(types: tuple[str, ...], words: str) -> None:
    assert whose_quota(Failure("exception", "the night is over", types=types)) == words
