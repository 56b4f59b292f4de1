"""Commands that people wait for import little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("anyio", "asyncio", "tenacity", "rich", "filelock", "multiprocessing", "concurrent.futures")
OURS = ("agentrun.launch", "agentrun.execution", "agentrun.api", "agentrun.executors", "agentrun.store.folder")


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["start", "--help"]])
def test_little_is_imported(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys; sys.argv[0] = 'agentrun'\n"
        "from agentrun_cli.main import main\n"
        "try: main()\n"
        "finally: print('\\n'.join(sys.modules), file=sys.__stderr__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    loaded = set(ended.stderr.split())
    assert ended.returncode == 0 and "agentrun_cli.main" in loaded
    assert [name for name in (*HEAVY, *OURS) if name in loaded] == []
