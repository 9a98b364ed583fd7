"""Q, K and V of one quantized activation  ->  one integer product, taken apart as heads.

    x ─┬ MatMulIntegerToFloat(Wq) ─ Mul(row) ─ Add ─ Reshape ─ Transpose ─ q
       ├ MatMulIntegerToFloat(Wk) ─ Mul(row) ─ Add ─ Reshape ─ Transpose ─ k
       └ MatMulIntegerToFloat(Wv) ─ Mul(row) ─ Add ─ Reshape ─ Transpose ─ v
    ->
    x ── MatMulIntegerToFloat([Wq Wk Wv]) ─ Mul(row) ─ Add ─ Reshape ─ Transpose ─ Split ─ q, k, v

Columns of a product do not know of each other, so not a bit changes. A dozen nodes fewer a layer
are a twentieth of the time of a short input; see `head_shapes`, which finds what is looked at here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.stored_integers import one_if_equal
from octavo.graph.analysis.attentions import FoundAttention, Heads
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import only_reader
from octavo.graph.emit.emitter import Emitter
from octavo.graph.emit.sweeper import Sweeper
from octavo.ir import MS
from octavo.ir.activation_products import HEADS_FIRST, LAST_SWAPPED

JOINT = "+"
"""Between the names of nodes that became one."""
KEYS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True)
class Projection:
    """One of them: its nodes, and what its product reads."""

    product: ir.Node
    scaled: ir.Node
    biased: ir.Node | None
    bias: ir.Value | None
    reshape: ir.Node
    turned: ir.Node
    order: tuple[int, ...]

    @property
    def rows(self) -> tuple[Any, ...]:
        """Return what parts of one product share: integers, step, zero point and range of rows."""
        q, w, step, _, zero, _ = self.product.inputs
        row = next(v for v in self.scaled.inputs if v is not self.product.outputs[0])
        dtype = None if w is None else w.dtype
        return q, step, zero, row, dtype


# docs/notes/onnxruntime.md: "Q, K and V are one product in portable files too"
def merge_qkv(
    attentions: Sequence[FoundAttention], e: Emitter, constants: ConstantLookup, sweeper: Sweeper
) -> list[str]:
    """Merge the products of each attention that read the same rows into one; return a note."""
    count = 0
    for attention in attentions:
        alike: dict[Any, list[Projection]] = defaultdict(list)
        # One projection may be two of the three, as where values are the keys themselves.
        distinct = {heads.reshape: heads for heads in (attention.q, attention.k, attention.v)}
        for heads in distinct.values():
            part = _part(heads, constants)
            if part is not None:
                alike[part.rows, heads.heads, heads.depth].append(part)
        for (_, of_one, depth), parts in alike.items():
            if len(parts) > 1:
                _draw(parts, of_one, depth, e, constants, sweeper)
                count += len(parts)
    return [f"Q, K and V of an attention are one product: {count} layers became fewer"] * bool(
        count
    )


def _part(heads: Heads, constants: ConstantLookup) -> Projection | None:
    """Return the nodes of the projection that makes `heads`; None for those of another form."""
    reshape = heads.reshape
    turned = _reader(reshape, "Transpose")
    value = reshape.inputs[0]
    if reshape.graph is None or value is None or turned is None:
        return None
    perm = turned.attributes.get("perm")
    order = () if perm is None else tuple(perm.as_ints())
    biased, bias = None, None
    node = _only_for(value, reshape)
    if node is not None and _is(node, "Add"):
        biased, bias, value = node, *_bias(node, constants)
        node = None if value is None else _only_for(value, node)
    if node is None or not _is(node, "Mul") or order not in (HEADS_FIRST, KEYS_LAST):
        return None
    product = _product(node, heads.heads * heads.depth, constants)
    if product is None or (bias is not None and not _is_vector(bias, heads, constants)):
        return None
    return Projection(product, node, biased, bias, reshape, turned, order)


def _product(scaled: ir.Node, width: int, constants: ConstantLookup) -> ir.Node | None:
    """Return the integer product that `scaled` multiplies by the range of each row."""
    for value in scaled.inputs:
        node = None if value is None else _only_for(value, scaled)
        if node is None or node.op_type != "MatMulIntegerToFloat" or node.domain != MS:
            continue
        if len(node.inputs) != 6:
            return None
        w, scale, zero = (constants.tensor(node.inputs[i]) for i in (1, 3, 5))
        if w is None or scale is None or zero is None or len(w.shape) != 2:
            return None
        held = node.inputs[1]
        alone = held is not None and len(list(held.uses())) == 1 and held.is_initializer()
        return node if alone and w.shape.numpy()[-1] == width else None
    return None


def _bias(add: ir.Node, constants: ConstantLookup) -> tuple[ir.Value | None, ir.Value | None]:
    """Return the constant that `add` adds, and the value that it is added to."""
    for i in (0, 1):
        if constants.tensor(add.inputs[i]) is not None:
            return add.inputs[i], add.inputs[1 - i]
    return None, None


def _is_vector(bias: ir.Value, heads: Heads, constants: ConstantLookup) -> bool:
    tensor = constants.tensor(bias)
    return tensor is not None and tuple(tensor.shape.numpy()) == (heads.heads * heads.depth,)


def _only_for(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """Return the node that makes `value` for `reader` alone; else None."""
    found = only_reader(value)
    return value.producer() if found is not None and found[0] is reader else None


def _reader(node: ir.Node, op_type: str) -> ir.Node | None:
    found = only_reader(node.outputs[0])
    return found[0] if found is not None and _is(found[0], op_type) else None


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _draw(
    parts: Sequence[Projection],
    heads: int,
    depth: int,
    e: Emitter,
    constants: ConstantLookup,
    sweeper: Sweeper,
) -> None:
    q, step, zero, row, _ = parts[0].rows
    products = [p.product for p in parts]
    wish = f"{products[0].name}_together"
    weight, scale, w_zero = _weight(products, wish, e, constants)
    y = e.op(
        "MatMulIntegerToFloat",
        [q, weight, step, scale, zero, w_zero],
        out=f"{wish}_per_row",
        domain=MS,
        name=_joined(products, e),
    )
    y = e.op("Mul", [y, row], out=wish, name=_joined([p.scaled for p in parts], e))
    if any(p.bias is not None for p in parts):
        bias = e.constant(_biases(parts, heads * depth, constants), f"{wish}_bias")
        adds = [p.biased for p in parts if p.biased is not None]
        y = e.op("Add", [y, bias], out=f"{wish}_biased", name=_joined(adds, e))
    shape = e.vector([0, 0, len(parts) * heads, depth])
    reshapes, turns = [p.reshape for p in parts], [p.turned for p in parts]
    y = e.op("Reshape", [y, shape], out=f"{wish}_heads", name=_joined(reshapes, e))
    turned = _joined(turns, e)
    y = e.op("Transpose", [y], out=f"{wish}_turned", name=turned, perm=list(HEADS_FIRST))
    outs = [p.turned.outputs[0].name or "heads" for p in parts]
    split = e.split(y, 1, [heads] * len(parts), outs)
    values = [
        value
        if part.order == HEADS_FIRST
        else e.op("Transpose", [value], out=out, name=part.turned.name, perm=list(LAST_SWAPPED))
        for part, value, out in zip(parts, split, outs, strict=True)
    ]
    among = set(products)
    e.flush_before(next(node for node in products[0].graph or () if node in among))
    for part, value in zip(parts, values, strict=True):
        sweeper.replace(part.turned, [value])


def _joined(nodes: Sequence[ir.Node], e: Emitter) -> str:
    """Their names in one, which are free for others then."""
    for node in nodes:
        e.names.nodes.free(node.name)
    return JOINT.join(node.name or node.op_type for node in nodes)


def _weight(
    products: Sequence[ir.Node], wish: str, e: Emitter, constants: ConstantLookup
) -> list[ir.Value]:
    """Integers [K, sum(N)], scales [sum(N)], and zero points: one where all are the same."""
    columns = [_array(p.inputs[1], constants) for p in products]
    scales, zeros = (
        [
            np.broadcast_to(_array(p.inputs[i], constants).reshape(-1), w.shape[-1:])
            for p, w in zip(products, columns, strict=True)
        ]
        for i in (3, 5)
    )
    arrays = {
        "quantized": np.concatenate(columns, axis=1),
        "scale": np.concatenate(scales),
        "zero_point": one_if_equal(np.concatenate(zeros)),
    }
    return [e.constant(array, f"{wish}_{what}") for what, array in arrays.items()]


def _biases(
    parts: Sequence[Projection], width: int, constants: ConstantLookup
) -> npt.NDArray[np.float32]:
    """Join the biases of all parts; that of a part without one is 0."""
    nothing = np.zeros(width, np.float32)
    found = [nothing if p.bias is None else _array(p.bias, constants) for p in parts]
    return np.concatenate(found)


def _array(value: ir.Value | None, constants: ConstantLookup) -> npt.NDArray[Any]:
    tensor = constants.tensor(value)
    assert tensor is not None
    return np.asarray(tensor.numpy())
