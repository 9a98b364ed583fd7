"""Operators give the same bits on every instruction set, of which a process keeps one."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from octavo.core.kernels import isas
from tests import fresh
from tests.core.attention_cases import CASES, operands
from tests.native_target import test_matmul_op, test_norm_op
from tests.native_target.nodes import run
from tests.native_target.test_attention_layouts import PADDED

EACH = 1 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 2  # all in `make test-all`
CODE = "from tests.native_target.test_operator_bits import digests; print(digests())"


def digest(*arrays: np.ndarray) -> str:
    """Of the bits, where any NaN is as good as another."""
    found = hashlib.sha256()
    for y in arrays:
        found.update(np.where(np.isnan(y), np.float32(0), y).tobytes() + np.isnan(y).tobytes())
    return found.hexdigest()


def digests() -> dict[str, str]:
    """Of what each operator makes of its cases, on this process's instruction set."""
    attentions = [
        run("Attention", operands(case), heads=case.heads, bfloat16=allowed)
        for case in CASES[::EACH]
        for allowed in (0, 1)
    ]
    attentions += [case.run(**more) for case in PADDED for more in ({"guard": 2}, {"hidden": 1})]
    products = [
        test_matmul_op.product(*test_matmul_op.operands(*shapes), transposed=transposed)
        for shapes in test_matmul_op.SHAPES
        for transposed in (0, 1)
    ]
    norms = [
        run("Norm", test_norm_op.operands(shape, bias=bias), kind=kind)
        for shape, kind, bias in test_norm_op.CASES
    ]
    return {"Attention": digest(*attentions), "MatMul": digest(*products), "Norm": digest(*norms)}


def test_every_instruction_set_gives_the_same_bits() -> None:
    found = {isa: fresh.python(CODE, env=os.environ | {"OCTAVO_ISA": isa}).stdout for isa in isas()}
    assert len(set(found.values())) == 1, found
