"""Loading the user's object by its reference: `file.py:name`, or `package.module:name`.

A reference means the same in the runner and in its workers. Whatever goes wrong is an AgentError, with the
user's own traceback where their code was running.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrun.agents.crossing import Crossing
from agentrun.agents.exceptions import is_library, user_traceback
from agentrun.errors import AgentError

MAIN_MODULE = "__agentrun_main__"
_PACKAGE_OF = {
    "agents": "openai-agents",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dotenv": "python-dotenv",
    "PIL": "pillow",
    "pydantic_ai": "pydantic-ai-slim",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_loading_in_worker = False


class LoadedEnough(BaseException):
    """Ends the loading of a script in a worker, at the line where the script would start the run."""


def loading_in_worker() -> bool:
    """Whether a script is being loaded for its function; `agentrun.run` then raises LoadedEnough."""
    return _loading_in_worker


@contextmanager
def loading_for_worker() -> Iterator[None]:
    """While the block runs, a script is loaded for its function."""
    global _loading_in_worker
    _loading_in_worker = True
    try:
        yield
    finally:
        _loading_in_worker = False


class ExactLoader(SourceFileLoader):
    """Loads a file as it is now.

    Python takes what it compiled before for the same file if the size and the *second* of the last change agree: an
    agent that was edited within a second of its last run would run as it was, under its new fingerprint.
    """

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        return {**super().path_stats(path), "mtime": os.stat(path).st_mtime_ns // 1000}


class AgentReference(Crossing, frozen=True):
    """What another process needs to load an agent and to call it; it crosses as JSON."""

    base: str
    """The job's folder, first on `sys.path`."""
    reference: str
    is_main: bool
    """Whether the agent's file is the script that called the runner."""
    is_class: bool
    wants_ctx: bool
    carries: bool
    """Whether the job has a carry."""
    sys_path: tuple[str, ...]
    """The runner's `sys.path`: the other process must find the same modules."""

    def load(self) -> Any:
        """The same object as in the runner; a class is made, once."""
        with loading_for_worker():
            target = load(self.reference, Path(self.base), as_main=self.is_main)
        return target() if self.is_class else target


def load(reference: str, base: Path, *, as_main: bool = False) -> Any:
    """The object that a reference names, searched for in `base` first."""
    source, _, name = reference.rpartition(":")
    if is_held_by_script(reference):
        raise AgentError(f"{reference}: its agent is in the script or notebook that started it; run that to resume")
    put_first_on_path(base)
    if source.endswith(".py") or "/" in source:
        path = Path(os.path.normpath(base / source))
        if not path.is_file():
            raise AgentError(f"{reference}: there is no file {path}")
        if path.parent != base:
            put_on_path(path.parent)
        module = _run(source, lambda: _load_file(path, as_main=as_main))
    else:
        module = _run(source, lambda: importlib.import_module(source))
    return _find(module, name, source)


RUN_IT_AGAIN = "run the script or notebook that started it again"
"""How to continue a run whose agent only that knows."""


def is_held_by_script(reference: str) -> bool:
    """Whether a script or notebook passed the function itself, so that nobody else can find it by this name."""
    source, _, name = reference.rpartition(":")
    return source == "__main__" or "<" in name


def put_first_on_path(folder: Path) -> None:
    text = str(folder)
    if sys.path[:1] != [text]:
        sys.path[:] = [text, *(entry for entry in sys.path if entry != text)]


def put_on_path(folder: Path) -> None:
    """Put the folder of an agent's file after the job's folder, for the modules beside that file."""
    if str(folder) not in sys.path:
        sys.path.insert(1, str(folder))


def module_file(module: Any, folders: dict[str, str] | None = None) -> str | None:
    """The real path of a module's file.

    For thousands of modules, `folders` holds the real paths of the folders so far: to resolve each part of each path
    took longer than everything else that a launch does before its first item.
    """
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    if folders is None:
        return os.path.realpath(file)
    folder, name = os.path.split(file)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    path = os.path.join(folders[folder], name)
    return os.path.realpath(path) if os.path.islink(path) else path


def _load_file(path: Path, *, as_main: bool) -> ModuleType:
    # Under its stem, as another module of the user's would import it, so that it runs only once.
    name = MAIN_MODULE if as_main else path.stem
    taken = sys.modules.get(name)
    if taken is not None:
        if module_file(taken) == os.path.realpath(path):
            return taken
        name = f"agentrun_agent_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=ExactLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if as_main:
        # Objects pickled in the script name `__main__`; and multiprocessing must not use the spec.
        sys.modules["__main__"] = module
        module.__spec__ = None
    try:
        spec.loader.exec_module(module)
    except LoadedEnough:
        pass
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _run(source: str, load_module: Any) -> Any:
    try:
        return load_module()
    except ModuleNotFoundError as error:
        message = _hidden(source, error) or _missing(source, error)
        raise AgentError(message, traceback=user_traceback(error)) from error
    except SystemExit as error:
        message = f"{source}: it called sys.exit({error.code!r}) while it was being loaded"
        hint = 'put code that is only for the script under `if __name__ == "__main__":`'
        raise AgentError(f"{message}; {hint}", traceback=user_traceback(error)) from error
    except Exception as error:
        cause = f"{type(error).__name__}: {error}".rstrip(": ")
        message = _hidden(source, error) or f"{source}: it cannot be loaded: {cause}"
        raise AgentError(message, traceback=user_traceback(error)) from error


def _hidden(source: str, error: Exception) -> str | None:
    """What to say if a file of the user stands where the package of that name was meant, such as `agents.py`."""
    if not isinstance(error, ImportError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    file = module_file(sys.modules.get(package)) or _found_in(package, sys.path)
    if file is None or is_library(file):
        return None
    installed = _found_in(package, [entry for entry in sys.path if is_library(os.path.join(entry, ""))])
    if installed is None:
        return None
    shown = os.path.relpath(file, sys.path[0])
    return (
        f'{source}: it cannot be loaded: {error}; the file {shown} hides the installed package "{package}": '
        f"give the file another name"
    )


def _found_in(package: str, path: Sequence[str]) -> str | None:
    """The file of the package or module that is first on this path, or its folder if it has none."""
    spec = PathFinder.find_spec(package, path)
    if spec is None:
        return None
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return os.path.realpath(place) if place is not None else None


def _missing(source: str, error: ModuleNotFoundError) -> str:
    package, _, inner = (error.name or "").partition(".")
    if not package or package in sys.modules or (inner and importlib.util.find_spec(package) is not None):
        # A part of it is missing: it is broken, or of another version.
        return f"{source}: it cannot be loaded: {error}"
    if package == source.partition(".")[0]:
        return f"{source}: there is no such module here; sys.path begins with {sys.path[0]}"
    distribution = _PACKAGE_OF.get(package, package)
    # Environments that uv makes have no pip.
    has_pip = importlib.util.find_spec("pip") is not None
    pip = f"{sys.executable} -m pip install" if has_pip else f"uv pip install --python {sys.executable}"
    return (
        f'{source}: this interpreter ({sys.executable}) has no package "{package}"; '
        f"install it with: {pip} {distribution}"
    )


def _find(module: Any, name: str, source: str) -> Any:
    found = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AgentError(f'{source}: there is no "{name}" in it; {_has(module, name)}') from None
    return found


def _has(module: ModuleType, name: str) -> str:
    from difflib import get_close_matches

    there = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    if not there:
        return "it has no functions of its own"
    near = get_close_matches(name, there, n=3, cutoff=0.5)
    return "it has: " + ", ".join([*near, *(key for key in there if key not in near)][:10])
