"""Layers of values: the job file, the flags kept with the run, the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from agentrun.errors import JobError
from agentrun.job.tomltext import find_line
from agentrun.values.text import quoted

TOP = (
    "name", "agent", "command", "prompt", "model", "system", "schema", "structured", "base_url", "max_output_tokens",
    "temperature", "output", "report", "parse", "serve", "version", "isolation", "env_file", "needs_env", "carry",
    "params", "items", "run", "prices", "notify", "langgraph", "store", "engine",
)  # fmt: skip
ITEMS = ("files", "jsonl", "csv", "lines", "key", "exclude")
KINDS = ("files", "jsonl", "csv", "lines", "python")
RUN = (
    "concurrency", "timeout", "retries", "rate", "tokens", "allow_failures", "stop_after_failures", "grace", "max_wait",
    "crash_limit", "keep_changed", "budget", "token_budget", "max_age", "empty", "keep_logs", "adapt",
    "until", "max_time", "item_budget", "item_token_budget", "store_patience",
)  # fmt: skip
ONE_LAUNCH = ("until", "max_time")
"""Of those, the ones that are for one launch where they are given as flags."""
NOTIFY = ("on", "after", "urls", "command")
LANGGRAPH = ("output",)
ENGINE = ("on", "options", "adapt", "resources", "send", "lease")
PRICE = ("input", "output", "cached_input", "cache_write")
"""What is given for each model under `prices`; the first two always."""
AGENTS: dict[str, tuple[str, ...]] = {
    "agent": ("isolation",),
    "command": ("parse", "serve"),
    "prompt": ("model", "system", "schema", "structured", "base_url", "max_output_tokens", "temperature"),
}
"""The kinds of agent, each with the values that belong only to it, and are dropped when it is replaced."""
KEPT_LABEL = "kept with the run"
FLAGS_LABEL = "command line"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layer:
    """Values in the shape of a job file, and the label they have in messages. A value of None counts as not given."""

    label: str
    values: Mapping[str, Any] = field(default_factory=dict)
    text: str = field(default="", repr=False)
    """What they were read from, so that messages can name the line."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def merge(self, above: Layer) -> Layer:
        """Both layers in one, with this layer's label. Another kind of items or of agent replaces the one here."""
        merged = dict(self.values)
        for other in replaced_agents([name for name, value in above.values.items() if value is not None]):
            if other in merged:
                for name in (other, *AGENTS[other]):
                    merged.pop(name, None)
        for name, value in above.values.items():
            if value is None:
                continue
            if name == "items" and any(kind in value for kind in KINDS):
                merged[name] = dict(value)
            elif isinstance(value, Mapping):
                merged[name] = {**merged.get(name, {}), **{k: v for k, v in value.items() if v is not None}}
            else:
                merged[name] = value
        return Layer(self.label, merged)


class Value(NamedTuple):
    """One value: the label and the text of its layer, its dotted key, and the value found."""

    label: str
    key: str
    found: Any
    text: str = ""

    def refuse(self, why: str) -> JobError:
        return _error(Layer(self.label, text=self.text), self.key, f"{self.key} {why}")

    def wants(self, what: str) -> JobError:
        return self.refuse(f"is {quoted(self.found)}; {what}")


def _error(layer: Layer, key: str, message: str) -> JobError:
    """An error about the value of `key`, with its line where that is known."""
    line = find_line(layer.text, key) if layer.text else None
    place = f"{layer.label}: line {line}" if line is not None else layer.label
    return JobError(f"{place}: {message}", where=layer.label, key=key, line=line)


