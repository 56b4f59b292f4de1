"""Commands that people wait for import little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .made import Made

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
LOOP = ("agentrun.launch", "agentrun.api", "agentrun.executors", "asyncio")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, ["ada", "bea"])


def test_the_library_imports_little() -> None:
    code = "import sys, agentrun; agentrun.run, agentrun.Answer, agentrun.Context; print('\\n'.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(ended.stdout.split())
    assert "agentrun.agents.context" in loaded
    assert [name for name in MODELS if name in loaded] == []


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["status", "--all"], ["start", "--help"]])
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
    assert [name for name in (*HEAVY, *MODELS, *LOOP) if name in loaded] == []


@pytest.mark.parametrize("words", [["drafts"], ["drafts", "--check"], ["drafts", "--json"]])
def test_the_status_of_a_job_does_not_load_the_loop(made: Made, words: list[str]) -> None:
    made.commit(made.entry("ada"), made.entry("bea"), finish=True)
    code = (
        "import sys; sys.argv[0] = 'agentrun'\n"
        "from agentrun_cli.main import main\n"
        "try: main()\n"
        "finally: print('\\n'.join(sys.modules), file=sys.__stderr__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "status", *words],
        cwd=made.base,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    loaded = set(ended.stderr.split())
    assert ended.returncode == 0 and "agentrun.views.jobs" in loaded, ended.stderr
    assert [name for name in (*HEAVY, *MODELS, *LOOP) if name in loaded] == []


def test_an_answer_does_not_load_the_loop(made: Made) -> None:
    made.commit(made.waiting("ada"))
    code = (
        "import sys; sys.argv[0] = 'agentrun'\n"
        "from agentrun_cli.main import main\n"
        "try: main()\n"
        "finally: print('\\n'.join(sys.modules))\n"
    )
    words = ["answer", "drafts", "ada", "--yes"]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=made.base, capture_output=True, text=True, timeout=120, check=False
    )
    loaded = set(ended.stdout.split())
    assert ended.returncode == 0 and "agentrun.people.desk" in loaded, ended.stderr
    assert [name for name in (*MODELS, *LOOP) if name in loaded] == []


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
    assert loads_it("start", "a.py:f", "--items", "none/*.txt", "--set", "k=v") == (2, False)
    assert loads_it("redo", "nothing", "one", "two") == (2, False)
    assert loads_it("start", "nothing.toml", "-j", "four")[0] == 2
