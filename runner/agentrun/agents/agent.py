"""An agent: the user's code, and where it can run."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from agentrun.agents.adapters import adapter_for
from agentrun.agents.exceptions import user_traceback
from agentrun.agents.fingerprint import adapted_parts, command_parts, fingerprint_of, python_parts
from agentrun.agents.loading import (
    AgentReference,
    LoadedEnough,
    load,
    loading_for_worker,
    loading_in_worker,
    module_file,
)
from agentrun.errors import AgentError

if TYPE_CHECKING:
    from agentrun.job.job import Job


__all__ = ["Agent", "LoadedEnough", "agent_from_function", "load_agent", "loading_in_worker"]
Kind = Literal["function", "class", "command"]
Where = Literal["loop", "process", "thread"]


@dataclass(frozen=True)
class Agent:
    kind: Kind
    is_async: bool
    wants_ctx: bool
    target: Any
    """The function or class; None for a command."""
    reference: str | None
    """The name by which another process loads it: `file.py:name`, relative to the job's folder, or `module:name`."""
    fingerprint: str
    isolation: Where
    argv: tuple[str, ...] | None = None
    is_main: bool = False
    """Whether its file is the script that called us."""

    def reference_for(self, job: Job) -> AgentReference:
        """The agent, for a process that is to load it; only for one that has a reference."""
        assert self.reference is not None
        return AgentReference(
            base=str(job.base),
            reference=self.reference,
            is_main=self.is_main,
            is_class=self.kind == "class",
            wants_ctx=self.wants_ctx,
            carries=job.carry,
            sys_path=tuple(sys.path),
        )


def load_agent(job: Job) -> Agent:
    """The job's agent, checked before any item runs; AgentError says what is wrong with it."""
    if job.command is not None:
        return _command(job, job.command)
    if job.prompt is not None:
        return _prompt(job)
    assert job.agent is not None
    return _python(load(job.agent, job.base), job, name=job.agent, reference=job.agent)


def agent_from_function(function: Any, job: Job) -> Agent:
    """The agent that a Python caller passes as an object."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    reference, is_main = _reference(function, job.base)
    return _python(function, job, name=str(name), reference=reference, is_main=is_main)


def hosted_agent(
    job: Job, *, kind: Kind, is_async: bool, wants_ctx: bool, reference: str | None, isolation: Where, is_main: bool
) -> Agent:
    """The agent as the runner has loaded it, in another process that is to run it: a host of a cluster.

    What runs in worker processes is loaded only by those.
    """
    if job.command is not None or job.prompt is not None:
        return load_agent(job)
    assert reference is not None
    if isolation == "loop":
        with loading_for_worker():
            target = load(reference, job.base, as_main=is_main)
        return _python(target, job, name=reference, reference=reference, is_main=is_main)
    return Agent(
        kind=kind,
        is_async=is_async,
        wants_ctx=wants_ctx,
        target=None,
        reference=reference,
        fingerprint="",
        isolation=isolation,
        is_main=is_main,
    )


def _python(target: Any, job: Job, *, name: str, reference: str | None, is_main: bool = False) -> Agent:
    if (adapted := _adapted(target, job, name=name, reference=reference)) is not None:
        return adapted
    is_class = isinstance(target, type)
    call = _callable_of(target, name)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise AgentError(f"{name}: it is a generator (it has a yield in it); an agent must return its output")
    if is_class:
        _check_no_arguments(target, name)
    wants_ctx = _check_parameters(call if is_class else target, name, has_self=is_class)
    is_async = inspect.iscoroutinefunction(call)
    return Agent(
        kind="class" if is_class else "function",
        is_async=is_async,
        wants_ctx=wants_ctx,
        target=target,
        reference=reference,
        fingerprint=fingerprint_of(job, lambda: python_parts(target, job.base)),
        isolation=_isolation(job, name, is_async=is_async, can_be_found=reference is not None),
        is_main=is_main,
    )


def _adapted(target: Any, job: Job, *, name: str, reference: str | None) -> Agent | None:
    """The agent that an object of a framework is, or a function without parameters that returns one; else None."""
    made = _made_by(target, name) if inspect.isfunction(target) else target
    adapter = adapter_for(made)
    if adapter is None:
        return None
    call = adapter.agent_of(made, job, name=name)
    return Agent(
        kind="function",
        is_async=True,
        wants_ctx=True,
        target=call,
        reference=reference,
        fingerprint=fingerprint_of(job, lambda: adapted_parts(target, job, reference)),
        isolation=_isolation(job, name, is_async=True, can_be_found=reference is not None),
    )


def _made_by(function: Any, name: str) -> Any:
    """What a function that takes nothing returns; None for one that takes an item."""
    if inspect.iscoroutinefunction(function) or inspect.signature(function).parameters:
        return None
    try:
        return function()
    except Exception as error:
        message = f"{name}: it takes no item, so it was called for an agent, and raised {type(error).__name__}: {error}"
        raise AgentError(message, traceback=user_traceback(error)) from error


def _callable_of(target: Any, name: str) -> Any:
    """The function that is called for an item: inside a partial, or the `__call__` of an instance or a class."""
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, type):
        for cls in target.__mro__:
            if "__call__" in vars(cls):
                return vars(cls)["__call__"]
        raise AgentError(f"{name}: it is a class without __call__(self, item); give it one")
    if not callable(target):
        raise AgentError(f"{name}: it is a {type(target).__name__}, not a function or a class")
    if inspect.isroutine(target):
        return target
    return target.__call__


def _check_no_arguments(cls: type, name: str) -> None:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return
    needed = [p.name for p in parameters if _is_required(p)]
    if needed:
        raise AgentError(f"{name}: it is created without arguments, but needs {', '.join(needed)}; give them defaults")


def _check_parameters(call: Any, name: str, *, has_self: bool) -> bool:
    """Whether it takes the context; AgentError if it cannot be called with one item."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return False
    parameters = list(signature.parameters.values())[1 if has_self else 0 :]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rule = 'an agent gets one item, and the context as a parameter named "ctx"'
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (*positional, inspect.Parameter.VAR_POSITIONAL) or first.name == "ctx":
        raise AgentError(f"{name}: it takes no item, its parameters are {signature}; {rule}")
    wants_ctx = False
    for parameter in parameters[1:]:
        by_name = parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        if parameter.name == "ctx" and by_name:
            wants_ctx = True
        elif _is_required(parameter):
            fix = f'give "{parameter.name}" a default, or read it from ctx.params'
            raise AgentError(f"{name}: its parameters are {signature}; {rule}: {fix}")
    return wants_ctx


