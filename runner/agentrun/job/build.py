"""Build a checked job from layers of values."""

from __future__ import annotations

import os.path
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrun.errors import JobError
from agentrun.job.address import EXAMPLES, StoreAddress, read_store
from agentrun.job.engine import read_engine
from agentrun.job.fields import AGENTS, KINDS, Layer, Value, Values
from agentrun.job.job import STANDARD_INPUT, Empty, Isolation, ItemsKind, ItemsSpec, Job, Parse, default_report
from agentrun.job.money import read_budget, read_prices, read_token_budget
from agentrun.job.notify import read_notify
from agentrun.job.output import ITEM_NAMES, RUN_NAMES, OutputTemplate
from agentrun.job.prompt import read_base_url, read_model, read_prompt, read_structured, read_template
from agentrun.values import json as jsontext
from agentrun.values.templates import check_argv, escape, fill, names_in
from agentrun.values.text import quoted
from agentrun.values.units import NONE_ALLOWED, Rate, parse_allowance, parse_duration, parse_length, parse_rate
from agentrun.values.until import parse_until

NAME_LIMIT_BYTES = 100
_ISOLATIONS: tuple[Isolation, ...] = ("process", "thread")
_PARSES: tuple[Parse, ...] = ("text", "json")
_EMPTIES: tuple[Empty, ...] = ("warn", "fail", "allow")


def job_name(layers: Sequence[Layer], *, has_file: bool, default_name: str) -> str:
    """The name of the job that the layers describe, before the rest of it is known."""
    values = Values(layers, has_file=has_file)
    return _name(values, _texts(_params(values)), default=Value(_strongest(layers), "name", default_name))


def _strongest(layers: Sequence[Layer]) -> str:
    return layers[-1].label if layers else "job"


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    """The params that can be part of a name or a path."""
    return {name: text for name, value in params.items() if (text := _as_text(value)) is not None}


def build_job(layers: Sequence[Layer], *, base: Path, file: Path | None, default_name: str) -> Job:
    """The job that the layers, weakest first, describe together; JobError names layer, key and fault."""
    values = Values(layers, has_file=file is not None)
    where = layers[0].label if layers else "job"
    params = _params(values)
    texts = _texts(params)
    name = _name(values, texts, default=Value(_strongest(layers), "name", default_name))
    items = _items(values, texts, where)
    agent = _agent(values, where)
    command = _command(values, items.kind)
    prompt = read_prompt(values, items.kind, params)
    concurrency = values.whole("run.concurrency", 1, least=1)
    carry = values.flag("carry")
    if carry and concurrency > 1:
        value = values.get("run.concurrency")
        assert value is not None
        raise value.refuse(f"is {concurrency}, but carry = true needs 1: each item gets the carry of the one before it")
    return Job(
        name=name,
        base=base,
        file=file,
        items=items,
        agent=agent,
        command=command,
        prompt=prompt,
        model=read_model(values),
        system=read_template(values, "system", items.kind, params),
        schema=values.text("schema", 'write the path of a JSON Schema, such as "answer.json"'),
        structured=read_structured(values),
        base_url=read_base_url(values),
        max_output_tokens=values.whole_or_none("max_output_tokens", least=1),
        temperature=values.number("temperature", "write a number from 0 to 2", fits=lambda found: 0 <= found <= 2),
        parse=values.choice("parse", _PARSES) or "text",
        serve=values.flag("serve"),
        version=values.text("version", 'write it in quotes, such as "3"'),
        isolation=values.choice("isolation", _ISOLATIONS),
        params=params,
        output=_output(values, texts, name=name, base=base, items=items),
        report=_report(values, texts, name=name),
        env_file=values.text("env_file", 'write a path such as ".env"'),
        needs_env=_needs_env(values),
        carry=carry,
        concurrency=concurrency,
        timeout_seconds=values.parsed("run.timeout", parse_duration, 1800.0) or None,
        retries=values.whole("run.retries", 3, least=0),
        rate=values.parsed("run.rate", _rate, None),
        tokens=values.parsed("run.tokens", _rate, None),
        allow_failures=values.parsed("run.allow_failures", parse_allowance, NONE_ALLOWED),
        stop_after_failures=values.whole("run.stop_after_failures", 10, least=0, zero="0: never"),
        crash_limit=values.whole("run.crash_limit", 3, least=0, zero="0: off"),
        grace_seconds=values.parsed("run.grace", parse_duration, 30.0),
        max_wait_seconds=values.parsed("run.max_wait", parse_duration, 12 * 3600.0),
        max_age_seconds=values.parsed("run.max_age", parse_duration, None),
        keep_changed=values.flag("run.keep_changed"),
        empty=values.choice("run.empty", _EMPTIES) or "warn",
        adapt=values.flag("run.adapt", default=True),
        keep_logs=values.whole("run.keep_logs", 1000, least=0, zero="0: none"),
        budget=read_budget(values),
        token_budget=read_token_budget(values),
        item_budget=read_budget(values, "run.item_budget", example="0.50"),
        item_token_budget=read_token_budget(values, "run.item_token_budget"),
        until=values.parsed("run.until", parse_until, None),
        max_time_seconds=values.parsed("run.max_time", parse_length, None),
        prices=read_prices(values),
        notify=read_notify(values),
        store=_store(values, base),
        engine=read_engine(values),
        store_patience_seconds=values.parsed("run.store_patience", parse_duration, 60.0),
        graph_output=values.text("langgraph.output", 'write the name of a channel of the graph, such as "answer"'),
    )


