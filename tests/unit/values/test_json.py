from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from agentrun.values.json import DEPTH_LIMIT, NotJson, decode, encode


class Answer(BaseModel):
    score: float
    names: list[str]


@dataclass
class Point:
    x: float | None


class Kind(Enum):
    NONE = None


class Level(Enum):
    HIGH = math.inf
    UNKNOWN = math.nan

    @classmethod
    def of(cls, value: float) -> Level:
        return cls.HIGH if math.isinf(value) else cls.UNKNOWN


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**64 - 1, 0.1, 1e300, "", "é\u2028\0", [], {}, {"a": [1, {"b": None}]}, nested(150)],
    ids=lambda value: ascii(value)[:20].replace("\\", ""),
)
def test_what_json_can_hold_comes_out_the_same(value: Any) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        (math.nan, "output", "nan"),
        ({"scores": [1, 2, {"x": math.inf}]}, "output.scores[2].x", "inf"),
        ([2**64], "output[0]", "beyond 64 bits"),
        (-(2**70), "output", "beyond 64 bits"),
        ({"a": {1, 2}}, "output.a", "is a set"),
        ({"a": b"bytes"}, "output.a", "is a bytes"),
        (["ok", "\udc80"], "output[1]", "lone surrogate"),
        ({"\udc80": 1}, "output", "key with a lone surrogate"),
        ({1: 2}, "output", "has the key 1"),
        (nested(DEPTH_LIMIT + 5), "output", "nested more than"),
        (nested(5000), "output", "nested more than"),
        ([nested(300), 1], "output", "nested more than"),
        (object(), "output", "is a object"),
    ],
    ids=lambda part: part if isinstance(part, str) and part.isascii() else "",
)
def test_what_it_cannot_is_refused_with_the_place(value: Any, path: str, what: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode(value)
    assert caught.value.path == path and what in str(caught.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJson, match="nested"):
        encode(value)


def test_none_beside_a_nan_is_told_apart() -> None:
    assert encode([None]) == b"[null]"
    with pytest.raises(NotJson, match=r"output\[1\] is nan"):
        encode([None, math.nan])


def test_models_and_dates_are_written_as_people_expect() -> None:
    assert decode(encode(Answer(score=0.5, names=["a"]))) == {"score": 0.5, "names": ["a"]}
    assert decode(encode([datetime(2026, 5, 4, tzinfo=UTC)])) == ["2026-05-04T00:00:00+00:00"]


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_nan_inside_a_model_is_not_made_null_silently(score: float) -> None:
    for value in (Answer(score=score, names=[]), Point(score), Level.of(score)):
        with pytest.raises(NotJson, match=r"output\.answer.* is (nan|inf)"):
            encode({"answer": value})
    assert decode(encode([Answer(score=1, names=["null"]), Point(None), Kind.NONE])) == [
        {"score": 1.0, "names": ["null"]},
        {"x": None},
        None,
    ]


def test_the_name_leads_the_path_and_the_error_crosses_processes() -> None:
    with pytest.raises(NotJson) as caught:
        encode({"a": math.nan}, name="ctx.carry")
    assert pickle.loads(pickle.dumps(caught.value)).path == "ctx.carry.a"
