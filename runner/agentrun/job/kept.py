"""job.json: how the job was started, for the next launch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrun.errors import CheckpointError
from agentrun.job.fields import KEPT_LABEL, Layer
from agentrun.values import json as jsontext

JOB_JSON = "job.json"
JOB_JSON_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptJob:
    """The contents of job.json: the path of the job file, or, without one, all the values."""

    base: Path
    file: Path | None = None
    layer: Layer
    """With a job file, only its params are kept, and a name that is not the file's own: they say which job it is.
    Without one, everything is."""
    asked: str = ""
    """The digest of what was asked, if the job's name was made from it: the name has only its first digits."""


def absolute(path: Path) -> Path:
    # Not resolved: the folder of a job file that is a link is the link's.
    return Path(os.path.normpath(path.absolute()))


def encode_job_json(kept: KeptJob, *, root: Path) -> bytes:
    """Paths inside the parent of `root` are written relative to it, so that it can be moved."""
    if kept.file is not None:
        more = {"file": relative(kept.file, root), "params": dict(kept.layer.get("params", {}))}
        more |= {"name": kept.layer.get("name")} if kept.layer.get("name") else {}
    else:
        more = {"base": relative(kept.base, root), "values": dict(kept.layer.values)}
        more |= {"asked": kept.asked} if kept.asked else {}
    return jsontext.encode({"version": JOB_JSON_VERSION, **more}, name=JOB_JSON) + b"\n"


def decode_job_json(data: bytes, *, root: Path, where: str = JOB_JSON) -> KeptJob:
    """CheckpointError if it is damaged or from a newer version."""
    try:
        record = jsontext.decode(data)
    except ValueError as error:
        raise _damaged(where, f"is not JSON ({error})") from None
    version = record.get("version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise _damaged(where, "has no version")
    if version > JOB_JSON_VERSION:
        raise CheckpointError(f"{where}: is of version {version}, from a newer agentrun; use that one")
    file, params, name = record.get("file"), record.get("params", {}), record.get("name")
    base, values, asked = record.get("base"), record.get("values", {}), record.get("asked", "")
    if not isinstance(params, dict) or not isinstance(values, dict):
        raise _damaged(where, "has params or values that are not an object")
    if isinstance(file, str) and file:
        path = absolute(root.parent / file)
        identity: dict[str, Any] = {"params": params} if params else {}
        identity |= {"name": name} if isinstance(name, str) and name else {}
        return KeptJob(base=path.parent, file=path, layer=Layer(KEPT_LABEL, identity))
    if isinstance(base, str) and base:
        layer = Layer(JOB_JSON, values)
        return KeptJob(base=absolute(root.parent / base), layer=layer, asked=asked if isinstance(asked, str) else "")
    raise _damaged(where, "names neither a job file nor a folder")


def _damaged(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where}: {what}; give the job file, or the flags of the first start, again")


def relative(path: Path, root: Path) -> str:
    """A path as seen from the parent of the state folder: the same when both are moved together."""
    parent = root.absolute().parent
    return str(path.relative_to(parent)) if path.is_relative_to(parent) else str(path)
