"""What a form of the native target is; `Rule` is its like for the portable one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import onnx_ir as ir

from octavo.core.kernels.packing import GROUP
from octavo.onnx.rule import Context, Drawn
from octavo.recipe import ActivationScheme, Granularity, Scheme


class NativeForm(ABC):
    """One operator's form."""

    def takes(self, node: ir.Node, scheme: Scheme, context: Context) -> bool:
        """Whether the form holds layers as `scheme` says; else the portable form does.

        By default schemes with integer activations.
        """
        return scheme.activation is not None

    def held(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        """The scheme as the kernels hold it, and notes on what is different."""
        return by_rows(scheme)

    @abstractmethod
    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        """Why `node` stays float, or None."""

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:  # noqa: B027
        """Tells `context` before conversion what the layer will ask for."""

    @abstractmethod
    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        """Draws the quantized form with `context.emitter`."""


def by_rows(scheme: Scheme) -> tuple[Scheme, list[str]]:
    """Activations per row, or by groups of 128: what the kernels have."""
    a, notes = scheme.activation, []
    assert a is not None
    if a.granularity is Granularity.TENSOR:
        notes.append("activations per row: target native has no scale for a whole tensor")
        a = replace(a, granularity=Granularity.ROW)
    if a.granularity is Granularity.GROUP and a.group != GROUP:
        notes.append(f"activations per group of {GROUP}: target native has no groups of {a.group}")
        a = replace(a, group=GROUP)
    return replace(scheme, activation=a), notes


def without_blocks(scheme: Scheme, layers: str) -> tuple[Scheme, list[str]]:
    """For `layers` whose kernels have no blocks: per channel, with integer activations by rows."""
    w, notes = scheme.weight, []
    assert w is not None
    if w.granularity is Granularity.BLOCK:
        notes.append(f"int8 per channel and row: {layers} of target native have no blocks")
        w = replace(w, granularity=Granularity.CHANNEL, block=None)
    return Scheme(w, scheme.activation or ActivationScheme()), notes
