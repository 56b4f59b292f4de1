"""The inbox of a job in a shared place: a side file a message.

Whether a message is processed or withdrawn is decided by a second side file, its fate: of a runner that claims it and
a person who takes it back, only one can make that. The fate of a message that was processed outlives it until the next
launch: whoever looked at the message before that, and is about to take it back, still finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrun.checkpoint.message import AnyMessage, MessageError, decode_message, encode_message
from agentrun.checkpoint.sealing import MissingKeyError
from agentrun.errors import CheckpointError
from agentrun.store.keyed.home import Home, in_pieces
from agentrun.store.port import Posted, message_names

INBOX, FATE, REJECTED, STOP = "post/", "fate/", "rejected/", "stop-"
_CLAIMED, _WITHDRAWN = b"claimed", b"withdrawn"


class KeyedInbox:
    """Messages never change once they are there: what was read is not read again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, Posted] = {}
        self._claimed: set[str] = set()
        self.stops: list[str] = []
        """The marks of the launches that were asked to stop, as of the last look; twice: at once."""

    def post(self, messages: Sequence[AnyMessage]) -> None:
        texts = [encode_message(message) for message in messages]
        for name, text in zip(message_names(len(texts)), texts, strict=True):
            self._home.put(INBOX + name, in_pieces([text]))

    def ask_to_stop(self, mark: str) -> None:
        """Ask the launch with this mark to stop; a second time, at once."""
        if not self._home.put_new(f"{INBOX}{STOP}{mark}", b""):
            self._home.put_new(f"{INBOX}{STOP}{mark}-now", b"")

    def messages(self) -> list[Posted]:
        names = [name.removeprefix(INBOX) for name in self._home.names(INBOX)]
        self.stops = [name.removeprefix(STOP).removesuffix("-now") for name in names if name.startswith(STOP)]
        posted = [name for name in names if not name.startswith(STOP)]
        found = {name: self._known.get(name) or self._read(name) for name in posted}
        self._known = {name: one for name, one in found.items() if one is not None}
        return list(self._known.values())

    def _read(self, name: str) -> Posted | None:
        """None if it has gone meanwhile."""
        try:
            text = self._text(INBOX + name)
            return Posted(name, decode_message(text)) if text is not None else None
        except MessageError as error:
            return Posted(name, None, str(error))
        except (CheckpointError, MissingKeyError) as error:
            return Posted(name, None, error.message)

    def _text(self, name: str) -> bytes | None:
        pieces = self._home.get(name)
        return b"".join(pieces) if pieces is not None else None

    def _text_or_bytes(self, name: str) -> bytes:
        """As it is stored, if it cannot be opened."""
        try:
            return self._text(name) or b""
        except (CheckpointError, MissingKeyError):
            return b"".join(self._home.raw.get(name) or ())

    def claim(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for name in names:
            is_new = self._home.put_new(FATE + name, _CLAIMED)
            fate = _CLAIMED if is_new else self._text(FATE + name)
            if fate == _WITHDRAWN:
                # Who takes it back may have died before the message was gone: it would be there for ever.
                self._home.drop([INBOX + name])
            elif fate is not None and self._text(INBOX + name) is not None:
                found.add(name)
            elif is_new:
                self._home.drop([FATE + name])
        self._claimed |= found
        return found

    def withdraw(self, name: str) -> bool:
        if self._text(INBOX + name) is None:
            return False
        # Or by somebody who died before the message was gone, perhaps by us.
        if not self._home.put_new(FATE + name, _WITHDRAWN) and self._text(FATE + name) != _WITHDRAWN:
            return False
        # In this order: a runner that claims it from now on finds it gone.
        self._home.drop([INBOX + name])
        self._home.drop([FATE + name])
        self._known.pop(name, None)
        return True

    def drop(self, names: Iterable[str], *, epoch: int | None) -> None:
        """Remove messages that were processed. LostError, and they stay, unless the epoch is still ours."""
        dropped = list(dict.fromkeys(names))
        for name in dropped:
            posted = self._known.get(name) or self._read(name)
            if posted is not None and posted.message is None:
                self._home.put(REJECTED + name, in_pieces([self._text_or_bytes(INBOX + name)]), epoch=epoch)
        self._home.drop([INBOX + name for name in dropped], epoch=epoch)
        for name in dropped:
            self._known.pop(name, None)

    def sweep(self, *, epoch: int, mark: str) -> None:
        """Remove what launches before this one left: what they were asked, and the fates of messages that are gone."""
        fates, names = self._home.names(FATE), self._home.names(INBOX)
        stops = [name for name in names if name.startswith(INBOX + STOP) and not name.startswith(INBOX + STOP + mark)]
        decided = {name.removeprefix(FATE) for name in fates} - {name.removeprefix(INBOX) for name in names}
        old = [*stops, *(FATE + name for name in sorted(decided - self._claimed))]
        if old:
            self._home.drop(old, epoch=epoch)