class Values:
    """The merged layers, strongest last, by dotted key."""

    def __init__(self, layers: Sequence[Layer], *, has_file: bool) -> None:
        self._values: dict[str, Value] = {}
        for number, layer in enumerate(layers):
            added = _flatten(layer, has_file=has_file)
            _check_alone(added, layer)
            self._merge(added, declared=self._values if has_file and number else None)

    def _merge(self, added: dict[str, Value], *, declared: Mapping[str, Value] | None) -> None:
        values = self._values
        kind = next((name for name in KINDS if f"items.{name}" in added), None)
        if kind is not None:
            values.pop("items.exclude", None)  # it belongs to the patterns that are replaced
        for name in KINDS if kind else ():
            if name != kind and f"items.{name}" in values:
                del values[f"items.{name}"]
                values.pop("items.key", None)
        if "engine.on" in added:
            for key in ("engine.options", "engine.adapt"):  # they belong to the cluster that is replaced
                values.pop(key, None)
        for other in replaced_agents(added):
            if other in values:
                for key in (other, *AGENTS[other]):
                    values.pop(key, None)
        for key, value in added.items():
            if key.startswith("params."):
                if declared is not None and key not in declared:
                    known = [one[7:] for one in declared if one.startswith("params.")]
                    near = nearest(key[7:], known) or "declare it there under [params], with a default"
                    raise value.refuse(f"is not a parameter of the job file; {near}")
                value = _like(values.get(key), value)
            values[key] = value

    def get(self, key: str) -> Value | None:
        return self._values.get(key)

    def below(self, table: str) -> dict[str, Value]:
        return {key[len(table) + 1 :]: one for key, one in self._values.items() if key.startswith(f"{table}.")}

    def text(self, key: str, what: str = "write text, in quotes") -> str | None:
        """Text that is not empty and has no NUL."""
        if (value := self.get(key)) is None:
            return None
        if not isinstance(value.found, str):
            raise value.wants(what)
        if not value.found.strip():
            raise value.refuse("is empty; leave it out, or give it a value")
        if "\0" in value.found:
            raise value.refuse("has a NUL character in it; leave that out")
        return value.found

    def texts(self, key: str, what: str) -> tuple[str, ...] | None:
        if (value := self.get(key)) is None:
            return None
        if not isinstance(value.found, list | tuple) or not all(isinstance(one, str) for one in value.found):
            raise value.wants(what)
        if any("\0" in one for one in value.found):
            raise value.refuse("has a NUL character in it; leave that out")
        return tuple(value.found)

    def text_or_texts(self, key: str, what: str) -> tuple[str, ...]:
        """One text or a list of them, none of which is empty; without the key, none."""
        if (value := self.get(key)) is None:
            return ()
        if isinstance(value.found, str):
            text = self.text(key, what)
            return (text,) if text is not None else ()
        texts = self.texts(key, what) or ()
        if not all(one.strip() for one in texts) or not texts:
            raise value.wants(what)
        return texts

    def choice(self, key: str, choices: Collection[T]) -> T | None:
        if (value := self.get(key)) is None:
            return None
        for choice in choices:
            if value.found == choice:
                return choice
        raise value.wants(f"write {' or '.join(quoted(one) for one in choices)}")

    def flag(self, key: str, *, default: bool = False) -> bool:
        if (value := self.get(key)) is None:
            return default
        if not isinstance(value.found, bool):
            raise value.wants("write true or false")
        return value.found

    def whole(self, key: str, default: int, *, least: int, zero: str = "") -> int:
        if (value := self.get(key)) is None:
            return default
        if isinstance(value.found, bool) or not isinstance(value.found, int) or value.found < least:
            raise value.wants(f"write a whole number, {least} or more{f' ({zero})' if zero else ''}")
        return value.found

    def whole_or_none(self, key: str, *, least: int) -> int | None:
        return None if self.get(key) is None else self.whole(key, least, least=least)

    def number(self, key: str, what: str, *, fits: Callable[[float], bool]) -> float | None:
        if (value := self.get(key)) is None:
            return None
        found = value.found
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or not fits(found):
            raise value.wants(what)
        return float(found)

    def parsed(self, key: str, parse: Callable[[Any], T], default: T) -> T:
        if (value := self.get(key)) is None:
            return default
        try:
            return parse(value.found)
        except ValueError as error:
            raise value.refuse(str(error)) from None


def replaced_agents(added: Collection[str]) -> list[str]:
    """The kinds of agent that the one in `added` replaces, if there is one."""
    return [name for name in AGENTS if name not in added] if any(name in added for name in AGENTS) else []


def _flatten(layer: Layer, *, has_file: bool) -> dict[str, Value]:
    label, text = layer.label, layer.text
    flat: dict[str, Value] = {}
    items = ITEMS if has_file else (*ITEMS, "python")
    tables: dict[str, tuple[str, ...] | None] = {
        "params": None, "items": items, "run": RUN, "prices": None, "notify": NOTIFY,
        "langgraph": LANGGRAPH, "engine": ENGINE,
    }  # fmt: skip
    for key, found in layer.values.items():
        _check_known(layer, key, key, TOP)
        if key not in tables:
            flat[key] = Value(label, key, found, text)
            continue
        if found is None:
            continue
        if not isinstance(found, Mapping):
            what = f"write a table: [{key}] on a line of its own, its values below it"
            whole = Value(label, key, found, text)
            # An address is a secret, and not quoted.
            raise whole.refuse(f"is not a table; {what}") if key == "notify" else whole.wants(what)
        for inner, value in found.items():
            dotted = f"{key}.{inner}"
            if (known := tables[key]) is not None:
                _check_known(layer, dotted, inner, known)
            flat[dotted] = Value(label, dotted, value, text)
    return {key: value for key, value in flat.items() if value.found is not None}


def _check_known(layer: Layer, dotted: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    if name in TOP and name != dotted:
        hint = "it belongs at the top, before any [table]"
    elif name in RUN and known is not RUN:
        hint = "it belongs under [run]"
    elif name in ITEMS and known is TOP:
        hint = "it belongs under [items]"
    else:
        below = {"run": RUN, "items": ITEMS} if known is TOP else {}
        others = (f"{near} (under [{table}])" for table, names in below.items() if (near := nearest(name, names)))
        hint = nearest(name, known) or next(others, None) or f"known here: {', '.join(known)}"
    raise _error(layer, dotted, f"{dotted} is not a known key; {hint}")


def _check_alone(added: Mapping[str, Value], layer: Layer) -> None:
    for names in (AGENTS, [f"items.{kind}" for kind in KINDS]):
        given = [name for name in names if name in added]
        if len(given) > 1:
            raise _error(layer, given[1], f"{given[0]} and {given[1]} are both given; give one of them")


def _like(weaker: Value | None, value: Value) -> Value:
    """The value of `--set` as the type in the job file: a number or a flag, where that has one."""
    if weaker is None or not isinstance(value.found, str):
        return value
    text, like = value.found.strip(), weaker.found
    try:
        if isinstance(like, bool):
            return value._replace(found={"true": True, "false": False}[text.lower()])
        if isinstance(like, int):
            return value._replace(found=int(text))
        if isinstance(like, float):
            number = float(text)
            if not math.isfinite(number):
                raise ValueError
            return value._replace(found=number)
    except (KeyError, ValueError):
        raise value.wants(f"{weaker.label} has {quoted(like)} there; give a value of that kind") from None
    return value


def nearest(name: str, known: Sequence[str]) -> str | None:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else None
