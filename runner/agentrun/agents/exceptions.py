"""From an exception to the facts of a Failure, gathered where it was raised.

An exception is the user's object: reading its attributes, even its text, may run any code. Nothing here raises.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from agentrun.agents.attempt import Outcome
from agentrun.agents.failure import Failure, Place
from agentrun.agents.servers import unreached_server
from agentrun.agents.waits import asked_by_headers
from agentrun.errors import AgentSignal, Retry, Skip, Stop
from agentrun.system.shortage import SHORTAGE, lacking, lacking_in_process
from agentrun.values.json import NotJson

MESSAGE_LIMIT = 4 * 1024
TRACEBACK_LIMIT = 16 * 1024
CODE_LIMIT = 200
_DEEPEST_CAUSE = 10
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Also those of other environments: a record may be read on another machine.
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3\.\d+)[/\\]")
_T = TypeVar("_T")


def outcome_from(error: BaseException) -> Outcome:
    """The outcome of an attempt that raised `error`."""
    return Outcome("skipped" if isinstance(error, Skip) else "failed", failure=failure_from(error))


def outcome_without_start(error: Exception, what: str) -> Outcome | None:
    """The outcome of an attempt for which there was no descriptor, process, thread or memory; None for other errors."""
    lack = lacking(error)
    if lack is None:
        return None
    return Outcome("failed", failure=Failure("exception", f"{what} cannot be started: {lack}", code=SHORTAGE))


def failure_from(error: BaseException) -> Failure:
    """The facts about an exception."""
    trace = _try(lambda: user_traceback(error), "")
    error, others = _leaf(error)
    if isinstance(error, NotJson):
        return Failure("output", _clip(str(error), MESSAGE_LIMIT))
    message = _message(error)
    if others:
        message = f"{message} (and {others} more)"
    if (lack := _try(lambda: lacking_in_process(error), None)) is not None:
        message = f"{message} ({lack})"
    source = _try(lambda: _with_status(error), error)
    types = list(dict.fromkeys([*_type_names(type(error)), *_type_names(type(source))]))
    status, asked = _try(lambda: _status(source), None), _try(lambda: _retry_after(source), None)
    return Failure(
        "exception",
        message,
        types=tuple(types),
        traceback=trace,
        raised=_try(lambda: _raised_at(error), None),
        status=status,
        code=SHORTAGE if lack is not None else _try(lambda: _clip(_code(source), 200), ""),
        retry_after_seconds=asked,
        server=_unreached(error, status, asked),
        resume_at=_try(lambda: _time_text(error.resume_at), None) if isinstance(error, Stop) else None,
    )


def user_traceback(error: BaseException) -> str:
    """The traceback with the user's frames and the causes, without our frames and importlib's."""
    from traceback import TracebackException

    whole = TracebackException.from_exception(error)
    for part in _parts(whole):
        if part.stack is not None:
            part.stack[:] = [frame for frame in part.stack if not _is_ours(frame.filename)]
            if not part.stack:
                part.stack = None  # no header without frames
    text = "".join(whole.format())
    if len(text) > TRACEBACK_LIMIT:
        head = TRACEBACK_LIMIT // 4
        text = f"{text[:head]}\n  […]\n{text[head - TRACEBACK_LIMIT :]}"
    return _unicode(text)


def is_library(filename: str) -> bool:
    """Whether a file is agentrun's, the standard library's or an installed package's, and so not the user's own."""
    return filename.startswith(("<", _OURS, _STANDARD)) or _INSTALLED.search(filename) is not None


def _raised_at(error: BaseException) -> Place | None:
    """The last of the user's own lines that the exception passed through; else one that caused it did."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST_CAUSE):
        if cause is None:
            break
        if (place := _last_own_line(cause)) is not None:
            return place
        cause = cause.__cause__ or cause.__context__
    return None


def _last_own_line(error: BaseException) -> Place | None:
    from linecache import getline
    from traceback import walk_tb

    own = [(frame, line) for frame, line in walk_tb(error.__traceback__) if not is_library(frame.f_code.co_filename)]
    if not own:
        return None
    frame, line = own[-1]
    name = frame.f_code.co_name
    return Place(
        _unicode(frame.f_code.co_filename),
        line,
        "" if name == "<module>" else _unicode(name),
        _clip(getline(frame.f_code.co_filename, line, frame.f_globals).strip(), CODE_LIMIT),
    )


