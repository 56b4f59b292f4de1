"""An exception is taken down as facts, whatever kind of object it is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

import agentrun.errors as errors
from agentrun.agents.exceptions import MESSAGE_LIMIT, TRACEBACK_LIMIT, failure_from, outcome_from
from agentrun.agents.failure import Failure, Place
from agentrun.values.json import encode


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class ApiError(Exception):
    """As model SDKs make them."""

    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


def test_the_classes_are_named_along_the_mro() -> None:
    class Odd(ConnectionError):
        pass

    types = failure_from(Odd("x")).types
    assert types[0].endswith("Odd")
    assert types[1:] == (
        "builtins.ConnectionError",
        "builtins.OSError",
        "builtins.Exception",
        "builtins.BaseException",
    )


@pytest.mark.parametrize(
    ("attributes", "status"),
    [
        ({"status_code": 429}, 429),
        ({"status": 503}, 503),
        ({"response": SimpleNamespace(status_code=401)}, 401),
        ({"code": 404}, 404),
        ({"response": {"ResponseMetadata": {"HTTPStatusCode": 400}}}, 400),
        ({"code": "insufficient_quota"}, None),
        ({"status_code": True}, None),
        ({"code": 7}, None),
    ],
)
def test_the_http_status_is_found(attributes: dict[str, Any], status: int | None) -> None:
    assert failure_from(ApiError("x", **attributes)).status == status


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"code": "insufficient_quota"}, "insufficient_quota"),
        ({"body": {"error": {"code": "model_not_found"}}}, "model_not_found"),
        ({"body": {"error": {"type": "authentication_error"}}}, "authentication_error"),
        ({"body": {"type": "billing_hard_limit", "code": None}}, "billing_hard_limit"),
        ({"response": {"Error": {"Code": "ThrottlingException"}}}, "ThrottlingException"),
        ({"body": "not a mapping"}, ""),
    ],
)
def test_the_providers_code_is_found(attributes: dict[str, Any], code: str) -> None:
    assert failure_from(ApiError("x", **attributes)).code == code


def test_retry_after_is_seconds_milliseconds_or_a_date() -> None:
    def after(**headers: str) -> float | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return failure_from(ApiError("x", response=SimpleNamespace(headers=named))).retry_after_seconds

    assert after(retry_after="7") == 7
    assert after(retry_after_ms="1500", retry_after="2") == 1.5
    assert after(retry_after="nonsense") is None
    assert after(retry_after="inf") is None
    in_a_minute = after(retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert in_a_minute is not None and 50 < in_a_minute <= 60
    assert failure_from(errors.Retry("later", after=12)).retry_after_seconds == 12


def test_stop_says_when_it_passes() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    for given in (moment, moment.timestamp(), moment.isoformat()):
        text = failure_from(errors.Stop("quota", resume_at=given)).resume_at
        assert text is not None and datetime.fromisoformat(text) == moment
    assert failure_from(errors.Stop("key")).resume_at is None


def test_skip_is_an_outcome_of_its_own() -> None:
    outcome = outcome_from(errors.Skip("empty"))
    assert outcome.kind == "skipped"
    assert outcome.failure is not None and outcome.failure.message == "empty"
    assert outcome_from(ValueError()).kind == "failed"


def test_what_json_cannot_hold_is_a_fault_of_the_output() -> None:
    with pytest.raises(ValueError) as caught:
        encode({"scores": [1.0, float("nan")]})
    failure = failure_from(caught.value)
    assert failure.origin == "output"
    assert "output.scores[1]" in failure.message


def test_sys_exit_is_told_in_words() -> None:
    assert failure_from(SystemExit(2)).message == "the agent called sys.exit(2)"
    assert failure_from(SystemExit()).message == "the agent called sys.exit()"
    assert failure_from(SystemExit(404)).status is None
    assert failure_from(asyncio.CancelledError()).origin == "exception"


def test_a_group_is_about_its_first_exception_or_what_the_agent_said() -> None:
    group = ExceptionGroup("g", [ValueError("one"), ExceptionGroup("h", [errors.Fail("poison")])])
    failure = failure_from(raised(group))
    assert failure.types[0] == "agentrun.errors.Fail"
    assert failure.message == "poison (and 1 more)"
    assert failure_from(ExceptionGroup("g", [KeyError("k")])).types[0] == "builtins.KeyError"


def test_the_traceback_has_the_users_frames_and_causes_and_none_of_ours() -> None:
    def users_code() -> None:
        try:
            encode({1: 2})  # a frame of ours, inside theirs
        except ValueError as error:
            raise RuntimeError("outer") from error

    try:
        users_code()
    except RuntimeError as error:
        trace = failure_from(error).traceback
    assert "users_code" in trace and "test_exceptions.py" in trace
    assert "direct cause" in trace and "RuntimeError: outer" in trace
    assert "jsontext.py" not in trace


def test_long_texts_are_cut_and_surrogates_spelled_out() -> None:
    failure = failure_from(raised(ValueError("x" * 100_000 + "\ud800")))
    assert len(failure.message) == MESSAGE_LIMIT
    assert len(failure.traceback) < TRACEBACK_LIMIT + 100
    odd = failure_from(ValueError("\ud800"))
    assert odd.message == "\\ud800"
    assert Failure.from_json(orjson.loads(orjson.dumps(odd.as_json()))) == odd


def test_an_exception_that_resists_is_still_told() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name}")

        __repr__ = __str__

    failure = failure_from(raised(Hostile()))
    assert failure.types[0].endswith("Hostile")
    assert "cannot be read" in failure.message


def test_what_the_other_side_answered_is_found_in_the_causes() -> None:
    try:
        try:
            raise ApiError("slow down", status_code=429, code="limit", headers={"retry-after": "7"})
        except ApiError as error:
            raise KeyError("summary") from error
    except KeyError as error:
        failure = failure_from(error)
    assert (failure.status, failure.code, failure.retry_after_seconds) == (429, "limit", 7.0)
    assert failure.cause == "KeyError: 'summary'"
    assert "builtins.KeyError" in failure.types and failure.types[-1].endswith("ApiError")


def test_what_failed_beside_another_error_is_not_because_of_it() -> None:
    try:
        try:
            raise ApiError("slow down", status_code=429)
        except ApiError:
            dict[str, int]()["fallback"]
    except KeyError as error:
        failure = failure_from(error)
    assert failure.status is None


def test_a_signal_of_the_agent_says_all_itself() -> None:
    try:
        raise errors.Fail("poison") from ApiError("no", status_code=500)
    except errors.Fail as error:
        assert failure_from(error).status is None


def test_causes_that_go_round_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert failure_from(first).status is None


def test_a_wait_may_be_an_attribute() -> None:
    assert failure_from(ApiError("x", status_code=429, retry_after=3)).retry_after_seconds == 3.0
    assert failure_from(ApiError("x", headers={"x": "y"}, retry_after=3)).retry_after_seconds == 3.0
    assert failure_from(ApiError("x", headers={"retry-after": "5"}, retry_after=3)).retry_after_seconds == 5.0


def test_a_code_may_be_the_providers() -> None:
    assert failure_from(ApiError("x", provider_error_code="insufficient_quota")).code == "insufficient_quota"


# ---- the user's own line


def library(tmp_path: Path, text: str) -> Any:
    """A module as it would be installed."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "sdk.py").write_text(text)
    spec = spec_from_file_location("sdk", folder / "sdk.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line_of(text: str) -> int:
    """The line of this file that holds the text, which stands only there."""
    return next(n for n, line in enumerate(Path(__file__).read_text().split("\n"), 1) if line.strip() == text)


def test_the_line_that_is_noted_is_the_users_and_not_the_librarys(tmp_path: Path) -> None:
    sdk = library(tmp_path, "import json\ndef create():\n    return json.loads('{')\n")

    def triage() -> None:
        sdk.create()  # the model call

    with pytest.raises(ValueError) as caught:
        triage()
    found = failure_from(caught.value).raised
    line = "sdk.create()  # the model call"
    assert found == Place(__file__, line_of(line), "triage", line)
    assert Failure.from_json(orjson.loads(orjson.dumps(failure_from(caught.value).as_json()))).raised == found


def test_an_error_of_the_library_alone_names_the_users_line_that_caused_it(tmp_path: Path) -> None:
    sdk = library(tmp_path, "def create(work):\n    return work()\ndef make(cause):\n    raise OSError() from cause\n")

    def callback() -> None:
        raise LookupError("odd")  # in a callback

    def outside() -> BaseException:
        try:
            sdk.make(raised_by(callback))
        except OSError as error:
            error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
            return error
        raise AssertionError

    found = failure_from(outside()).raised
    assert found is not None and (found.function, found.code) == (
        "callback",
        'raise LookupError("odd")  # in a callback',
    )
    assert failure_from(ValueError("never raised")).raised is None


def raised_by(call: Any) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


def test_the_line_of_a_group_is_that_of_the_error_that_stands_for_it() -> None:
    async def fail() -> None:
        raise LookupError("in a task")  # grouped

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    found = failure_from(caught.value).raised
    assert found is not None and found.function == "fail" and found.code.endswith("# grouped")
