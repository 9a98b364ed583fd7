"""Layers that may hold weights in groups: what `format` says of them."""

from __future__ import annotations

from typing import Any

from octavo.core.kernels import WeightFormat
from octavo.torch.layers.base import QuantizedModule


class GroupedModule(QuantizedModule):
    """A layer with `format`, a name of `WeightFormat`, in its configuration.

    int8 is left out there, as releases write and read it that know no other format.
    """

    GROUPED = True
    format = WeightFormat.INT8.value  # of layers pickled before there were others

    @property
    def _format(self) -> WeightFormat:
        return WeightFormat.parse(self.format)

    def _other_format(self) -> tuple[str, ...]:
        """Return the format as an operator's argument in a tuple, which for int8 is empty."""
        return () if self._format is WeightFormat.INT8 else (self.format,)

    def config(self) -> dict[str, Any]:
        found = super().config()
        if self._format is WeightFormat.INT8:
            del found["format"]
        return found
