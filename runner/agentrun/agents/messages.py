"""The messages of the channel, and the replies to them; `agents/attempt.py` has the words and the table.

A message that exists is well-formed: making one from bad values raises ValueError, which says what is wrong.
`as_json` gives the form that crosses to workers and programs; `read_message` and `read_reply` read it back. A reply
crosses with the address of its message, see `reply_to`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict, force_setattr

from agentrun.agents.crossing import Crossing
from agentrun.money.usage import Reported
from agentrun.values.json import encode

QUESTION_LIMIT_BYTES = 1024 * 1024
STEP_LIMIT_BYTES = 16 * 1024 * 1024
"""The longest result of a step, as JSON."""
NAME_LIMIT_BYTES = 1024
REQUEST_LIMIT = 64


# ---- messages, from the agent end


class Message(Crossing, tag_field="type", tag="", frozen=True, kw_only=True):
    """What an agent end sends. Its address is filled in by whoever sends it."""

    id: str = ""
    """The attempt's."""
    no: int = 0
    """Which message of the attempt it is, counted from 1."""

    def address(self, attempt_id: str, no: int) -> None:
        """Fill in the address of a message that has not been sent yet."""
        force_setattr(self, "id", attempt_id)
        force_setattr(self, "no", no)


class Log(Message, tag="log", frozen=True):
    """A line for the item's log."""

    text: str


class Progress(Message, tag="progress", frozen=True):
    """What the attempt is doing now, for people who watch."""

    text: str


class Warn(Message, tag="warn", frozen=True):
    """Something that everybody who watches the run should know. The same text is shown once per launch."""

    text: str


class Carry(Message, tag="carry", frozen=True):
    """The value that the next item gets; it counts if this item is settled."""

    value: Any


