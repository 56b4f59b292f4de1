"""The user's code is loaded and checked before any item runs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentrun.agents.agent import Agent, agent_from_function, load_agent
from agentrun.agents.loading import AgentReference, LoadedEnough, loading_in_worker
from agentrun.errors import AgentError
from agentrun.job.job import ItemsSpec, Job


@pytest.fixture(autouse=True)
def _interpreter_as_before() -> Iterator[None]:
    path, modules, main = list(sys.path), set(sys.modules), sys.modules["__main__"]
    yield
    sys.path[:] = path
    sys.modules["__main__"] = main
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "agent_under_test.py", *, mode: int = 0o644) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        path.chmod(mode)
        return path

    return write


def job(base: Path, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "name": "test",
        "base": base,
        "items": ItemsSpec(kind="python", pattern=""),
        "params": {},
        "output": "out.jsonl",
    }
    return Job(**{**values, **changes})


def load(base: Path, name: str = "triage", *, file: str = "agent_under_test.py", **changes: Any) -> Agent:
    return load_agent(job(base, agent=f"{file}:{name}", **changes))


def test_a_sync_function_runs_in_a_process_and_an_async_one_on_the_loop(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(
        """
        def triage(item): ...
        async def slow(item, *, ctx, more=1): ...
        class Research:
            async def __call__(self, item, ctx): ...
        """
    )
    plain, slow, research = load(tmp_path), load(tmp_path, "slow"), load(tmp_path, "Research")
    assert (plain.kind, plain.is_async, plain.wants_ctx, plain.isolation) == ("function", False, False, "process")
    assert (slow.is_async, slow.wants_ctx, slow.isolation) == (True, True, "loop")
    assert (research.kind, research.is_async, research.wants_ctx) == ("class", True, True)
    assert plain.reference == "agent_under_test.py:triage"
    assert load(tmp_path, isolation="thread").isolation == "thread"


def test_other_modules_of_the_folder_can_be_imported(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("import agent_under_test\nname = agent_under_test.__name__", "back_again.py")
    write("def triage(item): return later()\ndef later():\n    import back_again\n    return back_again.name")
    assert load(tmp_path).target(None) == "agent_under_test"


def test_the_stem_of_another_module_is_left_alone(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("def triage(item): return __name__", "json.py")
    assert load(tmp_path, file="json.py").target(None) != "json"
    import json

    assert json.dumps([1]) == "[1]"


def test_a_dotted_module_and_a_dotted_name_are_found(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("", "pkg_under_test/__init__.py")
    write("class Tools:\n    @staticmethod\n    def triage(item): ...", "pkg_under_test/agents.py")
    assert (
        load(tmp_path, "Tools.triage", file="pkg_under_test.agents").reference == "pkg_under_test.agents:Tools.triage"
    )
    assert load(tmp_path, "Tools.triage", file="pkg_under_test/agents.py").kind == "function"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"there is no file .*/nowhere\.py"):
        load(tmp_path, file="nowhere.py")


def test_a_missing_function_is_told_with_the_nearest_first(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("import json\nfrom os.path import join\ndef summarise(item): ...\ndef triage(item): ...\nx = 1")
    with pytest.raises(AgentError, match=r'there is no "triag" in it; it has: triage, summarise$'):
        load(tmp_path, "triag")


def test_an_exception_at_import_comes_with_the_users_own_traceback(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("def fetch():\n    raise OSError('no config')\n", "helper_under_test.py")
    write("import helper_under_test\nhelper_under_test.fetch()\n")
    with pytest.raises(AgentError, match="cannot be loaded: OSError: no config") as caught:
        load(tmp_path)
    trace = caught.value.traceback
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "agent_under_test.py" in trace and "helper_under_test.py" in trace
    assert "importlib" not in trace and "loading.py" not in trace
    assert "agent_under_test" not in sys.modules


def test_a_syntax_error_shows_the_place(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("def triage(item:\n")
    with pytest.raises(AgentError, match="SyntaxError") as caught:
        load(tmp_path)
    assert 'agent_under_test.py", line 1' in caught.value.traceback


def test_a_missing_package_is_told_with_interpreter_and_command(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("import no_such_package_here.part\n")
    with pytest.raises(AgentError) as caught:
        load(tmp_path)
    assert (
        f'this interpreter ({sys.executable}) has no package "no_such_package_here"; '
        f"install it with: {sys.executable} -m pip install no_such_package_here"
    ) in str(caught.value)


def test_without_pip_a_missing_package_is_installed_by_uv(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("import no_such_package_here\n")
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(AgentError, match=f"uv pip install --python {sys.executable} no_such_package_here"):
        load(tmp_path)


def test_sys_exit_at_import_is_an_error_and_ctrl_c_is_not_swallowed(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("import sys\nsys.exit(3)\n")
    with pytest.raises(AgentError, match=r"called sys\.exit\(3\)"):
        load(tmp_path)
    write("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("triage = 3", "is a int, not a function or a class"),
        ("def triage(): ...", r"takes no item, its parameters are \(\)"),
        ("def triage(ctx): ...", "takes no item"),
        ("def triage(*, item): ...", "takes no item"),
        ("def triage(item, model): ...", 'give "model" a default'),
        ("def triage(item): yield 1", "is a generator"),
        ("async def triage(item): yield 1", "is a generator"),
        ("class triage: ...", "class without __call__"),
        ("class triage:\n    def __init__(self, key): ...\n    def __call__(self, item): ...", "needs key"),
        ("class triage:\n    def __call__(self): ...", "takes no item"),
    ],
)
def test_what_cannot_be_called_with_an_item_is_refused(
    tmp_path: Path, write: Callable[..., Path], source: str, message: str
) -> None:
    write(source)
    with pytest.raises(AgentError, match=message):
        load(tmp_path)


def test_isolation_is_for_sync_agents(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("async def triage(item): ...")
    with pytest.raises(AgentError, match="async"):
        load(tmp_path, isolation="process")


def test_a_function_that_cannot_be_imported_runs_in_a_thread(tmp_path: Path) -> None:
    def closure(item: Any) -> None: ...

    for function in (closure, lambda item: item, functools.partial(closure)):
        agent = agent_from_function(function, job(tmp_path))
        assert (agent.reference, agent.isolation) == (None, "thread")
    with pytest.raises(AgentError, match="cannot import it"):
        agent_from_function(closure, job(tmp_path, isolation="process"))


def test_a_function_of_a_module_runs_in_a_process(tmp_path: Path) -> None:
    agent = agent_from_function(dedent, job(tmp_path))
    assert (agent.reference, agent.isolation, agent.is_main) == ("textwrap:dedent", "process", False)


def test_partials_and_instances_are_looked_through(tmp_path: Path) -> None:
    class Caller:
        async def __call__(self, item: Any, ctx: Any) -> None: ...

    async def agent(item: Any, other: int) -> None: ...

    assert agent_from_function(Caller(), job(tmp_path)).is_async
    assert agent_from_function(Caller(), job(tmp_path)).wants_ctx
    assert agent_from_function(functools.partial(agent, other=1), job(tmp_path)).is_async


def test_a_scripts_function_is_found_again_by_its_file(tmp_path: Path, write: Callable[..., Path]) -> None:
    script = write(
        f"""
        import sys
        from pathlib import Path
        from agentrun.agents.agent import agent_from_function
        from agentrun.job.job import ItemsSpec, Job

        def triage(item): ...
        job = Job(name="t", base=Path({str(tmp_path)!r}), params={{}}, output="o",
                  items=ItemsSpec(kind="python", pattern=""))
        agent = agent_from_function(triage, job)
        print(agent.reference, agent.isolation, agent.is_main)
        """,
        "script.py",
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert found.stdout == "script.py:triage process True\n"
    piped = subprocess.run([sys.executable], input=script.read_text(), capture_output=True, text=True, check=True)
    assert piped.stdout == "None thread False\n"


def test_in_a_worker_a_script_is_loaded_up_to_where_it_starts_the_run(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(
        """
        from agentrun.agents.loading import LoadedEnough, loading_in_worker
        def triage(item): return __name__
        if loading_in_worker():
            raise LoadedEnough
        raise RuntimeError("the run was started")
        """,
        "script.py",
    )
    reference = AgentReference(
        base=str(tmp_path),
        reference="script.py:triage",
        is_main=True,
        is_class=False,
        wants_ctx=False,
        carries=False,
        sys_path=(),
    )
    function = reference.load()
    assert function(None) == "__agentrun_main__"
    assert sys.modules["__agentrun_main__"].triage is function
    assert sys.modules["__main__"].triage is function
    assert not loading_in_worker()
    assert not issubclass(LoadedEnough, Exception)


# ---- commands


def test_a_program_must_be_there_and_executable(tmp_path: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(AgentError, match='no program "no-such-program-here" on the PATH'):
        load_agent(job(tmp_path, command=("no-such-program-here",)))
    with pytest.raises(AgentError, match="there is no file"):
        load_agent(job(tmp_path, command=("./run.sh",)))
    write("#!/bin/sh\n", "run.sh")
    with pytest.raises(AgentError, match=r"chmod \+x"):
        load_agent(job(tmp_path, command=("./run.sh",)))
    with pytest.raises(AgentError, match=r'write "\./run.sh"'):
        load_agent(job(tmp_path, command=("run.sh",)))
    write("#!/bin/sh\n", "run.sh", mode=0o755)
    agent = load_agent(job(tmp_path, command=("./run.sh", "{path}")))
    assert (agent.kind, agent.argv) == ("command", ("./run.sh", "{path}"))
    assert load_agent(job(tmp_path, command=("sh", "-c", "true"))).kind == "command"


# ---- fingerprints


def fingerprint(base: Path, **changes: Any) -> str:
    """As a launch sees it: in an interpreter that has loaded nothing yet."""
    code = "import sys; from agentrun.agents.agent import load_agent; from agentrun.job.job import ItemsSpec, Job;"
    code += "from pathlib import Path;"
    code += "values = dict(name='t', base=Path(sys.argv[1]), items=ItemsSpec(kind='python', pattern=''), params={},"
    code += "output='o', agent='agent_under_test.py:triage') | eval(sys.argv[2]);"
    code += "print(load_agent(Job(**values)).fingerprint)"
    argv = [sys.executable, "-B", "-c", code, str(base), repr(changes)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def test_a_fingerprint_covers_the_agents_file_and_what_it_imports_from_the_folder(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write("PROMPT = 'a'", "prompts_under_test.py")
    write("X = 1", "unused_under_test.py")
    write("X = 1", ".venv/lib/site-packages/installed_under_test.py")
    agent = "import sys; sys.path.append(sys.path[0] + '/.venv/lib/site-packages')\n"
    agent += "import prompts_under_test, installed_under_test\ndef triage(item): ...\n"
    write(agent)
    first = fingerprint(tmp_path)
    assert len(first) == 12 and int(first, 16) >= 0
    write("X = 2", "unused_under_test.py")
    write("X = 2", ".venv/lib/site-packages/installed_under_test.py")
    os.utime(tmp_path / "agent_under_test.py", (1, 1))
    assert fingerprint(tmp_path) == first
    write("PROMPT = 'b'", "prompts_under_test.py")
    assert (second := fingerprint(tmp_path)) != first
    write(agent + "# changed\n")
    assert fingerprint(tmp_path) not in (first, second)


def test_a_version_replaces_the_fingerprint(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("def triage(item): ...")
    before = load(tmp_path, version="3").fingerprint
    write("def triage(item): return 1")
    assert load(tmp_path, version="3").fingerprint == before
    assert load(tmp_path, version="4").fingerprint != before


def test_a_commands_fingerprint_covers_argv_and_every_file_in_it(tmp_path: Path, write: Callable[..., Path]) -> None:
    def of(*command: str, **changes: Any) -> str:
        return load_agent(job(tmp_path, command=command, **changes)).fingerprint

    write("#!/bin/sh\n", "run.sh", mode=0o755)
    prompt = write("a", "prompt.txt")
    first, absolute = of("./run.sh", "--prompt", "prompt.txt"), of("./run.sh", str(prompt))
    assert of("./run.sh", "--prompt", "prompt.txt") == first
    assert of("./run.sh", "--prompt", "prompt.txt", parse="json") != first
    assert of("./run.sh", "--prompt", "prompt.txt", "-v") != first
    write("b", "prompt.txt")
    assert of("./run.sh", "--prompt", "prompt.txt") != first
    assert of("./run.sh", str(prompt)) != absolute


def test_a_notebooks_function_is_known_by_its_code(tmp_path: Path) -> None:
    def of(source: str) -> str:
        namespace: dict[str, Any] = {"__name__": "__notebook__"}
        exec(source, namespace)
        return agent_from_function(namespace["triage"], job(tmp_path)).fingerprint

    first = of("def triage(item):\n    return [x + 1 for x in item]")
    assert of("\n\ndef triage(item):\n    return [x + 1 for x in item]") == first
    assert of("def triage(item):\n    return [x + 2 for x in item]") != first


@pytest.mark.parametrize("name", ["hidden_package.py", "hidden_package/__init__.py"])
def test_a_file_that_hides_the_package_it_imports_is_named(
    tmp_path: Path, write: Callable[..., Path], name: str
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    write("class Agent: ...", "lib/site-packages/hidden_package/__init__.py")
    sys.path.append(str(installed))
    write("", f"job/{name}")
    write("from hidden_package import Agent\nagent = Agent", "job/support.py")
    with pytest.raises(AgentError) as caught:
        load(tmp_path / "job", "agent", file="support.py")
    assert f'the file {name} hides the installed package "hidden_package": give the file another name' in str(
        caught.value
    )


def test_a_file_that_hides_nothing_is_not_blamed(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("", "own_module.py")
    write("from own_module import nothing\nagent = nothing", "support.py")
    with pytest.raises(AgentError, match="cannot import name 'nothing'") as caught:
        load(tmp_path, "agent", file="support.py")
    assert "installed package" not in str(caught.value)
