"""The facts about a failed attempt, and one pure function that judges them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agentrun.agents.crossing import Crossing
from agentrun.system.shortage import SHORTAGE

THREAD_TIMEOUT = "thread-timeout"
"""The code of a timeout in a thread, which cannot be killed: another attempt would be a second live one."""
EMPTY = "empty"
"""The code of an output that is empty where that counts as a failure."""
HOST_LOST, ENGINE_LOST = "host_lost", "engine_lost"
"""The codes of attempts that were lost with a machine of a cluster, or with the cluster itself."""
ITEM_BUDGET = "item-budget"
"""The code of an item that used more than it may."""
Origin = Literal["exception", "program", "timeout", "lost", "output", "person"]
Verdict = Literal["transient", "item", "everyone", "skip"]


class Place(Crossing, frozen=True, omit_defaults=True):
    """A line of somebody's code."""

    file: str
    line: int
    function: str = ""
    code: str = ""
    """The line itself, without its indent."""

    def __str__(self) -> str:
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{name}:{self.line}" + (f", in {self.function}" if self.function else "")


class Failure(Crossing, frozen=True, omit_defaults=True):
    """The facts about one failed attempt. Records keep it, and it crosses processes, as JSON without empty fields."""

    origin: Origin
    message: str = ""
    types: tuple[str, ...] = ()
    """Qualified names of the exception's class and its bases, nearest first."""
    traceback: str = ""
    status: int | None = None
    code: str = ""
    retry_after_seconds: float | None = None
    exit_code: int | None = None
    resume_at: str | None = None
    raised: Place | None = None
    """The last line of the user's own code that it passed through; None if it passed through none."""
    server: str = ""
    """Host and port of the server, if none could be reached there, or it answered 503 and did not say for how long."""

    @property
    def cause(self) -> str:
        """One line for people: the kind of error and its message."""
        if self.origin == "exception" and self.types:
            name = self.types[0].rpartition(".")[2]
            return f"{name}: {self.message}" if self.message else name
        return self.message


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a failure means for its attempt, its item, and the run."""

    verdict: Verdict
    passes_by_itself: bool = False
    """For `everyone`: whether waiting helps (exit 75), or a person must act (exit 4)."""
    most_attempts: int | None = None
    """A limit below the job's own, or None."""


