"""Items that a shell would run as code."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from agentrun.job.shell import shell_warning


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["sh", "-c", "echo {}"], "sh -c 'echo \"$1\"' sh {}"),
        (["sh", "-c", 'echo "{}"'], "sh -c 'echo \"$1\"' sh {}"),
        (
            ["/bin/bash", "-euo", "pipefail", "-c", "cat '{path}'"],
            "/bin/bash -euo pipefail -c 'cat \"$1\"' bash {path}",
        ),
        (["timeout", "5", "sh", "-ec", "x {key} {key} {}"], 'timeout 5 sh -ec \'x "$1" "$1" "$2"\' sh {key} {}'),
        (["sh", "-c", 'x "$1" {}', "me", "one"], 'sh -c \'x "$1" "$2"\' me one {}'),
    ],
)
def test_a_placeholder_in_the_code_of_a_shell_is_warned_of_with_what_to_write(command: list[str], instead: str) -> None:
    warning = shell_warning(command)
    assert warning is not None and warning.endswith(f"so the shell runs the item's text as code; write: {instead}")


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", 'echo "$1"', "sh", "{}"],
        ["sh", "-c", "echo {index} >{out}/x"],
        ["sh", "-c", "echo {{}}"],
        ["sh", "run.sh", "-c", "{}"],
        ["./ask.sh", "-c", "{}"],
        ["sh", "-c"],
        ["python3", "-c", "print()", "{}"],
        [],
    ],
)
def test_what_is_no_code_of_a_shell_is_not_warned_of(command: list[str]) -> None:
    assert shell_warning(command) is None


@pytest.mark.parametrize(
    "code",
    ["echo {}", 'echo "{}"', "echo '{}'", "echo 'a {} b'", "echo \"a '{}' b\"", "echo 'a'{}'b'", "echo 'a\\' {}"],
)
def test_what_is_suggested_does_the_same_and_runs_no_code(code: str) -> None:
    warning = shell_warning(["sh", "-c", code])
    assert warning is not None
    suggested = shlex.split(warning.partition("write: ")[2])
    harmless = subprocess.run(["sh", "-c", code.replace("{}", "plain")], capture_output=True, check=True).stdout
    for item, expected in (("plain", harmless), ("$(exit 1);'\"", harmless.replace(b"plain", b"$(exit 1);'\""))):
        argv = [item if word == "{}" else word for word in suggested]
        assert subprocess.run(argv, capture_output=True, check=True).stdout == expected
