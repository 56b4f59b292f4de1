"""The reference has everything: what is added to the code must be added there."""

from __future__ import annotations

import builtins
import dataclasses
import re
from pathlib import Path

import pytest

import agentrun
from agentrun.agents import failure
from agentrun.checkpoint.summary import Summary as Details
from agentrun.job.fields import ITEMS, LANGGRAPH, NOTIFY, RUN, TOP
from agentrun_cli.commands import COMMANDS, INSIDE
from agentrun_cli.main import EXITS
from pages.page import REPOSITORY, pages, prose
from pages.parser import commands, flags_of

REFERENCE = REPOSITORY / "docs/reference"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Not by its name on PyPI, which is another package; nor with an extra, a version or by another installer.
FORBIDDEN = re.compile(r"(pip3?|pipx|uv tool|uv pip|uv) (install|add|run)( -\S+)* ['\"]?agentrun(?!-batch)\b")


def named_in_tables(page: str) -> set[str]:
    """The words in `code` at the beginning of a row's first cell."""
    rows = re.findall(r"^\| ([^|]*) \|", (REFERENCE / page).read_text(), re.MULTILINE)
    return {name for row in rows for code in re.findall(r"`([^`]+)`", row) for name in code.split()[:1]}


@pytest.mark.parametrize("key", sorted({*TOP, *ITEMS, *RUN, *NOTIFY, *LANGGRAPH}))
def test_every_key_of_a_job_file_has_a_row(key: str) -> None:
    assert key in named_in_tables("job-file.md")


@pytest.mark.parametrize("name", [*COMMANDS, *INSIDE])
def test_every_command_has_a_row(name: str) -> None:
    text = (REFERENCE / "commands.md").read_text()
    assert re.search(rf"^\| `agentrun {name}\b", text, re.MULTILINE)


@pytest.mark.parametrize("flag", sorted(flags_of("start")))
def test_every_flag_of_start_has_a_row(flag: str) -> None:
    text = (REFERENCE / "commands.md").read_text().partition("## Flags of start")[2].partition("\n## ")[0]
    assert re.search(rf"`{flag}\b", text), flag


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"start", "resume", "try"}))
def test_every_flag_of_the_other_commands_is_in_its_row(name: str) -> None:
    (row,) = re.findall(
        rf"^\| `agentrun {name}\b.*\[?(?:JOB|FOLDER|SHELL).*$", (REFERENCE / "commands.md").read_text(), re.MULTILINE
    )
    # Those that every command has, and short forms of what is named.
    known = {"--state-dir", "--store", "--index", "--help", "-h", "-y", "-w", "-n", "--lines", "--wait"}
    assert [flag for flag in sorted(flags_of(name) - known) if not re.search(rf"{flag}\b", row)] == []


def test_the_exit_codes_are_those_of_the_help() -> None:
    told = set(re.findall(r"^ +(\d+(?:, \d+)*)  ", EXITS, re.MULTILINE))
    table = (REFERENCE / "exit-codes.md").read_text().partition("## ")[0]
    assert set(re.findall(r"^\| (\d+(?:, \d+)*) \|", table, re.MULTILINE)) == told


def test_the_programming_errors_are_listed() -> None:
    text = (REFERENCE / "exit-codes.md").read_text().partition("### Programming errors")[2]
    listed = set(re.findall(r"`(\w+)`", text.partition("derived from them")[0]))
    assert listed == _programming_errors()


def _programming_errors() -> set[str]:
    """The builtin exceptions that fail an item without another attempt."""
    found = set()
    for name, kind in vars(builtins).items():
        if isinstance(kind, type) and issubclass(kind, BaseException):
            facts = failure.Failure(origin="exception", types=(f"builtins.{name}",))
            if failure.judge(facts).verdict == "item":
                found.add(name)
    return found


def test_the_context_is_described() -> None:
    public = {name for name in vars(agentrun.Context) if not name.startswith("_")} - {
        "carry_message",
        "close",
        "made_files",
    }
    described = set(re.findall(r"`ctx\.(\w+)", (REFERENCE / "python.md").read_text()))
    assert public <= described


def test_the_summary_is_described() -> None:
    text = (REFERENCE / "python.md").read_text()
    fields = {one.name for one in dataclasses.fields(agentrun.Summary)} | {*vars(agentrun.Summary)}
    assert {name for name in fields if not name.startswith("_")} <= set(re.findall(r"`summary\.(\w+)", text))
    table = text.partition("### Details, and `--json`")[2].partition("\n## ")[0]
    assert {*Details(run_id="").as_json()} <= set(re.findall(r"`(\w+)`", table))


@pytest.mark.parametrize("name", agentrun.__all__)
def test_every_public_name_is_mentioned(name: str) -> None:
    text = (REFERENCE / "python.md").read_text()
    assert re.search(rf"\b{name}\b", text) or name == "Job"


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_commands_in_the_text_exist(path: Path) -> None:
    for code in re.findall(r"`(agentrun [^`]+)`", prose(path)):
        name = code.split()[1]
        assert name in {*commands(), "log", "COMMAND"} or name.startswith("-"), f"{path.name}: {code}"
        if name in commands() and name not in INSIDE:
            ours = code.partition(" -- ")[0]
            for flag in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", ours):
                assert flag in flags_of(name) | {"--help"}, f"{path.name}: {code}"


@pytest.mark.parametrize(
    "path",
    [*pages(), *(REPOSITORY / name for name in ("CONTRIBUTING.md", "samples/README.md", "runner/DESIGN.md"))],
    ids=lambda path: path.relative_to(REPOSITORY).as_posix(),
)
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(path.read_text()):
        if re.match(r"https?://", link):
            continue
        where, _, anchor = link.partition("#")
        target = (path.parent / where).resolve() if where else path
        assert target.exists(), f"{path.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{path.name}: {link}"


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_listed() -> None:
    index = (REPOSITORY / "docs/README.md").read_text()
    for path in pages()[1:]:
        if path.name != "README.md":
            assert f"({path.relative_to(REPOSITORY / 'docs').as_posix()})" in index, path


def test_readme_is_one_screen() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 150


def test_the_unrelated_package_is_never_installed() -> None:
    texts = [*pages(), *(REPOSITORY / "samples").rglob("*.md"), REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "Makefile"]
    for path in texts:
        assert FORBIDDEN.search(path.read_text()) is None, path
    for line in (
        "pip install agentrun",
        "uv tool install agentrun",
        "pipx install 'agentrun[llm]'",
        "pip install -U agentrun",
    ):
        assert FORBIDDEN.search(line)
    assert FORBIDDEN.search("pip install .") is None and FORBIDDEN.search("pip install agentrun-batch") is None


def test_a_page_that_shows_a_picture_has_it() -> None:
    shown = [
        (path.parent / link).resolve()
        for path in pages()
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", path.read_text())
    ]
    begins = {".svg": b"<svg", ".png": b"\x89PNG"}
    assert shown and all(one.read_bytes().lstrip().startswith(begins[one.suffix]) for one in shown)