def _store(values: Values, base: Path) -> StoreAddress | None:
    if (text := values.text("store", f"write the address of a store: {EXAMPLES}")) is None:
        return None
    value = values.get("store")
    assert value is not None
    return read_store(text, base=base, label=value.label)


def _rate(value: Any) -> Rate | None:
    return parse_rate(value)


def _params(values: Values) -> dict[str, Any]:
    params = {}
    for name, value in values.below("params").items():
        if value.found == "":
            raise value.refuse(f"is empty; give it with --set {name}=…")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
            raise value.refuse("is not a name; use letters, digits, _ and -, starting with a letter")
        try:
            # Encoded and decoded, so that a TOML date is the same text now as after a resume.
            params[name] = jsontext.decode(jsontext.encode(value.found, name=value.key))
        except jsontext.NotJson as error:
            raise value.refuse(str(error).removeprefix(f"{value.key} ")) from None
    return params


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def _fill(value: Value, texts: Mapping[str, str], *, keep: Sequence[str] = ()) -> str:
    try:
        return fill(value.found, texts, keep=keep)
    except ValueError as error:
        raise value.refuse(str(error)) from None


def _name(values: Values, texts: Mapping[str, str], *, default: Value) -> str:
    if values.text("name") is None:
        return _checked_name(default, str(default.found))
    value = values.get("name")
    assert value is not None
    filled = _fill(value, texts)
    for name in names_in(value.found):
        if "/" in texts[name] or "\0" in texts[name] or texts[name] == "..":
            param = values.get(f"params.{name}") or value
            raise param.wants(
                f"it is part of the job's name {quoted(value.found)}; give a value without / or NUL, and not .."
            )
    return _checked_name(value, filled)


def _checked_name(value: Value, name: str) -> str:
    fault = None
    if not name:
        fault = "is empty"
    elif "/" in name:
        fault = "has a / in it"
    elif name[0] in ".-":
        fault = f"starts with {name[0]}"
    elif name != name.strip():
        fault = "starts or ends with a space"
    elif any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in name):
        fault = "has a control character in it"
    elif len(name.encode()) > NAME_LIMIT_BYTES:
        fault = f"is over {NAME_LIMIT_BYTES} bytes long"
    if fault is None:
        return name
    would_do = re.sub(r"[^\w.-]+", "-", name).strip(".-")[:40].strip(".-") or "my-job"
    raise value._replace(found=name).wants(
        f"it names a folder and {fault}; use a name such as {quoted(would_do)} (name = …, or --name)"
    )


def _items(values: Values, texts: Mapping[str, str], where: str) -> ItemsSpec:
    if values.get("items.python") is not None:
        return ItemsSpec(kind="python", pattern="", key=values.text("items.key"))
    kind = next((name for name in KINDS if values.get(f"items.{name}")), None)
    if kind is None:
        raise JobError(
            f"{where}: no items are given; write files, jsonl, csv or lines under [items], or use --items",
            where=where,
            key="items",
        )
    patterns = _patterns(values, kind, texts)
    key = values.text("items.key", 'write the name of a field, such as "id"')
    if key is not None and kind in ("files", "lines"):
        key_value = values.get("items.key")
        assert key_value is not None
        raise key_value.wants(
            f"it is for jsonl and csv; items of {kind} are identified by their own text: leave it out"
        )
    kinds: dict[str, ItemsKind] = {"files": "files", "jsonl": "jsonl", "csv": "csv", "lines": "lines"}
    exclude = _excluded(values, kind, texts)
    return ItemsSpec(kind=kinds[kind], pattern=patterns[0], key=key, more=patterns[1:], exclude=exclude)