_SIGNALS: dict[str, Judgement] = {
    "agentrun.errors.Retry": Judgement("transient"),
    "agentrun.errors.Fail": Judgement("item"),
    "agentrun.errors.Skip": Judgement("skip"),
    # A worker could not load the agent, although the runner could: no item can be run.
    "agentrun.errors.AgentError": Judgement("everyone"),
}
# Not ValueError, KeyError and IndexError: a model's odd reply raises those, and the next reply may be right.
_PROGRAMMING = frozenset(
    f"builtins.{name}"
    for name in [
        "AssertionError",
        "AttributeError",
        "ImportError",
        "NameError",
        "NotImplementedError",
        "RecursionError",
        "SyntaxError",
        "SystemExit",
        "TypeError",
        "ZeroDivisionError",
    ]
)
_TRANSIENT_STATUS = frozenset({408, 425, 429})
_MODEL_SDKS = (
    "openai",
    "anthropic",
    "google",
    "mistralai",
    "cohere",
    "groq",
    "litellm",
    "pydantic_ai",
    "boto",
)
_EVERYONES_STATUS = frozenset({401, 402, 403})
# pydantic-ai knows the providers' own codes: some report a bad key as 400, or a refused text as 403.
_EVERYONES_TYPES = frozenset(
    f"pydantic_ai.exceptions.{name}"
    for name in ["ModelAuthenticationError", "ModelNotFoundError", "ModelQuotaExceededError"]
)
# Another attempt of the same item would raise them again: the agent is made wrongly, or the item is too much for it.
_ITEMS_TYPES = frozenset(
    [
        *(f"pydantic_ai.exceptions.{name}" for name in ["UserError", "UsageLimitExceeded"]),
        *(
            f"agents.exceptions.{name}"
            for name in [
                "UserError",
                "MaxTurnsExceeded",
                "ModelBehaviorError",
                "ModelRefusalError",
                "InputGuardrailTripwireTriggered",
                "OutputGuardrailTripwireTriggered",
                "ToolInputGuardrailTripwireTriggered",
                "ToolOutputGuardrailTripwireTriggered",
            ]
        ),
        *(f"langgraph.errors.{name}" for name in ["InvalidUpdateError", "GraphRecursionError"]),
    ]
)
_REJECTED_TYPE = "pydantic_ai.exceptions.ModelRequestRejectedError"
# By code or by text, whatever the status: providers report a spent quota as 400, 402, 403 or 429.
_SPENT = re.compile(
    r"insufficient[ _]quota|exceeded your current quota|credit balance is too low|billing[ _]hard[ _]limit"
    r"|quota[ _]?exceeded|insufficient[ _](credits?|funds|balance)|out of credits|payment required"
    r"|credit_balance_exhausted|(spend|usage)_limit_exceeded|billing_not_active",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient[ _](quota|credits?|funds|balance)|credit|billing|payment", re.IGNORECASE)
# Of one request, which no waiting makes smaller.
_TOO_LARGE = re.compile(r"request too large|tokens? per request|reduce the (length|size)", re.IGNORECASE)
_TRY_AGAIN_IN = re.compile(r"(?:retry|try again) (?:in|after) (\d+(?:\.\d+)?) ?(ms|s|m|h)", re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_WAIT_SECONDS = 15 * 60.0
"""The longest wait between two attempts; if a server asks for more, the run stops and can be resumed."""
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|model(?:[^.\n]|\.(?=\S)){0,80}?(does not exist|not found|not supported|is not available)"
    r"|(unknown|invalid) model",
    re.IGNORECASE,
)


def asked_wait(failure: Failure) -> float | None:
    """How many seconds the server asks to wait, in a header or in its message; None if it does not."""
    if failure.retry_after_seconds is not None:
        return failure.retry_after_seconds
    if failure.status == 429 and (found := _TRY_AGAIN_IN.search(failure.message)):
        return float(found[1]) * _UNIT_SECONDS[found[2].lower()]
    return None


def is_refusal(failure: Failure) -> bool:
    """Whether a server refused the attempt because of how much it is asked: that says nothing about the item."""
    if failure.origin == "timeout" or judge(failure).verdict != "transient":
        return False
    if failure.status == 503:
        return asked_wait(failure) is not None
    return failure.status in (429, 529) and not _TOO_LARGE.search(_words(failure))


def is_overload(failure: Failure) -> bool:
    """Of a refusal: whether too much was in flight, not too much in a time."""
    return failure.status != 429


def judge(failure: Failure) -> Judgement:
    """Whether a failure is transient, the item's own, or everyone's; or means that the item is skipped."""
    if failure.code in (SHORTAGE, ENGINE_LOST):
        return Judgement("everyone", passes_by_itself=True)
    if failure.code == THREAD_TIMEOUT:
        return Judgement("item")
    if failure.origin in ("timeout", "lost"):
        return Judgement("transient", most_attempts=2)
    if failure.origin == "output":
        # A model's next reply may not be empty; what JSON cannot hold is the agent's doing.
        return Judgement("transient" if failure.code == EMPTY else "item")
    if failure.origin == "program":
        return _judge_program(failure)
    for name in failure.types:
        if name == "agentrun.errors.Stop":
            return Judgement("everyone", passes_by_itself=failure.resume_at is not None)
        if name in _SIGNALS:
            return _SIGNALS[name]
    wait = asked_wait(failure)
    if failure.status is not None and wait is not None and wait > LONGEST_WAIT_SECONDS:
        return Judgement("everyone", passes_by_itself=True)
    if _is_from_model_sdk(failure) and _is_everyones(failure):
        # Some providers call a limit per minute a quota, too, but say when to retry.
        is_limit = failure.status == 429 and wait is not None and not _NO_CREDIT.search(_words(failure))
        return Judgement("transient" if is_limit else "everyone")
    if failure.status == 429 and _TOO_LARGE.search(_words(failure)):
        return Judgement("item")
    if failure.status is not None:
        transient = failure.status in _TRANSIENT_STATUS or failure.status >= 500
        return Judgement("transient" if transient else "item")
    if _ITEMS_TYPES.intersection(failure.types):
        return Judgement("item")
    # A library's connection error may inherit from a programming error; so connection errors are checked first.
    if any(_is_connection_error(name) for name in failure.types):
        return Judgement("transient")
    if any(name in _PROGRAMMING for name in failure.types):
        return Judgement("item")
    return Judgement("transient")


def _judge_program(failure: Failure) -> Judgement:
    match failure.exit_code:
        case 65:
            return Judgement("item")
        case 77:
            return Judgement("skip")
        case 126 | 127:
            return Judgement("everyone")
        case _:
            return Judgement("transient")


def _is_from_model_sdk(failure: Failure) -> bool:
    return any(name.split(".", 1)[0].startswith(_MODEL_SDKS) for name in failure.types)


def _words(failure: Failure) -> str:
    return f"{failure.code} {failure.message}"


def _is_everyones(failure: Failure) -> bool:
    words = _words(failure)
    if _SPENT.search(words) or _EVERYONES_TYPES.intersection(failure.types):
        return True
    if failure.status in _EVERYONES_STATUS:
        return _REJECTED_TYPE not in failure.types
    return failure.status in (400, 404) and bool(_UNKNOWN_MODEL.search(words))


def _is_connection_error(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last in ("ConnectionError", "TimeoutError") or last.endswith(
        (
            "ConnectionError",
            "ConnectError",
            "ConnectTimeout",
            "ReadTimeout",
            "APITimeoutError",
            "RemoteProtocolError",
        )
    )
