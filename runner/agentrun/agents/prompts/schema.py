"""JSON Schema, as the package jsonschema checks it."""

from __future__ import annotations

from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from agentrun.agents.prompts.prompt import Schema

_LIMIT = 300


def fault_of_schema(schema: Schema) -> str | None:
    """What is wrong with a schema; None if nothing is."""
    try:
        validator_for(schema.form, default=jsonschema.Draft202012Validator).check_schema(dict(schema.form))
    except SchemaError as error:
        return _said(error)
    except RecursionError:
        return "it is nested too deep"
    return None


class Checker:
    """Whether an output is what a schema describes. Nothing is fetched: a `$ref` stays within the schema."""

    def __init__(self, schema: Schema) -> None:
        make = validator_for(schema.form, default=jsonschema.Draft202012Validator)
        registry: Registry[Any] = Registry()
        self._validator = make(schema.form, registry=registry)

    def fault_of(self, output: Any) -> str | None:
        try:
            error = best_match(self._validator.iter_errors(output))
        except Unresolvable as problem:
            return f"the schema has a reference that leads nowhere: {problem}"
        return _said(error) if error is not None else None


def _said(error: ValidationError | SchemaError) -> str:
    where = error.json_path if error.absolute_path else ""
    said = f"{where}: {error.message}" if where else error.message
    return said if len(said) <= _LIMIT else said[: _LIMIT - 1] + "…"
