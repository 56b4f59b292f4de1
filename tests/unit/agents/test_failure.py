"""One pure function says what a failure means."""

from __future__ import annotations

from typing import Any

import pytest

import agentrun.errors as errors
from agentrun.agents.exceptions import failure_from
from agentrun.agents.failure import Failure, Place, Verdict, asked_wait, judge


def sdk_error(module: str, name: str, base: type[Exception] = Exception, **attributes: Any) -> Exception:
    """An exception such as the SDK of that name raises."""
    parent = type("APIError", (base,), {"__module__": module})
    error: Exception = type(name, (parent,), {"__module__": module})(attributes.pop("message", "an error"))
    error.__dict__.update(attributes)
    return error


EXCEPTIONS: list[tuple[Exception, Verdict]] = [
    (TimeoutError(), "transient"),
    (ConnectionResetError(), "transient"),
    (sdk_error("httpx", "ConnectError"), "transient"),
    (sdk_error("requests.exceptions", "ConnectionError", ValueError), "transient"),
    (errors.Retry("later"), "transient"),
    (RuntimeError("who knows"), "transient"),
    (ValueError("the model's reply was odd"), "transient"),
    (errors.Fail("poison"), "item"),
    (TypeError(), "item"),
    (NameError(), "item"),
    (ModuleNotFoundError(), "item"),
    (errors.Skip("empty"), "skip"),
    (errors.Stop("key"), "everyone"),
    (sdk_error("openai", "RateLimitError", status_code=429), "transient"),
    (sdk_error("openai", "InternalServerError", status_code=503), "transient"),
    (sdk_error("openai", "APITimeoutError"), "transient"),
    (sdk_error("openai", "BadRequestError", status_code=400, message="too long"), "item"),
    (sdk_error("openai", "AuthenticationError", status_code=401), "everyone"),
    (sdk_error("openai", "PermissionDeniedError", status_code=403), "everyone"),
    (sdk_error("openai", "RateLimitError", status_code=429, code="insufficient_quota"), "everyone"),
    (sdk_error("openai", "NotFoundError", status_code=404, code="model_not_found"), "everyone"),
    (
        sdk_error("anthropic", "BadRequestError", status_code=400, message="Your credit balance is too low"),
        "everyone",
    ),
    (sdk_error("anthropic", "AuthenticationError", status_code=401), "everyone"),
    (sdk_error("anthropic", "OverloadedError", status_code=529), "transient"),
    (
        sdk_error("openai", "NotFoundError", status_code=404, message='model "llama3.2" not found, pull it'),
        "everyone",
    ),
    (sdk_error("openai", "NotFoundError", status_code=404, message="The model is fine. File f-1 not found"), "item"),
    (sdk_error("openai", "RateLimitError", status_code=429, code="project_spend_limit_exceeded"), "everyone"),
    # A provider's own code, as pydantic-ai has read it: a bad key as 400; a text that is refused as 403.
    (sdk_error("pydantic_ai.exceptions", "ModelAuthenticationError", status_code=400), "everyone"),
    (sdk_error("pydantic_ai.exceptions", "ModelNotFoundError", status_code=404), "everyone"),
    (sdk_error("pydantic_ai.exceptions", "ModelQuotaExceededError", status_code=429), "everyone"),
    (sdk_error("pydantic_ai.exceptions", "ModelRequestRejectedError", status_code=403), "item"),
    (sdk_error("pydantic_ai.exceptions", "ModelRateLimitError", status_code=429), "transient"),
    (sdk_error("pydantic_ai.exceptions", "ModelConnectionError", RuntimeError), "transient"),
    # The same from a server that is not a model's is about that one item.
    (sdk_error("httpx", "HTTPStatusError", status_code=403), "item"),
    (sdk_error("requests.exceptions", "HTTPError", status_code=404), "item"),
    (sdk_error("requests.exceptions", "HTTPError", status_code=500), "transient"),
    (sdk_error("requests.exceptions", "HTTPError", status_code=408), "transient"),
]


