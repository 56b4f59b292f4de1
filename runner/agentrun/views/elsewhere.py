"""Where a job in a shared store was run, as seen from this machine: logs, inputs and files stay there."""

from __future__ import annotations

import socket

from agentrun.store.port import Reader, Store


def ran_elsewhere(store: Store, reader: Reader) -> str:
    """The machine, or the folder of this one, that the last launch was on, for people: `larch, in /home/ada/letters`.

    Empty if that was here, or is not known.
    """
    if reader.checkpoint is not None:
        place = reader.checkpoint.context.place
    else:
        place = reader.summary.place if reader.summary is not None else ""
    host, _, base = place.partition(":")
    if not store.where or not base:
        return ""
    if host != socket.gethostname():
        return f"{host}, in {base}"
    # Something of it is here: its folder is, and not only since this look.
    is_here = store.folder is not None and (store.folder / "log.jsonl").exists()
    return "" if is_here else f"this machine, in {base}"
