"""Products of the last two axes of two values, however they are spelled.

MatMul(a, b)                                   a [..., M, K] times b [..., K, N]
FusedMatMul(a, b) of com.microsoft             the same, perhaps with a factor, or b [..., N, K]
Einsum("bhid,bhjd->bhij", a, b)                b [..., N, K]
Einsum("bhij,bhjd->bhid", a, b)                b [..., K, N]
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.heads import is_standard
from octavo.ir import MS

KEPT = ("transA", "transBatchA", "transBatchB")
"""Attributes of FusedMatMul that would turn other axes."""


@dataclass(frozen=True)
class MatrixProduct:
    """`factor * a b`, where the last axes of b may be `turned`: [..., N, K]."""

    factor: float = 1.0
    turned: bool = False


def product_of(node: ir.Node) -> MatrixProduct | None:
    """Return the matrix product that `node` computes; None for another node."""
    if is_standard(node, "MatMul"):
        return MatrixProduct()
    if is_standard(node, "Einsum"):
        return _einsum(node)
    if node.op_type != "FusedMatMul" or node.domain != MS:
        return None
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    if any(given.get(name) for name in KEPT):
        return None
    return MatrixProduct(float(given.get("alpha", 1.0)), bool(given.get("transB", 0)))


def _einsum(node: ir.Node) -> MatrixProduct | None:
    given = node.attributes.get("equation")
    if given is None or len(node.inputs) != 2:
        return None
    left, _, result = given.as_string().replace(" ", "").partition("->")
    a, _, b = left.partition(",")
    if min(len(a), len(b), len(result)) < 2:
        return None
    lead, m, k, n = a[:-2], a[-2], a[-1], result[-1]
    letters = [*lead.removeprefix("..."), m, k, n]
    if result[:-1] != lead + m or "." in letters or len(set(letters)) < len(letters):
        return None
    if b == lead + n + k:
        return MatrixProduct(turned=True)
    return MatrixProduct() if b == lead + k + n else None
