"""The line of a key, and what to write where a job file is not TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.errors import JobError
from agentrun.job.build import build_job
from agentrun.job.file import read_job_file
from agentrun.job.tomltext import find_line

HEAD = 'agent = "a.py:b"\n'
NOT_CLOSED = "the text that begins here is not closed; put"


@pytest.fixture
def refusal(tmp_path: Path) -> object:
    def refuse(text: str) -> JobError:
        path = tmp_path / "job.toml"
        path.write_text(text)
        with pytest.raises(JobError) as caught:
            build_job([read_job_file(path)], base=tmp_path, file=path, default_name="x")
        return caught.value

    return refuse


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ('name = "abc\nagent = 1', "line 1, column 8", f'{NOT_CLOSED} a " at the end of the line'),
        ("# don't\nname = 'abc", "line 2, column 8", f"{NOT_CLOSED} a ' at the end of the line"),
        ('a = 1\nprompt = """\nSum up\n\n', "line 2, column 10", f'{NOT_CLOSED} """ at its end'),
        ('x = "a" # say "hi\ny = ["z]', "line 2, column 6", NOT_CLOSED),
        ("files = docs/*.txt", "line 1, column 9", 'write files = "docs/*.txt"'),
        ("\ntimeout = 30m # long", "line 2, column 13", 'write timeout = "30m"'),
        ('timeout: "30m"', "line 1, column 8", 'write timeout = "30m"'),
        ("x = True", "line 1", "write x = true"),
        ("x = “a”", "line 1", 'write x = "a"'),
        ("x = 'it's'", "line 1", 'write x = "it\'s"'),
        ("x = 08", "line 1", "write x = 8"),
        ("x =", "line 1", "write a value after x =, or leave the line out"),
        ('x = "C:\\docs"', "line 1", "write a backslash twice, or put the text in single quotes"),
        ("[items\n", "line 1, column 7", "write a table as [run], on a line of its own"),
        ("a = [1,\n2", "line 2, column 2", "close the list with ]"),
        ("a = 1\na = 2", "line 2", "give it once"),
        ("[run]\n[run] # mine", "line 2, column 5", "[run] is here a second time; put its values under the first"),
        ("= 3", "line 1, column 1", "write key = value, [table], or # and a comment"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_place_and_what_would_do(
    refusal: object, text: str, place: str, what: str
) -> None:
    message = refusal(text).message  # type: ignore[operator]
    assert f"job.toml: {place}" in message and what in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        (HEAD + "[items]\nfiles = 3\n", 3, "items.files"),
        (HEAD + '[items]\nfiles = ["a/*",\n  "b/*"]\n\n[run]\nconcurrency = "8"\n', 7, "run.concurrency"),
        (HEAD + 'run = {timeout = "x"}\n[items]\nfiles = "*"\n', 2, "run.timeout"),
        (HEAD + 'run.timeout = "x"\n[items]\nfiles = "*"\n', 2, "run.timeout"),
        (HEAD + '[items]\nfiles = """\n[run]\nkey = 1\n"""\nkey = 3\n', 7, "items.key"),
        (HEAD + '# "[run]\n[items]\nfiles = "*" # {[\nfoo = 1\n', 5, "items.foo"),
        (HEAD + 'command = ["a"]\n[items]\nfiles = "*"\n', 2, "command"),
        (HEAD + '[ "items" ]\n"files" = "*"\n[run]\nmax_age = "old"\n', 5, "run.max_age"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(refusal: object, text: str, line: int, key: str) -> None:
    error = refusal(text)  # type: ignore[operator]
    assert (error.line, error.key) == (line, key)
    assert f"job.toml: line {line}: " in error.message


def test_the_line_of_what_is_nowhere_is_unknown() -> None:
    assert find_line("a = 1\n", "b") is None
    assert find_line("a = 1\n[b]\n", "b.c") == 2
