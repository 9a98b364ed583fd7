"""Functions that a layer applies to its outputs, in the same pass."""

from __future__ import annotations

from enum import Enum

from octavo.errors import did_you_mean


class Activation(Enum):
    """What a layer applies to each output; the values are the names in calls and files."""

    NONE = "none"
    RELU = "relu"
    GELU = "gelu"
    """`x/2 (1 + erf(x / sqrt 2))`"""
    GELU_TANH = "gelu_tanh"
    """`x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`"""
    SILU = "silu"
    TANH = "tanh"
    SIGMOID = "sigmoid"

    @property
    def code(self) -> int:
        """The number that stands for it in the C++ core."""
        return _CODES[self]

    @classmethod
    def parse(cls, name: str | Activation) -> Activation:
        """Return the activation called `name`; ValueError lists the known ones."""
        try:
            return cls(name)
        except ValueError:
            known = did_you_mean(str(name), [a.value for a in cls])
            raise ValueError(f"unknown activation {name!r}.{known}") from None


_CODES = {activation: code for code, activation in enumerate(Activation)}
