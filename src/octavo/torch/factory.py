"""`with_args`: constructors with some of their arguments given, as qconfigs hold them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import OptionError, did_you_mean


@dataclass(frozen=True)
class ObserverFactory:
    """Makes observers: `factory()` is `make(**arguments)`. What `with_args` returns.

    Factories with equal arguments are equal; they can be pickled where their arguments can.
    """

    make: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The observer; arguments given here go before those of `with_args`."""
        return self.make(*args, **{**self.arguments, **kwargs})

    def with_args(self, **kwargs: Any) -> ObserverFactory:
        """A factory with these arguments too; OptionError names one that does not exist."""
        parameters = inspect.signature(self.make).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            for name in kwargs:
                if name not in parameters:
                    raise OptionError(
                        f"{self._name}.with_args: unknown argument {name!r}."
                        f"{did_you_mean(name, parameters)}"
                    )
        return ObserverFactory(self.make, {**self.arguments, **kwargs})

    @property
    def _name(self) -> str:
        return getattr(self.make, "__name__", repr(self.make))

    def __hash__(self) -> int:  # arguments may hold a dict (factory_kwargs)
        return hash((self.make, frozenset(self.arguments)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self._name}.with_args({inside})"
