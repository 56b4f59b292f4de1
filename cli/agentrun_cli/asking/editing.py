"""A value in a person's own editor."""

from __future__ import annotations

import os
from typing import Any

UNCHANGED = object()


def edit_value(value: Any, *, name: str) -> Any:
    """The edited value: text as text, anything else as JSON. UNCHANGED if it was not edited."""
    from agentrun.errors import UsageError
    from agentrun.values.json import is_same, parse_value
    from agentrun_cli.asking.confirming import asks, is_conversation
    from agentrun_cli.terminal import clean, say

    is_text = isinstance(value, str)
    before = text = value if is_text else _pretty(value)
    while True:
        text = edit_text(text, suffix=".txt" if is_text else ".json")
        if text == before or (not is_text and not text.strip()):
            return UNCHANGED
        try:
            changed = _checked_text(text) if is_text else parse_value(text)
        except ValueError as error:
            if not is_conversation():
                raise UsageError(f"{name}: {error}; nothing is posted") from None
            say(f"{clean(name)}: {clean(error)}")
            again = asks("edit it again? [Y/n] ")
            if again is None or again.lower() not in ("", "y", "yes"):
                return UNCHANGED
            continue
        return UNCHANGED if is_same(changed, value) else changed


def edit_text(text: str, *, suffix: str) -> str:
    """`text` after editing it in VISUAL, EDITOR or vi, in a file that only this user can read."""
    import shlex
    import subprocess
    import tempfile

    from agentrun.errors import UsageError

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    fd, path = tempfile.mkstemp(prefix="agentrun-", suffix=suffix)
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
        try:
            code = subprocess.run([*shlex.split(editor), path], check=False).returncode
        except (OSError, ValueError) as error:
            raise UsageError(f"the editor {editor} cannot be started: {error}; set EDITOR to yours") from None
        if code:
            raise UsageError(f"the editor {editor} exited with {code}; nothing is posted")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            edited = file.read()
    finally:
        os.unlink(path)
    # Most editors add a newline at the end of the file.
    if edited.endswith("\n") and not text.endswith("\n"):
        edited = edited[:-1]
    return edited


def _checked_text(text: str) -> str:
    from agentrun.values.text import is_unicode

    if not is_unicode(text):
        raise ValueError("the text is not UTF-8; save it as UTF-8")
    return text


def _pretty(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)
