from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.errors import JobError
from agentrun.job.env import load_env_file
from agentrun.job.file import default_name, read_job_file


def test_a_job_file_is_read_and_a_folder_means_its_job_toml(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b'\xef\xbb\xbfname = "x"\r\n[run]\r\nretries = 1\r\n')
    assert read_job_file(tmp_path) == read_job_file(tmp_path / "job.toml")
    assert read_job_file(tmp_path).values == {"name": "x", "run": {"retries": 1}}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'a = 1\nb = "x', "line 2, column 5"),
        (b"a = 1\nb 2\n", "line 2, column 3"),
        (b"a = [", "line 1, column 6"),
        (b"a = 1\nx = '\xff'\n", "line 2, column 6: is not UTF-8"),
    ],
)
def test_bad_toml_is_refused_with_file_line_and_column(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(JobError) as caught:
        read_job_file(path)
    assert str(caught.value).startswith(f"{path}: {place}")


def test_a_missing_job_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"nope\.toml: there is no such job file"):
        read_job_file(tmp_path / "nope.toml")
    with pytest.raises(JobError, match=r"job\.toml: there is no such job file"):
        read_job_file(tmp_path)


def test_an_env_file_has_comments_exports_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(
        '# keys\n\nA=1\nexport B = two words # note\nC=\'# $x \\n\'\nD="a\\nb\\"c" # note\nE=\nF=a#b\nG= # none\n',
    )
    assert load_env_file(path) == {
        "A": "1",
        "B": "two words",
        "C": "# $x \\n",
        "D": 'a\nb"c',
        "E": "",
        "F": "a#b",
        "G": "",
    }


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("sk-secret", "is not of the form KEY=VALUE"),
        ("1X=sk-secret", "is not of the form KEY=VALUE"),
        ("export sk_secret", "is not of the form KEY=VALUE"),
        ("KEY: sk-secret", "is not of the form KEY=VALUE"),
        ('B="sk-secret', "has a quoted value of B that does not end"),
        ('B="sk-secret\nC="more"', "has a quoted value of B that does not end"),
        ("B='sk-secret' more", "or something after its end"),
        ("B=sk-secret\0", "has a NUL character in the value of B"),
    ],
)
@pytest.mark.parametrize(("before", "number"), [("A=1\n", 2), ('A="1\n2"\r\n\r\n  \n# note\n', 6)])
def test_nonsense_in_an_env_file_is_refused_by_line_and_never_shown(
    tmp_path: Path, line: str, what: str, before: str, number: int
) -> None:
    path = tmp_path / ".env"
    path.write_text(f"{before}{line}\n", newline="")
    with pytest.raises(JobError) as caught:
        load_env_file(path)
    assert str(caught.value).startswith(f"{path}: line {number} {'has' if line[0] == 'B' else 'is'}")
    assert what in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('A="-----BEGIN\nabc\n-----END"', "-----BEGIN\nabc\n-----END"),
        ('A="one\r\ntwo"\r\n', "one\ntwo"),
        ("A=#fff", "#fff"),
        ("A=#fff # white", "#fff"),
        ('A="C:\\dir\\new"', "C:\\dir\new"),
        (r"A='it\'s'", "it's"),
        ("A=$HOME ${HOME}", "$HOME ${HOME}"),
        ("A=1\nA=2", "2"),
        ("A = c2VjcmV0==", "c2VjcmV0=="),
    ],
)
def test_an_env_file_means_what_it_means_elsewhere(tmp_path: Path, text: str, value: str) -> None:
    path = tmp_path / ".env"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_env_file(path) == {"A": value}


def test_the_default_name_is_the_stem_the_folder_or_the_function(tmp_path: Path) -> None:
    folder = tmp_path / "triage"
    folder.mkdir()
    assert default_name(folder / "job.toml") == default_name(str(folder)) == "triage"
    assert default_name("jobs/nightly.toml") == "nightly"
    assert default_name("lib/summarise.py:main") == "main"
