"""Commands that people wait for import little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "anyio",
    "asyncio",
    "tenacity",
    "rich",
    "filelock",
    "multiprocessing",
    "concurrent.futures",
    "pydantic",
    "dotenv",
)
MODELS = ("pydantic_ai", "genai_prices", "jsonschema", "httpx", "httpx2", "openai", "anthropic", "google.genai")
OURS = ("agentrun.launch", "agentrun.api", "agentrun.executors", "agentrun.store.folder")


def test_the_library_imports_little() -> None:
    code = "import sys, agentrun; agentrun.run, agentrun.Answer, agentrun.Context; print('\\n'.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(ended.stdout.split())
    assert "agentrun.agents.context" in loaded
    assert [name for name in MODELS if name in loaded] == []


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["start", "--help"]])
def test_little_is_imported(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys; sys.argv[0] = 'agentrun'\n"
        "from agentrun_cli.main import main\n"
        "try: main()\n"
        "finally: print('\\n'.join(sys.modules), file=sys.__stderr__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    loaded = set(ended.stderr.split())
    assert ended.returncode == 0 and "agentrun_cli.main" in loaded
    assert [name for name in (*HEAVY, *MODELS, *OURS) if name in loaded] == []


def test_words_that_need_no_check_import_no_checker(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv[0] = 'agentrun'\n"
        "from agentrun_cli.main import main\n"
        "try: main()\n"
        "finally: print('pydantic' in sys.modules)\n"
    )

    def loads_it(*words: str) -> tuple[int, bool]:
        ended = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return ended.returncode, "True" in ended.stdout

    assert loads_it("start", "nothing.toml", "-j", "4", "-q", "-o", "out.jsonl") == (2, False)
    assert loads_it("start", "nothing.toml", "-j", "four")[0] == 2
