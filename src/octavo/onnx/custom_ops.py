"""Operators of other libraries, registered with every session that a call opens.

A model may hold operators that ONNX Runtime has not, such as onnxruntime-extensions' tokenizers.
Octavo converts what is around them, and has to run the model to check that. Conversion knows
nothing of sessions, and sessions are opened in many places: hence what is `in_force` is kept for
the length of a call, and each place asks for `session_options`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from octavo.errors import OptionError, brief
from octavo.onnx.session import register

HINT = "name it: custom_ops (--custom-ops FILE), or sess_options that have it"
"""What to do about a library whose operators ONNX Runtime does not know."""

Libraries = str | Path | Sequence[str | Path]
"""Paths of shared libraries with operators."""

_QUIET = 4  # errors come as exceptions


@dataclass(frozen=True)
class CustomOps:
    """Shared libraries of operators, and session options to use in place of new ones.

    ONNX Runtime cannot copy session options, so that those of a user are used themselves: what a
    session needs otherwise is set for it and put back.
    """

    libraries: tuple[str, ...] = ()
    options: ort.SessionOptions | None = None

    @classmethod
    def of(
        cls, libraries: Libraries | None, options: ort.SessionOptions | None = None
    ) -> CustomOps:
        """Check `libraries` and hold them.

        Raises OptionError for what is no library of operators, or no session options.
        """
        if options is not None and not isinstance(options, ort.SessionOptions):
            raise OptionError(
                f"sess_options is a {type(options).__name__}; give an onnxruntime.SessionOptions"
            )
        given = [libraries] if isinstance(libraries, (str, os.PathLike)) else libraries or ()
        found = tuple(_checked(library) for library in given)
        for library in found:
            _register(options or ort.SessionOptions(), library)
        return cls(found, options)

    @property
    def given(self) -> bool:
        """Tell whether there is anything to register."""
        return bool(self.libraries) or self.options is not None

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Sessions that are opened meanwhile have these operators.

        Where nothing is given, what is in force already stays so.
        """
        if not self.given:
            yield
            return
        token = _IN_FORCE.set(self)
        try:
            yield
        finally:
            _IN_FORCE.reset(token)


def libraries_in_force() -> list[str]:
    """Return the libraries for a process of its own, to which options cannot go.

    Raises OptionError where there are options: which libraries they have they do not tell.
    """
    ops = _IN_FORCE.get()
    if ops.options is not None:
        raise OptionError(NO_PROCESS)
    return [*ops.libraries]


NO_PROCESS = (
    "sess_options cannot go to another process, which this needs: give the paths of the libraries "
    "in their place, custom_ops=[..]"
)

_NOTHING = CustomOps()
_IN_FORCE: ContextVar[CustomOps] = ContextVar("custom_ops", default=_NOTHING)


@contextmanager
def session_options(**settings: Any) -> Iterator[ort.SessionOptions]:
    """Options for one session, with the operators in force and these attributes.

    ONNX Runtime prints nothing with them: what it has to say is in its exceptions. The session
    must be opened before the context ends, as options of a user are as they were afterwards.
    """
    ops = _IN_FORCE.get()
    options = ops.options
    if options is None:
        options = ort.SessionOptions()
        for library in ops.libraries:
            _register(options, library)
    wanted = {"log_severity_level": _QUIET, **settings}
    before = {name: getattr(options, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(options, name, value)
        yield options
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def open_session(
    model: str | Path | bytes, *, native: bool = False, **settings: Any
) -> ort.InferenceSession:
    """Open a session on a file or a serialized model, with the operators in force.

    `native` registers Octavo's too; `settings` are attributes of the session's options. Raises
    what ONNX Runtime raises. For users' files there is `octavo.onnx.session`, which says what is
    wrong with them.
    """
    given = model if isinstance(model, bytes) else os.fspath(model)
    with session_options(**settings) as options:
        if native:
            register(options)
        return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def _checked(library: str | Path) -> str:
    if not isinstance(library, (str, os.PathLike)):
        raise OptionError(
            f"custom_ops holds a {type(library).__name__}; give paths of shared libraries"
        )
    path = Path(library).absolute()
    if not path.is_file():
        what = "is no file" if path.exists() else "does not exist"
        raise OptionError(f"custom_ops (--custom-ops): {library} {what}; {_WANTED}")
    return str(path)


def _register(options: ort.SessionOptions, library: str) -> None:
    try:
        options.register_custom_ops_library(library)
    except (state.Fail, state.InvalidArgument, state.RuntimeException) as error:
        raise OptionError(
            f"custom_ops (--custom-ops): ONNX Runtime cannot register {library}: {brief(error)}; "
            f"{_WANTED}"
        ) from error


_WANTED = (
    "give the shared library that holds the operators and exports RegisterCustomOps "
    "(of onnxruntime-extensions: onnxruntime_extensions.get_library_path())"
)