class StepGet(Message, tag="step_get", frozen=True, omit_defaults=True):
    """Is the result of this step known? The reply is a KnownStep."""

    name: str
    request: str | None = None
    """A digest of what the step is given, for a step that its name identifies, wherever it stands among the others."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.request is not None and (not isinstance(self.request, str) or len(self.request) > REQUEST_LIMIT):
            raise ValueError(f"the request of step {self.name!r} must be text of at most {REQUEST_LIMIT} characters")


class StepPut(Message, tag="step_put", frozen=True, omit_defaults=True):
    """Remember a step's result; the reply comes when it is on disk."""

    name: str
    n: int
    """The number that the reply to StepGet gave."""
    output: str
    """The result, as JSON text."""
    seconds: float = 0.0
    view: str = ""
    """The result in a few words, for people; empty where the result itself can be read."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.n, int) or not isinstance(self.output, str):
            raise ValueError(f"step_put of {self.name!r} needs n, as step_get gave it, and output, which is JSON text")


class EntriesGet(Message, tag="entries_get", frozen=True):
    """What was added under this name, in order? The reply is KnownEntries."""

    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)


class EntryAdd(Message, tag="entry_add", frozen=True, omit_defaults=True):
    """Add an entry to those of a name; the reply comes when it is on disk, and after those of all entries before it."""

    name: str
    output: str
    """The entry, as JSON text."""
    view: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.output, str):
            raise ValueError(f"entry_add of {self.name!r} needs output, which is JSON text")


class Ask(Message, tag="ask", frozen=True, omit_defaults=True):
    """A question to a person. The reply is Answered, or Park: the attempt must then end."""

    question: str
    details: Mapping[str, Any]
    key: str = ""
    """What the answer is matched by; if empty, the words of the question and how often they were asked."""

    def __post_init__(self) -> None:
        text, details = self.question, self.details
        if not isinstance(self.key, str) or len(self.key.encode("utf-8", "replace")) > NAME_LIMIT_BYTES:
            raise ValueError(f"the key of a question must be text of at most {NAME_LIMIT_BYTES} bytes")
        if not isinstance(text, str) or not text.strip() or not isinstance(details, dict):
            raise ValueError("a question must be text that is not blank, and its details an object with names")
        if len(encode({"text": text, "details": details}, name="the question")) > QUESTION_LIMIT_BYTES:
            most = QUESTION_LIMIT_BYTES // 1024 // 1024
            raise ValueError(
                f"the question {text[:60]!r} and its details are over {most} MiB; put them in a file, and name it"
            )


class Used(Message, tag="usage", frozen=True):
    """What calls of a model used, and what they cost if that is known. Its JSON form is flat."""

    reported: Reported

    def as_json(self) -> dict[str, Any]:
        return {"type": "usage", **asdict(self.reported), "id": self.id, "no": self.no}


def read_message(given: Mapping[str, Any]) -> Message:
    """The message in a JSON object, with its address if there is one; ValueError says what is wrong with it.

    Unknown fields are ignored.
    """
    message = _read_message(given)
    attempt_id, no = given.get("id"), given.get("no")
    if isinstance(attempt_id, str) and type(no) is int:
        message.address(attempt_id, no)
    return message


def _read_message(given: Mapping[str, Any]) -> Message:
    get: Callable[[str], Any] = given.get
    match get("type"):
        case "log":
            return Log(str(given.get("text", "")))
        case "progress":
            return Progress(str(given.get("text", "")))
        case "warn":
            return Warn(str(given.get("text", "")))
        case "carry":
            return Carry(get("value"))
        case "step_get":
            return StepGet(get("name"), get("request"))
        case "step_put":
            seconds = get("seconds")
            took = float(seconds) if _is_number(seconds) else 0.0
            return StepPut(get("name"), get("n"), get("output"), took, str(get("view") or ""))
        case "entries_get":
            return EntriesGet(get("name"))
        case "entry_add":
            return EntryAdd(get("name"), get("output"), str(get("view") or ""))
        case "ask":
            # `or`: some languages write an empty object as an empty list.
            return Ask(get("question"), get("details") or {}, get("key") or "")
        case "usage":
            return Used(Reported.read(given))
        case kind:
            raise ValueError(f"this runner does not know messages of type {kind!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def _check_name(name: object) -> None:
    # A record cannot hold a lone surrogate.
    encoded = name.encode("utf-8", "replace") if isinstance(name, str) else b""
    if not 0 < len(encoded) <= NAME_LIMIT_BYTES or encoded.decode() != name:
        raise ValueError(
            f"a step's name is {str(name)[:60]!r}; it must be Unicode text of 1 to {NAME_LIMIT_BYTES} bytes"
        )


# ---- replies, from the runner end


class Reply(Crossing, frozen=True):
    """What the runner end answers."""


class Received(Reply, frozen=True):
    """The message was taken, and there is nothing to say about it."""


class KnownStep(Reply, frozen=True, omit_defaults=True):
    """The reply to StepGet."""

    n: int
    """How often the attempt asked for this name before."""
    found: bool
    output: str | None = None
    """The result as JSON text, if it was found."""


class KnownEntries(Reply, frozen=True):
    """The reply to EntriesGet."""

    entries: list[str]
    """Each as JSON text, oldest first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """True if the person said yes. `answer["draft"]` is that detail of the question, as the person edited it."""

    yes: bool
    text: str = ""
    """The person's comment."""
    by: str = ""
    at: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.yes

    def __getitem__(self, name: str) -> Any:
        return self.details[name]


class Answered(Reply, frozen=True):
    """A person's answer."""

    answer: Answer


class Park(Reply, frozen=True):
    """There is no answer yet: the attempt must end with the outcome `waiting`."""

    park: bool = True


class Refused(Reply, frozen=True):
    """Something is wrong with the message, or the attempt is over."""

    error: str


class Stray(Refused, frozen=True):
    """The message is another attempt's, or not the next one of its own: whoever sent it must end, and so must the
    attempt."""


def reply_to(attempt_id: str, no: object, reply: Reply) -> dict[str, Any]:
    """The JSON form of the reply to a message of this address."""
    return {"id": attempt_id, "no": no, **reply.as_json()}


def read_reply(given: Mapping[str, Any]) -> Reply:
    """The reply in a JSON object."""
    if "error" in given:
        return Refused(given["error"])
    if "found" in given:
        return KnownStep(given["n"], given["found"], given.get("output"))
    if "entries" in given:
        return KnownEntries(given["entries"])
    if "answer" in given:
        return Answered(Answer(**given["answer"]))
    return Park() if given.get("park") else Received()
