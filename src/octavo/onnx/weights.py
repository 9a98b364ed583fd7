"""Quantizes each stored weight once, and hands its integers to every layer that uses it.

A weight that two layers share (an embedding table that is also the output layer's matrix, a matrix
that two Gemms transpose) stays one tensor in the file. Layers that want it the other way round read
it through a Transpose node, which ONNX Runtime folds when it loads the model. Where they ask for
different schemes, all get one that serves each of them: see `plan.shared_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.histogram import HistogramObserver
from octavo.core.kernels import QuantizedWeight, quantize_weight
from octavo.core.kernels.weight import quantize_affine_as_onnxruntime
from octavo.core.qparams import Grid
from octavo.core.stored_integers import one_if_equal
from octavo.graph.context import Store
from octavo.graph.emit.emitter import Emitter
from octavo.graph.lower.blocks import BlockForm, BlockWeightValues
from octavo.ir.weight import Account, QuantizedWeightValues
from octavo.onnx.constants import Constants, Root
from octavo.onnx.group_rounding import GroupRounding, unfit
from octavo.onnx.shared_weights import MatrixUses
from octavo.recipe import Granularity, WeightScheme


@dataclass
class _Held:
    q: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    transposed: bool
    account: Account
    views: dict[str, ir.Value] = field(default_factory=dict)

    def values(self, q: ir.Value | None = None) -> QuantizedWeightValues:
        """Integers (or `q`, a view of them) with scale and zero point."""
        assert self.zero_point is not None
        return QuantizedWeightValues(q or self.q, self.scale, self.zero_point)


class WeightStore:
    """The quantized weights of one conversion."""

    def __init__(self, constants: Constants, prelude: Emitter, store: Store) -> None:
        self.constants = constants
        self._prelude = prelude
        self._store = store
        self._uses: dict[Any, MatrixUses] = {}
        self._in_blocks: dict[tuple[Any, int], WeightScheme] = {}
        self._held: dict[Any, Any] = {}
        self.groups = GroupRounding(self.quantize)
        self.as_onnxruntime = False
        """Whether affine weights get the scales and integers of its quantize_dynamic."""

    def announce(
        self,
        root: Root,
        axis: int,
        scheme: WeightScheme,
        *,
        transposed: bool,
        lookup: bool = False,
        rows: bool = False,
    ) -> None:
        """Say before conversion that a layer will use `root` with channels along `axis`.

        `transposed`: the layer wants the integers in the other orientation than stored; `lookup`:
        it picks rows of a table; `rows`: it multiplies activations that are quantized per row.
        """
        uses = self._uses.setdefault(root.key, MatrixUses())
        uses.add(axis, scheme, transposed=transposed, lookup=lookup, rows=rows)

    def announce_blocks(self, root: Root, *, transposed: bool, scheme: WeightScheme) -> None:
        """Say before conversion that a linear layer will ask for `blocks` of `root`."""
        self._in_blocks[root.key, 0 if transposed else 1] = scheme

    def blocks_along(self, root: Root, axis: int) -> WeightScheme | None:
        """Return how a linear layer holds the slices of `root` along `axis`, if in blocks."""
        return self._in_blocks.get((root.key, axis))

    def scheme(self, root: Root) -> WeightScheme:
        """Return the scheme under which all layers that share `root` get it."""
        return self._uses[root.key].scheme()

    # docs/notes/onnxruntime.md: "Weights that layers share have one form"
    def compromise(self, root: Root, wished: WeightScheme) -> list[str]:
        """Return a note for the report where a layer does not get the scheme `wished`."""
        return self._uses[root.key].compromise(wished)

    def matrix(
        self, root: Root, axis: int, *, transposed: bool
    ) -> tuple[QuantizedWeightValues, Account | None]:
        """Integers of the stored matrix under `scheme(root)`, with channels along its `axis`.

        The statistics are given to the first layer that asks and are None for the others.
        """
        held, q, stats = self._matrix(root, axis, transposed=transposed)
        return held.values(q), stats

    def table(
        self, root: Root, axis: int, rank: int, *, transposed: bool
    ) -> tuple[ir.Value, ir.Value, Account | None]:
        """Return, as `matrix` but for lookups, integers [V, ...] and their scales [V, 1, ...]."""
        held, q, stats = self._matrix(root, axis, transposed=transposed)
        scale = held.scale
        if scale.shape is None or len(scale.shape) != rank:
            shape = [-1] + [1] * (rank - 1)
            scale = self._view(held, "column", lambda: self._reshape(held.scale, shape, "column"))
        return q, scale, stats

    def _matrix(
        self, root: Root, axis: int, *, transposed: bool
    ) -> tuple[_Held, ir.Value, Account | None]:
        key = ("matrix", root.key)
        first = key not in self._held
        if first:
            uses = self._uses[root.key]
            per_channel = uses.scheme().granularity is Granularity.CHANNEL
            self._held[key] = self._hold(root.leaf, axis if per_channel else None, uses)
        held: _Held = self._held[key]
        q = held.q
        if held.transposed != transposed:
            q = self._view(held, "transposed", lambda: self._transpose(held))
        return held, q, held.account if first else None

    def custom(
        self,
        key: Any,
        name: str,
        make: Callable[[], tuple[npt.NDArray[np.float32], int | None]],
        finish: Callable[[QuantizedWeight], tuple[npt.NDArray[Any], ...]],
        scheme: WeightScheme,
        graph: ir.Graph | None = None,
    ) -> tuple[QuantizedWeightValues, Account | None]:
        """Quantize a weight in its own layout: `make` gives float32 numbers and the channel axis.

        `finish` turns the result into the arrays to store: integers, scale, zero point. They are
        kept in `graph`, by default the main one.
        """
        held, stats = self._custom(key, name, make, finish, scheme, graph)
        return held.values(), stats

    def _custom(
        self,
        key: Any,
        name: str,
        make: Callable[[], tuple[npt.NDArray[np.float32], int | None]],
        finish: Callable[[QuantizedWeight], tuple[npt.NDArray[Any], ...]],
        scheme: WeightScheme,
        graph: ir.Graph | None,
    ) -> tuple[_Held, Account | None]:
        full = ("custom", key, scheme)
        first = full not in self._held
        if first:
            array, axis = make()
            quantized = self.quantize(array, axis, scheme, name)
            self._held[full] = self._register(name, finish(quantized), quantized, graph)
        held: _Held = self._held[full]
        return held, held.account if first else None

    def blocks(
        self,
        root: Root,
        scheme: WeightScheme,
        *,
        transposed: bool,
        form: BlockForm,
        graph: ir.Graph | None = None,
    ) -> tuple[BlockWeightValues, Account | None]:
        """Quantize a matrix [K, N] (after `transposed`) in blocks along K, as `form` stores it.

        It is kept in `graph`, by default the main one. The statistics are given to the first layer
        that asks and are None for the others.
        """
        key = ("blocks", root.key, transposed, scheme, form, graph)
        first = key not in self._held
        if first:
            stored = self.float32(root.leaf)
            name = root.leaf.name or "weight"
            integers, account = self.groups.in_blocks(
                stored if transposed else stored.T, scheme, name, stored.shape
            )
            self.constants.release(root.leaf)

            def hold(array: npt.NDArray[Any], part: str) -> ir.Value:
                return self._constant(array, f"{name}_{part}", graph)

            values, account.bytes = form.hold(integers, hold)
            self._held[key] = values, account
        held, stats = self._held[key]
        return held, stats if first else None

    def float16(self, value: ir.Value) -> tuple[ir.Value, Account | None]:
        """Store `value` in float16 behind a Cast to its own type, and a Transpose where asked."""
        root = self.constants.root(value)
        key, view = ("float16", root.key), ("float16 transposed", root.key)
        first = key not in self._held
        if first:
            self._held[key] = self._hold_float16(root.leaf)
        held, stats = self._held[key]
        if root.transposed and view not in self._held:
            wide = self._prelude.transpose(held, [1, 0], f"{held.name}_transposed")
            self._prelude.flush_first()
            self._held[view] = (wide, held)
        return self._held[view][0] if root.transposed else held, stats if first else None

    def float32(self, leaf: ir.Value) -> npt.NDArray[np.float32]:
        """Return the numbers of a stored weight as float32."""
        return np.asarray(self.constants.array(leaf)).astype(np.float32, copy=False)

    def _hold(self, leaf: ir.Value, axis: int | None, uses: MatrixUses) -> _Held:
        name = leaf.name or "weight"
        quantized = self.quantize(self.float32(leaf), axis, uses.scheme(), name)
        self.constants.release(leaf)
        flip = uses.transposed == {True}
        q = quantized.q
        if flip:
            q = np.ascontiguousarray(np.swapaxes(q, -1, -2))
        params = quantized.qparams
        scale, zero = params.scale, params.zero_point.astype(q.dtype)
        arrays: tuple[npt.NDArray[Any], ...]
        if axis is None:
            arrays = (q, scale.reshape(()), zero.reshape(()))
        elif uses.lookups_only:  # whose rows have no zero points: `octavo.onnx.operators.tables`
            arrays = (q, scale.reshape([-1] + [1] * (q.ndim - 1)))
        else:
            arrays = (q, scale, one_if_equal(zero) if uses.rows_only else zero)
        held = self._register(name, arrays, quantized)
        held.transposed = flip
        return held

    def quantize(
        self, array: npt.NDArray[np.float32], axis: int | None, scheme: WeightScheme, name: str
    ) -> QuantizedWeight:
        """Quantize `array` under `scheme`, with channels along `axis`. `name` is for errors."""
        grid = Grid.of(scheme.qtype, symmetric=scheme.symmetric, reduce_range=scheme.reduce_range)
        ranges = None
        try:
            if scheme.observer == "histogram":
                observer = HistogramObserver()
                observer.observe(array)
                ranges = observer.range()
            if self.as_onnxruntime and not scheme.symmetric:
                reduced = scheme.reduce_range
                return quantize_affine_as_onnxruntime(
                    array, scheme.qtype, axis, reduce_range=reduced, ranges=ranges
                )
            return quantize_weight(array, grid, axis, ranges)
        except ValueError as error:
            raise unfit(name, array.shape, error) from error

    def _register(
        self,
        name: str,
        arrays: tuple[npt.NDArray[Any], ...],
        quantized: QuantizedWeight,
        graph: ir.Graph | None = None,
    ) -> _Held:
        """Register `arrays`: integers, scale and perhaps zero point."""
        suffixes = ("_quantized", "_scale", "_zero_point")
        values = [
            self._constant(array, f"{name}{suffix}", graph)
            for array, suffix in zip(arrays, suffixes, strict=False)
        ]
        size = sum(array.nbytes for array in arrays)
        stats = Account(size, quantized.signal, quantized.noise)
        zero_point = values[2] if len(values) > 2 else None
        return _Held(values[0], values[1], zero_point, False, stats)

    def _constant(
        self, array: npt.NDArray[Any], wish: str, graph: ir.Graph | None = None
    ) -> ir.Value:
        name = self._prelude.names.values.new(wish)
        return self._prelude.initializer(self._store(array, name), name, graph)

    def _hold_float16(self, value: ir.Value) -> tuple[ir.Value, Account]:
        array = self.float32(value)
        half = array.astype(np.float16)
        error = array.astype(np.float64) - half.astype(np.float64)
        signal = float(np.square(array, dtype=np.float64).sum())
        stats = Account(half.nbytes, signal, float(np.square(error).sum()))
        name = value.name or "weight"
        dtype = self.constants.dtype(value) or ir.DataType.FLOAT
        self.constants.release(value)
        stored = self._constant(half, f"{name}_float16")
        cast = self._prelude.cast(stored, dtype, f"{name}_widened")
        self._prelude.flush_first()
        return cast, stats

    def _transpose(self, held: _Held) -> ir.Value:
        return self._prelude.transpose(held.q, [1, 0], f"{held.q.name}_transposed")

    def _reshape(self, value: ir.Value, shape: list[int], wish: str) -> ir.Value:
        e = self._prelude
        return e.op("Reshape", [value, e.vector(shape)], out=f"{value.name}_{wish}")

    def _view(self, held: _Held, name: str, build: Callable[[], ir.Value]) -> ir.Value:
        if name not in held.views:
            held.views[name] = build()
            self._prelude.flush_first()
        return held.views[name]
