"""How a schema is given to the model: to the server itself (native), or in words, in the prompt.

A server may be unable to take a schema, and say so, or answer 500 as if something were wrong with it today. The rule
that tells the two apart:

- A question is put in words when the server refuses it natively with an error that names the schema; or with a 500 that
  does not, as long as this server has never answered natively.
- The whole launch changes to words when such a question is then answered: at once if the schema was named, and after
  three rounds if it was not. A round is a native request that began after the last round was over, its 500, and the
  answer in words; so one outage is one round, however many items it hits.
- A server that has answered natively once is able. It is never given up.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from agentrun.agents.prompts.prompt import Schema
from agentrun.job.job import Structured

Way = Literal["native", "prompt"]
ROUNDS = 3
_REFUSING = frozenset({400, 422, 500, 501})
_NAMED = re.compile(r"response[_ ]?format|(json|response)[_ ]?(json[_ ]?)?schema|invalid schema|grammar", re.IGNORECASE)


def schema_in_words(schema: Schema) -> str:
    """What is added to a question, so that the answer has the form of the schema."""
    form = json.dumps(schema.form, ensure_ascii=False)
    return f"\n\nAnswer with a JSON object that fits this JSON Schema, and with nothing before or after it:\n\n{form}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A native request that failed, perhaps because the server cannot take a schema."""

    names_schema: bool
    round: int
    """The round in which it began."""


class Structure:
    """Which way the schema is given. One for all items of a launch."""

    def __init__(self, structured: Structured | None, *, may_change: bool = True) -> None:
        """`structured` is the job's wish. `may_change`: whether the provider could refuse the schema as such."""
        self._may_change = structured is None and may_change
        self._way: Way = "prompt" if structured == "prompt" else "native"
        self._is_able = False
        self.round = 0
        """How many rounds there have been. To be kept when a request begins."""

    @property
    def way(self) -> Way:
        if self._may_change and not self._is_able and self.round >= ROUNDS:
            return "prompt"
        return self._way

    def answered(self) -> None:
        """The server has answered a native request."""
        self._is_able = True

    def doubt(self, status: int, said: str, *, began: int) -> Doubt | None:
        """The doubt that an error raises, which began as a native request in the round `began`; None: it raises none.

        With a doubt, the same question is to be asked in words.
        """
        if not self._may_change or status not in _REFUSING:
            return None
        if _NAMED.search(said):
            return Doubt(names_schema=True, round=began)
        return Doubt(names_schema=False, round=began) if status == 500 and not self._is_able else None

    def confirm(self, doubt: Doubt) -> bool:
        """The question was answered in words; whether this changes how everything is asked from now on."""
        before = self.way
        if doubt.names_schema:
            self.round = ROUNDS
        elif doubt.round == self.round:
            self.round += 1
        return self.way != before
