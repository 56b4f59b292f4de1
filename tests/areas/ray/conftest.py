"""Jobs on a real Ray, in network namespaces of their own, and the real command."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.network import Network
from needs import require_linux, require_module, require_program, require_root

require_linux()
require_root()
require_program("ip", "nsenter", "unshare")
require_module("ray", extra="ray")

TEXTS = [*(f"item {n}" for n in range(11)), "0123456789" * 30_000]
"""The last is more than Ray would send with a call."""
SECRET = "correct-horse-battery-staple"


class SecretJob:
    """A job whose agent needs a secret, and tells only its hash; and which of Ray's variables it sees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / ".env").write_text(f"SECRET={SECRET}\n")
        (folder / ".env").chmod(0o600)
        (folder / "agent.py").write_text(
            "import hashlib, os\n\ndef agent(item, ctx):\n"
            "    size = ctx.step('size', len, item.text)\n"
            "    of_ray = {name for name in os.environ if name.startswith('RAY_') or name == 'PYTHONBREAKPOINT'}\n"
            "    digest = hashlib.sha256(os.environ['SECRET'].encode()).hexdigest()\n"
            "    of_cluster = {'RAY_TMPDIR', 'RAY_USAGE_STATS_ENABLED', 'RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S'}\n"
            "    return [size, item.text[::-1], digest, sorted(of_ray - of_cluster)]\n"
        )
        (folder / "items.txt").write_text("\n".join(TEXTS) + "\n")
        (folder / "job.toml").write_text(
            'agent = "agent.py:agent"\noutput = "results.jsonl"\nenv_file = ".env"\n[items]\nlines = "items.txt"\n'
            "[run]\nconcurrency = 2\n"
        )

    @property
    def results(self) -> bytes:
        return (self.folder / "results.jsonl").read_bytes()

    def check(self) -> None:
        digest = hashlib.sha256(SECRET.encode()).hexdigest()
        outputs = [json.loads(line)["output"] for line in self.results.splitlines()]
        assert outputs == [[len(text), text[::-1], digest, []] for text in TEXTS]


def files_with(folder: Path, text: str) -> tuple[int, list[str]]:
    """How many files there are in a folder, and those that hold the text."""
    count, found = 0, []
    for above, _, names in os.walk(folder):
        for path in (Path(above, name) for name in names):
            if path.is_file() and not path.is_symlink():
                count += 1
                if text.encode() in path.read_bytes():
                    found.append(str(path))
    return count, found


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network
