"""What a weight that several layers share is held as: it is stored once, so they must agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from octavo.core.qparams import QType
from octavo.recipe import Granularity, WeightScheme


@dataclass
class MatrixUses:
    """How the layers of a model use one stored matrix: their axes, orientations and schemes."""

    axes: set[int] = field(default_factory=set)
    transposed: set[bool] = field(default_factory=set)
    schemes: list[WeightScheme] = field(default_factory=list)
    lookups_only: bool = True
    rows_only: bool = True

    def add(
        self, axis: int, scheme: WeightScheme, *, transposed: bool, lookup: bool, rows: bool
    ) -> None:
        """Add one more layer, with its channels along `axis`: a `lookup`, or a product per row."""
        self.axes.add(axis)
        self.transposed.add(transposed)
        self.lookups_only = self.lookups_only and lookup
        self.rows_only = self.rows_only and (lookup or rows)
        if scheme not in self.schemes:
            self.schemes.append(scheme)

    def scheme(self) -> WeightScheme:
        """Return the scheme that serves every layer.

        Where the layers' schemes differ: uint8, symmetric, 7 bits and one scale for all, each as
        soon as one layer asks for it. Channels along two axes leave one scale for all too.
        """
        first = self.schemes[0]
        if len(self.schemes) == 1 and len(self.axes) == 1:
            return first
        granularities = {s.granularity for s in self.schemes}
        one_scale = Granularity.TENSOR in granularities or len(self.axes) > 1
        observers = {s.observer for s in self.schemes}
        return replace(
            first,
            qtype=QType.UINT8 if any(s.qtype is QType.UINT8 for s in self.schemes) else first.qtype,
            granularity=Granularity.TENSOR if one_scale else Granularity.CHANNEL,
            symmetric=any(s.symmetric for s in self.schemes),
            reduce_range=any(s.reduce_range for s in self.schemes),
            observer=first.observer if len(observers) == 1 and one_scale else "minmax",
        )

    def compromise(self, wished: WeightScheme) -> list[str]:
        """Return a note where a layer that wished for `wished` gets another scheme."""
        got = self.scheme()
        if got == wished:
            return []
        if len(self.axes) > 1 and wished.granularity is Granularity.CHANNEL:
            return [
                "one scale for the whole weight: layers that share it have their outputs along "
                "different axes"
            ]
        sign = "symmetric" if got.symmetric else "affine"
        return [
            f"{got.qtype.value} per {got.granularity.value}, {sign}: layers that share the weight "
            "ask for it"
        ]