def _is_required(parameter: inspect.Parameter) -> bool:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return False
    return parameter.default is inspect.Parameter.empty


def _isolation(job: Job, name: str, *, is_async: bool, can_be_found: bool) -> Where:
    if is_async:
        if job.isolation is not None:
            fix = "async agents run on the event loop; leave isolation out, or make it a plain function"
            raise AgentError(f'{name}: isolation = "{job.isolation}" is for sync agents, and this one is async: {fix}')
        return "loop"
    if job.isolation == "process" and not can_be_found:
        why = "a worker process cannot import it (a lambda, a closure, a notebook's function)"
        raise AgentError(f'{name}: {why}; define it in a file, or use isolation = "thread"')
    if job.isolation is not None:
        return job.isolation
    return "process" if can_be_found else "thread"


def _reference(target: Any, base: Path) -> tuple[str | None, bool]:
    """The name by which a worker finds the target, or None, and whether it is in the script that called us."""
    qualname, module = (
        getattr(target, "__qualname__", None),
        sys.modules.get(getattr(target, "__module__", "")),
    )
    if not isinstance(qualname, str) or "<" in qualname or module is None:
        return None, False
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not target:
        return None, False
    if module.__name__ != "__main__":
        return (f"{module.__name__}:{qualname}", False) if module_file(module) else (None, False)
    spec = getattr(module, "__spec__", None)
    if spec is not None:  # python -m package.module
        return f"{spec.name}:{qualname}", False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not Path(file).is_file():
        return None, False
    return f"{os.path.relpath(file, base)}:{qualname}", True


def _prompt(job: Job) -> Agent:
    """A prompt, run like an async class agent: made once, on the event loop, closed at the end."""
    from agentrun.agents.prompts.agent import PromptAgent
    from agentrun.agents.prompts.prompt import read_prompt

    prompt = read_prompt(job, os.environ)
    return Agent(
        kind="class",
        is_async=True,
        wants_ctx=True,
        target=functools.partial(PromptAgent, prompt),
        reference="prompt",
        fingerprint=fingerprint_of(job, prompt.parts),
        isolation="loop",
    )


def _command(job: Job, argv: tuple[str, ...]) -> Agent:
    _check_program(argv[0], job.base)
    return Agent(
        kind="command",
        is_async=False,
        wants_ctx=False,
        target=None,
        reference=None,
        fingerprint=fingerprint_of(job, lambda: command_parts(argv, job)),
        isolation="process",
        argv=argv,
    )


def _check_program(program: str, base: Path) -> None:
    if "{" in program:
        return
    if "/" not in program:
        if shutil.which(program) is None:
            hint = f'; to run the file beside the job, write "./{program}"' if (base / program).is_file() else ""
            raise AgentError(f'command: there is no program "{program}" on the PATH{hint}')
        return
    path = base / program
    if not path.is_file():
        raise AgentError(f'command: there is no file "{path}"')
    if not os.access(path, os.X_OK):
        raise AgentError(f'command: "{path}" cannot be executed; allow it with: chmod +x {quote(str(path))}')
