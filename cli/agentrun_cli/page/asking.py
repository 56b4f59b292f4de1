"""The details of a question as fields of a form, and what a person changed in them.

A detail is shown in two fields: the one to edit, and a hidden one with the same text. Browsers change what they send
(the ends of lines, characters that no form can carry), but both in the same way: what is equal was not edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrun_cli.page.item import shown, text_part
from agentrun_cli.page.markup import Html, cut, h, join

NAME_CHARACTERS = 80
_ROWS_MOST, _ROW_CHARACTERS = 18, 70
_EDITED_CHARACTERS, _EDITED_MOST = 300_000, 500
"""As many as a form surely holds (`visit.FORM_BYTES`): each is sent twice, in up to 12 bytes."""
_SHOWN_CHARACTERS = 5000


def detail_fields(details: Mapping[str, Any], given: Mapping[str, str]) -> Html:
    """A field for each detail; with `given`, as the form was filled in. What no form can send is only shown."""
    parts, left = list[Html](), _EDITED_CHARACTERS
    for number, (name, value) in enumerate(details.items()):
        text = shown(value)
        is_edited = len(text) <= left and number < _EDITED_MOST
        parts.append(_field(number, name, value, text, given) if is_edited else _too_long(name, value))
        left -= len(text) if is_edited else 0
    return join(parts)


def changed_details(details: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """By name: the details that the person has edited, as they were typed."""
    found = {}
    for number, name in enumerate(details):
        typed, before = given.get(f"d{number}"), given.get(f"o{number}")
        if typed is not None and typed != before:
            found[name] = typed.replace("\r\n", "\n")
    return found


def _too_long(name: str, value: Any) -> Html:
    return h(
        '<div class="detail">{name} <small>too long to edit here</small>{text}</div>',
        name=cut(name, 200),
        text=text_part(value, _SHOWN_CHARACTERS),
    )


def _field(number: int, name: str, value: Any, text: str, given: Mapping[str, str]) -> Html:
    typed = given.get(f"d{number}", text)
    if isinstance(value, bool):
        options = join(
            h(
                '<option value="{one}"{chosen}>{words}</option>',
                one=one,
                chosen=h(" selected") if typed == one else "",
                words=words,
            )
            for one, words in (("true", "yes"), ("false", "no"))
        )
        control = h('<select name="d{number}">{options}</select>', number=number, options=options)
    elif isinstance(value, int | float):
        control = h('<input name="d{number}" value="{typed}" inputmode="decimal">', number=number, typed=typed)
    else:
        control = h(
            '<textarea name="d{number}" rows="{rows}"{kind}>\n{typed}</textarea>',
            number=number,
            rows=_rows(typed),
            kind=h(' class="code" spellcheck="false"') if not isinstance(value, str) else "",
            typed=typed,
        )
    form = "" if isinstance(value, str | int | float) else h(" <small>JSON</small>")
    return h(
        '<label class="detail">{name}{form}{control}</label><input type="hidden" name="o{number}" value="{text}">',
        name=cut(name, 200),
        form=form,
        control=control,
        number=number,
        text=text,
    )


def _rows(text: str) -> int:
    lines = sum(1 + len(line) // _ROW_CHARACTERS for line in text.split("\n"))
    return min(max(lines + 1, 2), _ROWS_MOST)
