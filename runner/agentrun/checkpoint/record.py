"""A record: what happened to one item, as one line of the journal.

    {"crc":"9ae0daaf","seq":7,"kind":"done","key":"documents/0001.txt","gen":0,…,"output":{…}}

The CRC covers the line from behind its own field to before the newline. `outputs` in a checkpoint holds the same bytes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from zlib import crc32

import orjson
from msgspec import Meta, Raw, Struct, ValidationError, convert
from msgspec.json import Decoder, Encoder

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.money.usage import Usage
from agentrun.values.json import is_empty

Kind = Literal["done", "failed", "skipped", "waiting", "step", "answer", "redo"]
BESIDE = frozenset({"step", "answer", "redo"})
"""The kinds that do not settle an item: what it remembers, what it was told, and that it starts over."""
Count = Annotated[int, Meta(ge=0)]
NOTHING = Raw()
"""The output of a record that has none."""


class Try(Struct, omit_defaults=True, kw_only=True):
    """One attempt of an item."""

    launch: int
    number: int
    at: float
    """When it began, in seconds since the epoch."""
    seconds: float
    usage: Usage | None = None
    cause: str = ""
    bounded: bool = False
    """It ended in a way that is retried only once, such as a timeout."""


class Question(Struct, omit_defaults=True, kw_only=True):
    """What an item asks a person."""

    n: Count = 1
    """The number of the question within its item and generation, from 1."""
    text: str = ""
    details: dict[str, Any] = {}
    at: str = ""
    key: str = ""
    """What its answer is matched by; if empty, the words."""


class Edited(Struct):
    """Who corrected an output by hand, and when."""

    by: str
    at: str


class PublishedFile(Struct, omit_defaults=True):
    """A file that an item left; `path` is relative to the folder of the results."""

    path: str
    size: int
    sha256: str
    mtime_ns: int = 0
    """The time of the published copy; 0 in older records. Not in the results: it differs from run to run."""

    @property
    def as_result(self) -> PublishedFile:
        """As a line of the results has it."""
        return PublishedFile(self.path, self.size, self.sha256)


class Record(Struct, omit_defaults=True, kw_only=True, rename={"as_": "as"}):
    """What happened to one item. Which fields are set depends on the kind; `output` is JSON text."""

    seq: Count = 0
    """The commit that wrote it; 0 before that."""
    kind: Kind
    key: str
    gen: Annotated[int, Meta(ge=0, le=2**31)]
    index: Annotated[int, Meta(ge=0, le=2**32 - 2)]
    hash: str
    agent: str
    """The fingerprint of the agent that made it."""
    run: Count = 0
    """The number of the run that made it; 0 in records of versions that did not number runs."""
    params: str = ""
    """A digest of the job's params; empty if there were none."""
    launch: Count
    at: float = 0.0
    seconds: float = 0.0
    stamp: Count = 0
    """For files: size and times as one number."""
    tries: list[Try] = []
    refused: Count = 0
    """How often a server refused it because of how much it was asked; no attempt was used up."""
    usage: Usage | None = None
    warning: str = ""
    error: Failure | None = None
    failed_launches: Count = 0
    """In how many launches the item failed, itself and the agent unchanged."""
    set_aside: bool = False
    """Only `redo` runs the item again."""
    question: Question | Count | None = None
    """Of a waiting item, its question; of an answer, the number of the question."""
    asked: str = ""
    """Of an answer: the question in words."""
    asked_key: str = ""
    """Of an answer: the key of the question, if it has one."""
    answer: Answer | None = None
    name: str = ""
    """Of a step."""
    n: Count = 0
    """Of a step: how often the attempt had asked for that name before."""
    no: int = -1
    """Of a step: which call of its attempt it was; -1 if its name alone identifies it."""
    request: str = ""
    """Of a step: a digest of what it was given."""
    view: str = ""
    """Of a step: its result in a few words, where the result itself is not for people."""
    by: str = ""
    id: str = ""
    """The message that it became of."""
    edited: Edited | None = None
    after: Count | None = None
    """With a carry: the seq of the record before this one."""
    as_: int | None = None
    """With a carry: the seq of the record in whose place this one stands."""
    carry: Any = None
    files: list[PublishedFile] = []
    output: Raw = NOTHING

    @property
    def has_output(self) -> bool:
        return self.output is not NOTHING

    @property
    def is_empty(self) -> bool:
        """Whether it is the result of an item that came to nothing: null, {}, [] or blank text, and no files."""
        return self.kind == "done" and not self.files and bool(is_empty(self.output))

    @property
    def value(self) -> Any:
        """The output itself; None without one."""
        return orjson.loads(bytes(self.output)) if self.has_output else None


class RecordError(ValueError):
    """A line is not a whole record."""


_PREFIX = b'{"crc":"'
_BODY_AT = len(_PREFIX) + 8 + 2
_HASH = re.compile(r"[0-9a-f]{16}")
_encode = Encoder().encode
_decode = Decoder(Record).decode


def encode_record(record: Record) -> bytes:
    """A line without its newline."""
    if b"\n" in bytes(record.output):
        record.output = Raw(orjson.dumps(record.value))
    body = _encode(record)[1:]
    return b'%b%08x",%b' % (_PREFIX, crc32(body), body)


def check_record(line: bytes) -> bool:
    """Whether the line is as it was written."""
    return line[:8] == _PREFIX and line[8:_BODY_AT] == b'%08x",' % crc32(line[_BODY_AT:])


def decode_record(line: bytes) -> Record:
    if not check_record(line):
        raise RecordError("the checksum does not match")
    try:
        return _decode(line)
    except (ValueError, RecursionError) as error:  # msgspec's own errors, and those of text that is not UTF-8
        raise RecordError(str(error)) from None


def json_of(line: bytes) -> bytes:
    """The JSON of the record itself, without its checksum."""
    return b"{" + line[_BODY_AT:]


def in_words(error: ValidationError) -> str:
    """`Expected ...  - at $.a.b` with the place first."""
    what, _, path = str(error).partition(" - at ")
    place = re.sub(r"^\$\.?", "", path.strip("`"))
    what = f"{what[:1].lower()}{what[1:]}"
    return f"{place} is wrong: {what}" if place else what


def seal_record(values: Any) -> bytes:
    """A record edited by hand, checked and given a new checksum."""
    if not isinstance(values, dict):
        raise RecordError(f"a record is {str(values)[:60]!r}; it is an object")
    named = f"the record of {values.get('key')!r}"
    raw = {**values, "output": Raw(orjson.dumps(values["output"]))} if "output" in values else values
    try:
        record = convert(raw, Record)
    except ValidationError as error:
        raise RecordError(f"{in_words(error)} in {named}; leave it as it was") from None
    if record.seq < 1:
        raise RecordError(f"seq is {record.seq} in {named}; leave it as it was")
    if not _HASH.fullmatch(record.hash):
        raise RecordError(f"hash is {record.hash!r} in {named}; leave it as it was")
    if record.kind in ("done", "step") and not record.has_output:
        raise RecordError(f"output is missing in {named}, which is {record.kind}; put one there")
    is_whole = {
        "step": bool(record.name),
        "waiting": not isinstance(record.question, int),
        "answer": isinstance(record.question, int) and record.answer is not None,
    }
    if not is_whole.get(record.kind, True):
        raise RecordError(f"{named} is no longer a whole {record.kind}; leave it as it was")
    return encode_record(record)
