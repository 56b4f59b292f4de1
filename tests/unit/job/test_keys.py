"""Keys from the environment: three ways, and what is wrong with one is said without showing it."""

from __future__ import annotations

import os
import shlex
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from agentrun.errors import TrustError, UsageError
from agentrun.job.keys import new_key, read_keys
from agentrun.system.trust import TRUST_VARIABLE

ONE, TWO = bytes(range(32)), b"\xfb\xff" * 16
SECRET = b64encode(ONE).decode()


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


def printing(text: str, *, then: str = "") -> dict[str, str]:
    """An environment with a command that prints this."""
    program = f"print({text!r}); {then}"
    return {"PATH": os.environ["PATH"], "AGENTRUN_KEY_COMMAND": shlex.join([sys.executable, "-c", program])}


def test_without_a_variable_there_are_no_keys() -> None:
    assert read_keys({"AGENTRUN_STORE": "sqlite:///jobs.db"}) is None


@pytest.mark.parametrize(
    "text", [ONE.hex(), ONE.hex().upper(), SECRET, SECRET.rstrip("="), urlsafe_b64encode(ONE).decode(), f"  {SECRET}\n"]
)
def test_a_key_is_hex_or_base64(text: str) -> None:
    assert read_keys({"AGENTRUN_KEY": text}) == [ONE]


@pytest.mark.parametrize("text", [b64encode(TWO).decode(), urlsafe_b64encode(TWO).decode(), TWO.hex()])
def test_both_alphabets_of_base64_are_read(text: str) -> None:
    assert read_keys({"AGENTRUN_KEY": text}) == [TWO]


@pytest.mark.parametrize("between", [" ", ",", ", ", "\n", "\n\n"])
def test_of_several_keys_the_first_comes_first_and_none_comes_twice(between: str) -> None:
    assert read_keys({"AGENTRUN_KEY": between.join([TWO.hex(), SECRET, TWO.hex()])}) == [TWO, ONE]


def test_a_new_key_is_one_and_each_is_another() -> None:
    keys = {new_key() for _ in range(10)}
    assert len(keys) == 10
    assert all(len(found) == 32 for key in keys for found in read_keys({"AGENTRUN_KEY": key}) or [])


@pytest.mark.parametrize(
    "text", ["hunter2", SECRET[:-2], ONE.hex() + "0", SECRET + "A", f"{ONE.hex()} hunter2", "🔑" * 43]
)
def test_what_is_not_a_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_keys({"AGENTRUN_KEY": text})
    assert "is not 32 bytes in base64 or hex; make one with: agentrun rekey --new" in caught.value.message
    assert not any(word in caught.value.message for word in text.split())
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["AGENTRUN_KEY", "AGENTRUN_KEY_FILE", "AGENTRUN_KEY_COMMAND"])
@pytest.mark.parametrize("value", ["", " \n"])
def test_a_variable_that_is_set_but_empty_does_not_mean_in_clear(name: str, value: str) -> None:
    with pytest.raises(UsageError, match="is set, but empty"):
        read_keys({name: value})


@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_variable_does_not_count_beside_one_with_a_key(value: str) -> None:
    assert read_keys({"AGENTRUN_KEY_FILE": value, "AGENTRUN_KEY": SECRET, "AGENTRUN_KEY_COMMAND": value}) == [ONE]


def test_two_variables_are_refused() -> None:
    with pytest.raises(UsageError, match="AGENTRUN_KEY and AGENTRUN_KEY_FILE are set; keep one"):
        read_keys({"AGENTRUN_KEY": SECRET, "AGENTRUN_KEY_FILE": "keys"})


# ---- a file


def test_a_file_has_a_key_a_line_and_comments(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"# of 2026\n{TWO.hex()}\n\n  # before\n{SECRET}\n")
    assert read_keys({"AGENTRUN_KEY_FILE": str(path)}) == [TWO, ONE]


def test_a_link_to_a_file_is_followed_as_secrets_are_mounted(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(key_file(tmp_path, SECRET))
    assert read_keys({"AGENTRUN_KEY_FILE": str(link)}) == [ONE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key_file(tmp_path, SECRET, mode)
    with pytest.raises(TrustError) as caught:
        read_keys({"AGENTRUN_KEY_FILE": str(path)})
    assert f"chmod go= {path}" in caught.value.message and SECRET not in caught.value.message
    name, _, value = caught.value.setting.partition("=")
    monkeypatch.setenv(name, value)
    assert name == TRUST_VARIABLE
    assert read_keys({"AGENTRUN_KEY_FILE": str(path)}) == [ONE]


def test_a_file_that_is_no_file_or_not_there_is_refused_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_keys({"AGENTRUN_KEY_FILE": str(path)})


def test_a_file_that_is_too_large_or_holds_no_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more than 65536 bytes"):
        read_keys({"AGENTRUN_KEY_FILE": str(key_file(tmp_path, "#" * 70_000))})
    with pytest.raises(UsageError, match="holds no key"):
        read_keys({"AGENTRUN_KEY_FILE": str(key_file(tmp_path, "# soon\n"))})


# ---- a command


def test_a_command_prints_the_keys() -> None:
    assert read_keys(printing(f"{TWO.hex()}\n{SECRET}")) == [TWO, ONE]


def test_a_command_that_fails_is_refused_and_its_output_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    environ = printing(SECRET, then="import sys; print('token=hunter2', file=sys.stderr); sys.exit(3)")
    with pytest.raises(UsageError) as caught:
        read_keys(environ)
    assert "failed with exit code 3; run it by hand" in caught.value.message
    # Its arguments may hold a secret, too.
    assert "hunter2" not in caught.value.message and SECRET not in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_a_command_that_does_not_end_is_killed() -> None:
    with pytest.raises(UsageError, match=r"has not finished in 0.1 s; run it by hand"):
        read_keys(printing(SECRET, then="import time; time.sleep(600)"), command_seconds=0.1)


@pytest.mark.parametrize("text", ["", "no key"])
def test_a_command_that_prints_no_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"holds no key|is not 32 bytes"):
        read_keys(printing(text))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/no/such/program --token hunter2", "/no/such/program: cannot be run"),
        ("'unclosed", "cannot be split into words"),
        ("''", "cannot be run"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read_keys({"AGENTRUN_KEY_COMMAND": command})
    assert "hunter2" not in caught.value.message
