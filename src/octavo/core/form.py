"""In what form an ONNX file holds quantized layers: for whom, with which operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from octavo.errors import OptionError, did_you_mean

E = TypeVar("E", bound="_Choice")


class _Choice(str, Enum):
    """One of a few words; prints as the word and is equal to it."""

    __str__ = str.__str__

    def __repr__(self) -> str:
        return repr(self.value)

    @classmethod
    def parse(cls: type[E], value: object, said: str) -> E:
        """Return the member of this value. OptionError begins with `said` and lists all members."""
        for member in cls:
            if member.value == value:
                return member
        raise OptionError(f"{said}.{did_you_mean(str(value), [member.value for member in cls])}")


class Target(_Choice):
    """What runs the file."""

    PORTABLE = "portable"  # stock ONNX Runtime
    NATIVE = "native"  # ONNX Runtime with Octavo's operators


class Cpu(_Choice):
    """The processors on which a portable file is exact."""

    VNNI = "vnni"  # int8 weights
    ANY = "any"  # uint8 weights around 128, half as fast


class QuantFormat(_Choice):
    """How quantized layers are written."""

    QOPERATOR = "qoperator"  # integer operators
    QDQ = "qdq"  # DynamicQuantizeLinear/DequantizeLinear pairs


@dataclass(frozen=True)
class Form:
    """The form of one file; `opset` is 0 as long as no model is known."""

    target: Target = Target.PORTABLE
    cpu: Cpu = Cpu.VNNI
    quant_format: QuantFormat = QuantFormat.QOPERATOR
    opset: int = 0

    @classmethod
    def of(cls, target: str, cpu: str, quant_format: str) -> Form:
        """Build a form from the words of a call.

        Raises OptionError for other words, and for words that exclude each other.
        """
        form = cls(
            Target.parse(target, f"target={target!r}"),
            Cpu.parse(cpu, f"cpu={cpu!r}"),
            QuantFormat.parse(quant_format, f"quant_format={quant_format!r}"),
        )
        if form.native and form.qdq:
            raise OptionError(
                f"quant_format={quant_format!r} (--format) is for other runtimes, and target "
                "'native' for ONNX Runtime with Octavo's operators; leave one of them out"
            )
        return form

    def at(self, opset: int) -> Form:
        """Return the same form over this version of the standard operators."""
        return replace(self, opset=opset)

    @property
    def native(self) -> bool:
        """Tell whether layers become Octavo's operators."""
        return self.target is Target.NATIVE

    @property
    def qdq(self) -> bool:
        """Tell whether layers become pairs of operators for other runtimes."""
        return self.quant_format is QuantFormat.QDQ

    @property
    def words(self) -> dict[str, str]:
        """Return the words for this form that a call, a file and a report have."""
        return {
            "target": self.target.value,
            "cpu": self.cpu.value,
            "quant_format": self.quant_format.value,
        }
