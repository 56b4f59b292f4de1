"""agentrun edit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.made import Made
from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]
OUTPUT = {"category": "urgent", "score": 0.5}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    run = Made(tmp_path, [*"abcde"])
    run.commit(run.entry("a", output=OUTPUT), run.entry("b", output="Dear Ben,\nhello\n"))
    run.commit(run.failed("c"), run.waiting("d"))
    return run


@pytest.fixture
def editor(tmp_path: Path) -> Callable[..., str]:
    """An EDITOR that replaces words in the file, one replacement a call, and keeps what it was given."""

    def make(*replacements: tuple[str, str], code: int = 0) -> str:
        (tmp_path / "replacements.json").write_text(json.dumps(replacements))
        script = tmp_path / "editor.py"
        script.write_text(
            "import json, os, pathlib, stat, sys\n"
            "here, path = pathlib.Path(__file__).parent, pathlib.Path(sys.argv[-1])\n"
            "todo = json.loads((here / 'replacements.json').read_text())\n"
            "assert sys.argv[1] == 'an option' and stat.S_IMODE(os.stat(path).st_mode) == 0o600\n"
            "(here / 'given').write_bytes(path.read_bytes())\n"
            "old, new = todo.pop(0)\n"
            "(here / 'replacements.json').write_text(json.dumps(todo))\n"
            "path.write_text(path.read_text().replace(old, new) + ('' if old == 'as is' else '\\n'))\n"
            "(here / 'path').write_text(str(path))\n"
            f"sys.exit({code})\n"
        )
        return f"python3 {script} 'an option'"

    return make


def test_an_output_is_edited_as_json(made: Made, agentrun: Run, editor: Callable[..., str], tmp_path: Path) -> None:
    ended = agentrun("edit", "drafts", "a", "--by", "Grace", EDITOR=editor(("urgent", "normal")), VISUAL="")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "a: your edit is posted; to continue: agentrun resume drafts\n"
    (message,) = made.posted()
    assert (message["kind"], message["key"], message["seq"], message["by"]) == ("edit", "a", 1, "Grace")
    assert message["output"] == {"category": "normal", "score": 0.5} and "carry" not in message
    assert (tmp_path / "given").read_text() == json.dumps(OUTPUT, indent=2)
    assert not Path((tmp_path / "path").read_text()).exists()


def test_text_is_edited_as_it_is(made: Made, agentrun: Run, editor: Callable[..., str], tmp_path: Path) -> None:
    command = editor(("Ben,", "Benjamin,"))
    assert agentrun("edit", "drafts", "b", VISUAL=command, EDITOR="false").returncode == 0
    assert (tmp_path / "given").read_text() == "Dear Ben,\nhello\n"
    assert [message["output"] for message in made.posted()] == ["Dear Benjamin,\nhello\n\n"]


@pytest.mark.parametrize("replacement", [("as is", ""), ("nothing", "nothing")])
def test_what_is_left_as_it_is_posts_nothing(
    made: Made, agentrun: Run, editor: Callable[..., str], replacement: tuple[str, str]
) -> None:
    ended = agentrun("edit", "drafts", "a", VISUAL=editor(replacement))
    assert ended.returncode == 0 and "a: unchanged" in ended.stderr
    assert made.posted() == []


def test_an_editor_that_fails_or_writes_no_json_posts_nothing(
    made: Made, agentrun: Run, editor: Callable[..., str]
) -> None:
    failing = agentrun("edit", "drafts", "a", VISUAL=editor(("urgent", "normal"), code=3))
    assert failing.returncode == 2 and "exited with 3; nothing is posted" in failing.stderr
    broken = agentrun("edit", "drafts", "a", VISUAL=editor(("urgent", '"')))
    assert broken.returncode == 2 and "not JSON at line 2" in broken.stderr
    missing = agentrun("edit", "drafts", "a", VISUAL="no-such-editor")
    assert missing.returncode == 2 and "cannot be started" in missing.stderr and "set EDITOR" in missing.stderr
    assert made.posted() == []


def test_on_a_terminal_what_is_not_json_can_be_edited_again(
    made: Made, editor: Callable[..., str], tmp_path: Path
) -> None:
    terminal = Terminal("edit", "drafts", "a", cwd=tmp_path, VISUAL=editor(("urgent", '"'), ('""', '"mended')))
    try:
        terminal.until("not JSON at line 2")
        terminal.until("edit it again? [Y/n]")
        terminal.type("")
        code, _ = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    # What was typed is not lost: the second time begins with it.
    assert '"""' in (tmp_path / "given").read_text()
    assert [message["output"]["category"] for message in made.posted()] == ["mended"]


@pytest.mark.parametrize(
    ("given", "key", "output"),
    [
        ('{"category": "normal"}', "a", {"category": "normal"}),
        ('"text"', "a", "text"),
        ("@new.json", "a", [1, None]),
        ("@new.txt", "b", "Dear Ben, [1]\n"),
        ("@new.json", "b", [1, None]),
    ],
)
def test_an_output_is_given(made: Made, agentrun: Run, tmp_path: Path, given: str, key: str, output: Any) -> None:
    (tmp_path / "new.json").write_text("[1, null]")
    (tmp_path / "new.txt").write_text("Dear Ben, [1]\n")
    ended = agentrun("edit", "drafts", key, "--output", given)
    assert ended.returncode == 0, ended.stderr
    assert [message["output"] for message in made.posted()] == [output]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["c"], "c is failed and has no output to edit; run it again with: agentrun redo drafts c"),
        (["d"], "answer it with: agentrun answer drafts d"),
        (["e"], "e is pending and has no output to edit; edit it once it is done"),
        ([], "which item?"),
        (["a", "--output", "urgent"], "--output: not JSON"),
        (["a", "--output", "NaN"], "NaN is not JSON"),
        (["a", "--output", "@nowhere"], "nowhere: cannot be read: No such file"),
        (["--carry"], "this job has no carry"),
        (["a", "--carry"], "leave out the item"),
    ],
)
def test_what_cannot_be_edited_is_an_error_and_posts_nothing(
    made: Made, agentrun: Run, arguments: list[str], words: str
) -> None:
    ended = agentrun("edit", "drafts", *arguments)
    assert ended.returncode == 2 and words in ended.stderr, ended.stderr
    assert made.posted() == []


def test_the_carry_after_the_last_settled_item_is_edited(
    tmp_path: Path, agentrun: Run, editor: Callable[..., str]
) -> None:
    made = Made(tmp_path, [*"abc"], carry=True)
    made.commit(made.entry("a", after=0, carry={"sum": 1}))
    made.commit(made.entry("b", after=1, carry={"sum": 3}))
    ended = agentrun("edit", "drafts", "--carry", VISUAL=editor(("3", "4")))
    assert ended.returncode == 0, ended.stderr
    (message,) = made.posted()
    assert (message["key"], message["seq"], message["carry"]) == ("b", 2, {"sum": 4}) and "output" not in message