def _parts(whole: Any) -> Iterator[Any]:
    todo, seen = [whole], set()
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OURS, "<frozen "))


def _leaf(error: BaseException) -> tuple[BaseException, int]:
    """The exception that stands for a group of exceptions, and how many others are in the group."""
    leaves: list[BaseException] = []
    todo = [error]
    while todo:
        part = todo.pop()
        if isinstance(part, BaseExceptionGroup):
            todo += reversed(part.exceptions)
        else:
            leaves.append(part)
    if not leaves:
        return error, 0
    signals = [leaf for leaf in leaves if isinstance(leaf, AgentSignal)]
    return (signals or leaves)[0], len(leaves) - 1


def _unreached(error: BaseException, status: int | None, asked: float | None) -> str:
    if isinstance(error, AgentSignal):
        return ""
    return _try(lambda: _unicode(unreached_server(error, status=status, asked_wait=asked)), "")


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        code = "" if error.code is None else _try(lambda: repr(error.code), "…")
        return _clip(f"the agent called sys.exit({code})", 200)
    text = _try(lambda: str(error), None)
    if text is None:
        text = f"(its text cannot be read: {type(error).__name__}.__str__ fails)"
    return _clip(text, MESSAGE_LIMIT)


def _type_names(cls: type) -> tuple[str, ...]:
    return _try(lambda: tuple(_unicode(f"{c.__module__}.{c.__qualname__}") for c in cls.__mro__ if c is not object), ())


def _with_status(error: BaseException) -> BaseException:
    """The exception with the server's answer: this one, or the nearest with a status that it was raised `from`.

    Its context does not count: an error raised while another was handled need not be caused by that one.
    """
    if isinstance(error, AgentSignal):
        return error
    cause: BaseException | None = error
    for _ in range(_DEEPEST_CAUSE):
        if cause is None:
            break
        if _try(partial(_status, cause), None) is not None:
            return cause
        cause = cause.__cause__
    return error


def _status(error: BaseException) -> int | None:
    if isinstance(error, SystemExit):
        return None
    response = _read(error, "response")
    found = [_read(error, "status_code"), _read(error, "status"), _read(response, "status_code")]
    found += [_read(response, "status"), _read(error, "code")]
    found.append(_read(_read(response, "ResponseMetadata"), "HTTPStatusCode"))  # boto
    for value in found:
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def _code(error: BaseException) -> str:
    body = _read(error, "body")
    inner = _read(body, "error")
    found = [_read(error, "code"), _read(error, "provider_error_code"), _read(inner, "code"), _read(inner, "type")]
    found += [_read(body, "code"), _read(body, "type"), _read(error, "provider_error_type"), _read(error, "status")]
    found.append(_read(_read(_read(error, "response"), "Error"), "Code"))  # boto
    return next((value for value in found if isinstance(value, str) and value), "")


def _retry_after(error: BaseException) -> float | None:
    if isinstance(error, Retry):
        return _seconds(error.after)
    headers = _read(_read(error, "response"), "headers") or _read(error, "headers")
    attribute = _read(error, "retry_after")
    otherwise = _seconds(attribute) if isinstance(attribute, int | float) else None
    if headers is None or not callable(getattr(headers, "items", None)):
        return otherwise
    asked = _try(lambda: asked_by_headers(headers, status=_status(error), now=time.time()), None)
    return asked if asked is not None else otherwise


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    seconds = float(value)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _time_text(value: Any) -> str | None:
    from datetime import UTC, datetime, timedelta

    if value is None:
        return None
    if isinstance(value, timedelta):
        value = datetime.now(UTC) + value
    elif isinstance(value, int | float):
        value = datetime.fromtimestamp(value, UTC)
    if isinstance(value, datetime):
        return value.astimezone().isoformat(timespec="seconds")
    return _clip(str(value), 100)


def _read(value: Any, name: str) -> Any:
    """An attribute, or a mapping's entry; None if there is none."""
    if value is None:
        return None
    if isinstance(value, dict):
        return value.get(name)
    return _try(lambda: getattr(value, name, None), None)


def _try(read: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return read()
    except Exception:
        return otherwise


def _clip(text: str, limit: int) -> str:
    text = _unicode(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _unicode(text: str) -> str:
    """Text that JSON can hold: lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