def _patterns(values: Values, kind: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    value = values.get(f"items.{kind}")
    assert value is not None
    if kind != "files":
        if isinstance(value.found, list | tuple):
            raise value.wants(f"several are for files; {kind} is one file: put all into one, or make several jobs")
        values.text(value.key, f'write a path, such as "items.{kind}"')
    else:
        values.text_or_texts(value.key, 'write a path or a pattern such as "docs/*.txt", or a list of them')
    patterns = _fill_each(value, texts)
    if kind == "files" and STANDARD_INPUT in patterns:
        raise value.wants("standard input is read as lines, jsonl or csv")
    return tuple(dict.fromkeys(patterns))


def _excluded(values: Values, kind: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    value = values.get("items.exclude")
    if value is None:
        return ()
    values.text_or_texts(value.key, 'write a list of patterns, such as ["draft-*", "docs/old/**"]')
    if kind != "files":
        raise value.refuse(f"is for files; the items of this job are {kind}: leave it out")
    patterns = _fill_each(value, texts)
    if any(not pattern.strip("/.") for pattern in patterns):
        raise value.wants("it would leave out everything; write the name of a file or folder")
    return tuple(dict.fromkeys(patterns))


def _fill_each(value: Value, texts: Mapping[str, str]) -> list[str]:
    """Text, or each text of a list, with params filled in."""
    found = [value.found] if isinstance(value.found, str) else value.found
    filled = [_fill(value._replace(found=one), texts) for one in found]
    if any("\0" in one for one in filled):
        raise value.refuse("has a NUL character in it; leave that out")
    return filled


_FOR = {
    "agent": "a Python agent",
    "command": "a command",
    "prompt": "a prompt",
}
_INSTEAD = {
    ("isolation", "command"): "a command always runs in its own process",
    ("isolation", "prompt"): "a prompt runs on the event loop",
    ("parse", "agent"): "a Python agent returns its output as a value",
    ("parse", "prompt"): "its output is text, or with schema = … what the schema describes",
}


def _agent(values: Values, where: str) -> str | None:
    """The reference of a Python agent; None if the agent is of another kind. JobError if there is no agent at all."""
    kind = next((name for name in AGENTS if values.get(name) is not None), None)
    if kind is None:
        raise JobError(
            f"{where}: none of agent, command and prompt is given; "
            f'write agent = "file.py:function", command = ["program"], or prompt = "…" and model = "openai:…"',
            where=where,
            key="agent",
        )
    for other, names in AGENTS.items():
        for name in names if other != kind else ():
            if (value := values.get(name)) is not None:
                why = _INSTEAD.get((name, kind), f"this job has {_FOR[kind]}")
                raise value.refuse(f"is for {_FOR[other]}; {why}: leave it out")
    agent = values.text("agent", 'write "file.py:function"')
    if agent is not None:
        value = values.get("agent")
        assert value is not None
        source, colon, function = agent.rpartition(":")
        if not (colon and source.strip() and function.strip()):
            raise value.wants('write "file.py:function"')
    return agent


def _command(values: Values, kind: str) -> tuple[str, ...] | None:
    command = values.texts("command", 'write a list, such as ["./triage.sh", "{path}"]')
    if command is None:
        return None
    value = values.get("command")
    assert value is not None
    if not command or not command[0].strip():
        raise value.wants('write the program first, such as ["./triage.sh", "{path}"]')
    try:
        check_argv(command, kind=kind)
        named = [name for element in command for name in names_in(element)]
    except ValueError as error:
        raise value.refuse(str(error)) from None
    if named and values.flag("serve"):
        shown_name = "{" + named[0] + "}"
        raise value.refuse(f"has {shown_name} in it; with serve = true, each item is a line on standard input")
    return command


def _output(values: Values, texts: Mapping[str, str], *, name: str, base: Path, items: ItemsSpec) -> str:
    if values.text("output", 'write a path such as "out/results.jsonl"') is None:
        return f"{escape(name)}.results.jsonl"
    value = values.get("output")
    assert value is not None
    # A param called key has always been that; {date} and {run_id} never are.
    params = {key: text for key, text in texts.items() if key not in RUN_NAMES}
    late = (*RUN_NAMES, *(name for name in ITEM_NAMES if name not in params))
    output = OutputTemplate(_fill(value, params, keep=late))
    if "\0" in output.text:
        raise value.refuse("has a NUL character in it; leave that out")
    if remedy := output.remedy(base):
        raise value.wants(remedy)
    if items.kind in ("jsonl", "csv", "lines") and _same(base, items.pattern, output.text):
        raise value.wants("the items are read from that file; write the results to another")
    is_folder_of_files = items.kind == "files" and output.form == "folder"
    if is_folder_of_files and any(output.takes_in(base, pattern) for pattern in items.patterns):
        raise value.wants(
            f"the items are read from that folder ({items.pattern}), so results would become items; "
            f"write them to a folder of their own"
        )
    return output.text


def _report(values: Values, texts: Mapping[str, str], *, name: str) -> str | None:
    value = values.get("report")
    if value is None or value.found is False:
        return None
    if value.found is True:
        return default_report(name)
    values.text("report", 'write true, or a path such as "reports/{date}.html"')
    params = {key: text for key, text in texts.items() if key not in RUN_NAMES}
    report = _fill(value, params, keep=RUN_NAMES)
    if not report.lower().endswith((".html", ".htm", ".md", ".markdown")):
        raise value.wants('write a path that ends in .html, or in .md for Markdown, such as "reports/{date}.html"')
    return report


def _same(base: Path, pattern: str, output: str) -> bool:
    return os.path.normpath(base / pattern) == os.path.normpath(base / output)


def _needs_env(values: Values) -> tuple[str, ...]:
    names = values.texts("needs_env", 'write a list, such as ["OPENAI_API_KEY"]') or ()
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            value = values.get("needs_env")
            assert value is not None
            raise value.refuse(f"has {quoted(name)}, which is not the name of an environment variable")
    return names
