"""What a text names: an object of a Python module, or a file; and what it may have meant."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import sys
import traceback
from io import IOBase
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from octavo.errors import OctavoError, OptionError, did_you_mean, suggest

_IN_MEMORY = (bytes, bytearray, memoryview, IOBase)
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def refuse_no_path(given: object, name: str, *, model: bool = False) -> None:
    """Raise OptionError where the argument `name` is no path; a `model` may be a ModelProto."""
    if isinstance(given, (str, os.PathLike)):
        return
    end = " or an onnx.ModelProto" if model else ""
    if model and isinstance(given, _IN_MEMORY):
        end += ", which onnx.load_model_from_string makes of bytes"
    raise OptionError(f"{name} is a {type(given).__name__}; give a path{end}")


def load_object(text: str, error: type[OctavoError]) -> Any:
    """Return the object that `text` names, such as `package.module:Class.method`.

    Raises `error`, which says what does not exist and what does, or why the import fails and where.
    """
    module_name, colon, path = text.partition(":")
    if not (module_name and colon and path):
        raise error(f"{text!r} names nothing; needs module:object, as in package.module:function")
    found: Any = _module(text, module_name, error)
    done = module_name
    for part in path.split("."):
        if not hasattr(found, part):
            known = [
                name
                for name, value in inspect.getmembers(found)
                if not name.startswith("_") and not inspect.ismodule(value)
            ]
            raise error(f"{text}: {done} has no {part!r}.{did_you_mean(part, known)}")
        found, done = getattr(found, part), f"{done}.{part}"
    return found


def _module(text: str, name: str, error: type[OctavoError]) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 - as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name is None or not f"{name}.".startswith(f"{cause.name}."):
            raise _broken(text, name, error, cause) from cause
        hint = " Leave .py out." if name.endswith(".py") else ""
        raise error(
            f"{text}: there is no module {cause.name!r}, neither in the current folder {here} nor "
            f"installed.{hint}{suggest_module(cause.name)}"
        ) from None
    except (Exception, SystemExit) as cause:
        raise _broken(text, name, error, cause) from cause


def defined_names(source: str | None) -> list[str] | None:
    """List the top-level names of the Python file `source`, but modules, without running it.

    None where that cannot be told: for other files, after `import *` or with `globals()`.
    """
    if source is None or not source.endswith(".py"):
        return None
    try:
        waiting: list[ast.AST] = [ast.parse(Path(source).read_bytes())]
    except (OSError, SyntaxError, ValueError):
        return None
    names: list[str] = []
    used: list[str] = []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
            continue  # what is inside has no name outside
        if isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        if isinstance(node, ast.Name):
            (names if isinstance(node.ctx, ast.Store) else used).append(node.id)
        waiting += ast.iter_child_nodes(node)
    unknown = {"*", "globals", "__getattr__", "setattr", "exec"}
    return None if unknown.intersection(names + used) else list(dict.fromkeys(names))


def _broken(text: str, name: str, error: type[OctavoError], cause: BaseException) -> OctavoError:
    return error(
        f"{text}: importing {name} fails: {error_line(cause)}; mend the module, or name another one"
    )


def error_line(error: BaseException) -> str:
    """Return the last line of the error's traceback, and the place in the user's own code."""
    line = "".join(traceback.format_exception_only(error)[-1]).strip()
    if isinstance(error, SyntaxError):
        return f"{line} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames[1:] if _INSTALLED.isdisjoint(PurePath(f.filename).parts)]
    last = (own or frames)[-1]  # frames[0] is who caught it
    return f"{line} ({last.filename}:{last.lineno}, in {last.name})"


def suggest_file(path: Path) -> str:
    """Return ` Did you mean 'm.onnx'?`, or "" where no file has a name like that of `path`.

    The files are those in the folder of `path` that end as it does. The name of a Python module is
    meant for a PyTorch model.
    """
    if path.name == str(path) and Path(f"{path}.py").is_file():
        return f" {path}.py may make a PyTorch model: name the callable too, {path}:<callable>."
    beside: list[str] = []
    with contextlib.suppress(OSError):
        beside = [p.stem for p in path.parent.iterdir() if p.suffix == path.suffix]
    return suggest(path.stem, beside, path.suffix)


def suggest_module(name: str) -> str:
    """Return ` Did you mean 'm'?` of modules and packages in the current folder, or ""."""
    packages = [p.parent.name for p in Path().glob("*/__init__.py")]
    return suggest(name, [*packages, *(p.stem for p in Path().glob("*.py"))])
