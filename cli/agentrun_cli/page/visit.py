"""One request to the page, as the pages see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from agentrun.errors import UsageError
from agentrun.item import key_digest
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun.views.place import Place

FORM_BYTES, FORM_FIELDS = 8 << 20, 2000
_INDEX_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Visit:
    """Who asks for what. `form` holds what was sent with a POST."""

    place: Place
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    """The name that the person has given on the page; empty if none."""

    def job(self) -> KnownJob:
        """The job in the address."""
        return self.place.known(self.path["job"])

    def number(self, name: str, default: int = 0) -> int:
        """A number of the address or the form; anything else is the default."""
        text = self.path.get(name) or self.form.get(name) or self.query.get(name) or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _INDEX_DIGITS else default

    def item(self, listing: Listing) -> ItemView:
        """The item that a form was made for: the one at its index, if that still has its key."""
        view = listing.find(index=self.number("item", -1))
        if view is None or item_mark(view) != self.form.get("mark"):
            raise UsageError("the items have changed since this page was made; nothing was posted; go back and reload")
        return view


def item_mark(view: ItemView) -> str:
    """What a form knows an item by, besides its index. Not its key, which may be text that no form can carry."""
    return key_digest(view.key).hex()


def items_mark(keys: Iterable[str]) -> str:
    """What a form knows several items by."""
    return sha256(b"".join(map(key_digest, keys))).hexdigest()[:32]


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. The first of a name counts."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            raise HTTPException(413, f"the form is larger than {FORM_BYTES >> 20} MiB")
    try:
        pairs = parse_qsl(bytes(body).decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS)
    except ValueError:
        raise HTTPException(400, "this is not a form of this page") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found
