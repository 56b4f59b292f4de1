"""Export files to read, change and break."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from agentrun.checkpoint.record import PublishedFile
from agentrun.outputs.files import files_folder
from agentrun.people.moving import export_job
from agentrun.values.names import folder_name
from unit.made import Made

JOB_JSON = b'{"version":1,"base":".","values":{"name":"made","agent":"agent.py:agent","items":{"lines":"items.txt"}}}\n'


def publish(made: Made, key: str, text: str) -> PublishedFile:
    """A file that the item left, as a launch would have published it."""
    output = made.job.output_path(run_id=made.run_id, date=made.checkpoint.context.date)
    name = f"{files_folder(output).name}/{folder_name(key)}/note.txt"
    path = output.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return PublishedFile(name, len(text), hashlib.sha256(text.encode()).hexdigest(), path.stat().st_mtime_ns)


def begun(base: Path, **values: Any) -> Made:
    """A job with an unfinished run of which two items are done, one with a file."""
    base.mkdir(parents=True, exist_ok=True)
    made = Made(base, ["a", "b", "c"], **values)
    output = made.job.output_path(run_id=made.run_id, date=made.checkpoint.context.date)
    context = made.checkpoint.context
    context.output, context.place, context.base = str(output), ".", str(base)
    made.commit(made.record("a", files=[publish(made, "a", "of a")]), made.record("b"), counts={"done": 2})
    with made.at_work():
        made.store.keep("job.json", [JOB_JSON])
    return made


def exported(made: Made, name: str = "made.agentrun") -> Path:
    return export_job(made.known, made.base / name).file


class Export:
    """The members of an export file, to be changed and written again."""

    def __init__(self, file: Path) -> None:
        with tarfile.open(file) as tar:
            self.members = {info.name: (info, _content(tar, info)) for info in tar}
        self.manifest = orjson.loads(self.members.pop("manifest.json")[1])

    def content(self, name: str) -> bytes:
        return self.members[name][1]

    def put(self, name: str, content: bytes, *, is_listed: bool = True) -> None:
        """Add or change a member, and the manifest too, as somebody would who knows the format."""
        info = tarfile.TarInfo(name)
        info.size = len(content)
        self.members[name] = (info, content)
        if is_listed:
            entry = {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            names = [one["name"] for one in self.manifest["members"]]
            if name in names:
                self.manifest["members"][names.index(name)] = entry
            else:
                self.manifest["members"].append(entry)

    def write(self, file: Path, *, more: Mapping[str, bytes] | None = None) -> Path:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
            text = orjson.dumps(self.manifest)
            first = tarfile.TarInfo("manifest.json")
            first.size = len(text)
            tar.addfile(first, io.BytesIO(text))
            for info, content in self.members.values():
                tar.addfile(info, io.BytesIO(content))
            for name, content in (more or {}).items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        file.write_bytes(buffer.getvalue())
        return file


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    found = tar.extractfile(info)
    assert found is not None
    return found.read()


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """All files and folders below, with the contents of the files."""
    found: dict[str, bytes | None] = {}
    for path, folders, files in os.walk(folder):
        inside = Path(path).relative_to(folder)
        found |= {str(inside / name): None for name in folders}
        found |= {str(inside / name): Path(path, name).read_bytes() for name in files}
    return found


Change = Callable[[Export], None]
