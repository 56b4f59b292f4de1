"""What `{file}` stands for: a PDF or an image as it is, a text as text."""

from __future__ import annotations

from mimetypes import MimeTypes
from pathlib import Path

from agentrun.errors import Fail

MEDIA = ("application/pdf", "image/png", "image/jpeg", "image/gif", "image/webp")
# Its own tables only: those of the system differ from one machine to the next.
_TYPES = MimeTypes()


def read_attachment(path: Path) -> str | tuple[bytes, str]:
    """The text of a file, or its bytes and their media type; Fail for what no model can be shown."""
    media, encoding = _TYPES.guess_type(path.name, strict=False)
    data = path.read_bytes()
    if media in MEDIA and encoding is None:
        if not data:
            raise Fail(f"{path.name} is empty; there is nothing to attach")
        return data, str(media)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        what = f"it is {media}" if media else "its kind is not known"
        raise Fail(f"{path.name} cannot be attached: {what}; {{file}} takes PDF, PNG, JPEG, GIF, WebP and UTF-8 text")
    return text