@pytest.mark.parametrize(("error", "verdict"), EXCEPTIONS, ids=lambda value: getattr(value, "args", value))
def test_an_exception_is_transient_the_items_or_everyones(error: Exception, verdict: Verdict) -> None:
    assert judge(failure_from(error)).verdict == verdict


@pytest.mark.parametrize(
    ("exit_code", "verdict"),
    [
        (0, "transient"),  # its output was not JSON
        (1, "transient"),
        (75, "transient"),
        (-9, "transient"),
        (65, "item"),
        (77, "skip"),
        (126, "everyone"),
        (127, "everyone"),
    ],
)
def test_a_programs_exit_code_decides(exit_code: int, verdict: Verdict) -> None:
    assert judge(Failure("program", "x", exit_code=exit_code)).verdict == verdict


def test_timeouts_and_lost_workers_are_tried_twice_at_most() -> None:
    for failure in (Failure("timeout", "x"), Failure("lost", "x")):
        assert judge(failure).verdict == "transient"
        assert judge(failure).most_attempts == 2


def test_an_output_that_json_cannot_hold_is_the_items_own() -> None:
    assert judge(Failure("output", "x")).verdict == "item"


def test_stop_with_a_time_passes_by_itself() -> None:
    assert judge(failure_from(errors.Stop("quota", resume_at="2030-01-01T00:00:00+00:00"))).passes_by_itself
    assert not judge(failure_from(errors.Stop("key"))).passes_by_itself


def test_a_failure_is_the_same_after_json() -> None:
    failure = failure_from(sdk_error("openai", "RateLimitError", status_code=429, code="x"))
    assert Failure.from_json(failure.as_json()) == failure


def test_only_the_fields_that_say_something_are_written() -> None:
    assert Failure("lost", "").as_json() == {"origin": "lost"}
    full = Failure("exception", "m", ("a.B",), "t", 429, "c", 2.0, 1, "2026-01-01", Place("a.py", 3))
    assert list(full.as_json()) == [
        *("origin", "message", "types", "traceback", "status", "code"),
        *("retry_after_seconds", "exit_code", "resume_at", "raised"),
    ]
    assert full.as_json()["raised"] == {"file": "a.py", "line": 3}


def test_records_of_other_versions_load() -> None:
    assert Failure.from_json({"origin": "lost"}) == Failure("lost", "")
    assert Failure.from_json({"origin": "person", "message": "skipped by ada"}).cause == "skipped by ada"
    found = Failure.from_json({"origin": "program", "message": "m", "retry_after_seconds": 2, "of a later version": 1})
    assert found == Failure("program", "m", retry_after_seconds=2.0)


def test_the_cause_is_one_line_for_people() -> None:
    assert failure_from(KeyError("id")).cause == "KeyError: 'id'"
    assert failure_from(ValueError()).cause == "ValueError"
    assert Failure("program", "exit 3: no").cause == "exit 3: no"


PER_MINUTE = "You exceeded your current quota. limit: 10 per minute. Please retry in 33.2s."


def test_a_limit_per_minute_that_calls_itself_a_quota_is_waited_out() -> None:
    failure = failure_from(sdk_error("google.genai.errors", "ClientError", status_code=429, message=PER_MINUTE))
    assert judge(failure).verdict == "transient"
    assert asked_wait(failure) == 33.2


def test_a_spent_quota_stops_the_run_whatever_pause_is_asked_for() -> None:
    error = sdk_error("openai", "RateLimitError", status_code=429, code="insufficient_quota")
    failure = failure_from(error)
    asked = Failure.from_json({**failure.as_json(), "retry_after_seconds": 2.0})
    assert judge(asked).verdict == "everyone"
    assert not judge(asked).passes_by_itself


@pytest.mark.parametrize("module", ["openai", "httpx"])
def test_a_pause_of_hours_stops_the_run_which_can_be_resumed_then(module: str) -> None:
    failure = failure_from(sdk_error(module, "RateLimitError", status_code=429))
    asked = Failure.from_json({**failure.as_json(), "retry_after_seconds": 7200.0})
    assert judge(asked).verdict == "everyone"
    assert judge(asked).passes_by_itself
