"""The process that sends notices through Apprise: `check` or `send`, JSON on standard input, JSON on standard output.

In a process of its own, because Apprise loads some 130 modules, starts threads and may hang in a name lookup: the
runner stays as it is, and ends this process when its time is over. Addresses come on standard input, which nobody else
can read, unlike arguments.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from typing import Any
from urllib.parse import unquote


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        import apprise  # noqa: F401
    except ImportError:
        json.dump({"missing": True}, sys.stdout)
        return
    json.dump(check(asked["urls"]) if sys.argv[1] == "check" else send(**asked), sys.stdout)
    sys.stdout.flush()
    # Not by the interpreter's end: that waits for the threads of a service that does not answer.
    os._exit(0)


def check(urls: list[str]) -> dict[str, Any]:
    """For each address the name of its service and how to show it; None if Apprise does not understand it."""
    return {"found": [_describe(url) for url in urls]}


def _describe(url: str) -> dict[str, str] | None:
    opened = _open(url)
    if opened is None:
        return None
    service = opened[0]
    # What follows the ? are settings, mostly defaults.
    return {"service": str(service.service_name), "shown": str(service.url(privacy=True)).partition("?")[0]}


def send(url: str, title: str, text: str, kind: str, seconds: float) -> dict[str, Any]:
    """What went wrong, in the library's words; empty if the service took it."""
    import apprise

    opened = _open(url)
    if opened is None:
        return {"problem": "Apprise does not understand the address"}
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:  # type: ignore[no-untyped-call]
        is_sent = opened.notify(title=title, body=text, body_format="text", notify_type=kind, timeout=seconds)
        said = " ".join(log.getvalue().split())
    return {"problem": "" if is_sent else hide(said, url) or "no answer in time"}


def hide(text: str, url: str) -> str:
    """The text without any part of the address but its scheme: it may end up in a log.

    Not by Apprise's private form, which shows the path of a webhook and the topic of ntfy.
    """
    for form in (url, unquote(url)):
        for piece in re.split(r"[/:@?&=,#\s]+", form.partition("://")[2]):
            if len(piece) > 3:
                text = text.replace(piece, "****")
    return text


def _open(url: str) -> Any:
    from apprise import Apprise, AppriseAsset, PersistentStoreMode

    # In memory: some services would keep tokens on disk.
    asset = AppriseAsset(app_id="agentrun", app_desc="agentrun", storage_mode=PersistentStoreMode.MEMORY)
    opened = Apprise(asset=asset)
    return opened if opened.add(url) and len(opened) else None


if __name__ == "__main__":
    main()
