"""MatMul, Gemm and FusedMatMul with constant weights, in each form; products of activations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.golden.corpus import Case
from tests.golden.facts import Facts
from tests.golden.graphs import F32, MS, Graph, Model, Step, normal, step
from tests.golden.onnx_runs import FORMS, case, quantized, spread


def mlp(layers: int = 2, width: int = 32, opset: int = 17) -> Model:
    g = Graph(opset)
    x = g.input("x", ["m", width], normal(5, width))
    for i in range(layers):
        g.weight(f"w{i}", width, width)
        g("MatMul", [x, f"w{i}"], f"h{i}", name=f"layer{i}")
        x = g("Relu", [f"h{i}"], "y" if i == layers - 1 else f"r{i}")
    g.output("y", ["m", width])
    return g.model()


def matmul(x: tuple[int, ...], w: tuple[int, ...], *, bias: bool = False, opset: int = 17) -> Model:
    g = Graph(opset)
    g.input("x", [f"d{i}" for i in range(len(x) - 1)] + [x[-1]], normal(*x))
    g.weight("w", *w)
    g("MatMul", "x w", "a" if bias else "y", name="layer")
    if bias:
        g.weight("b", w[-1])
        g("Add", "a b", "y")
    g.output("y")
    return g.model()


TURN = step("Transpose", "t", "w", perm=[1, 0])
CHAINS: dict[str, tuple[dict[str, Any], list[Step]]] = {
    "transpose": ({"t": (40, 32)}, [TURN]),
    "identity": ({"t": (32, 40)}, [step("Identity", "t", "w")]),
    "twice": (
        {"t": (32, 40)},
        [step("Transpose", "t", "u", perm=[1, 0]), step("Transpose", "u", "w", perm=[1, 0])],
    ),
    "slice": (
        {"t": (40, 40), "start": np.array([4]), "end": np.array([36]), "axis": np.array([0])},
        [step("Slice", "t start end axis", "w")],
    ),
    "concat": ({"t": (16, 40), "u": (16, 40)}, [step("Concat", "t u", "w", axis=0)]),
    "reshape": (
        {"t": (40, 4, 8), "shape": np.array([40, 32])},
        [step("Reshape", "t shape", "u"), step("Transpose", "u", "w", perm=[1, 0])],
    ),
    "cast": (
        {"t": normal(32, 40, seed=1).astype(np.float16)},
        [step("Cast", "t", "w", to=F32)],
    ),
    "squeeze": (
        {"t": (1, 32, 40), "axes_0": np.array([0])},
        [step("Squeeze", "t axes_0", "w")],
    ),
    "constant": (
        {},
        [step("Constant", "", "w", value=numpy_helper.from_array(normal(32, 40, seed=1), "value"))],
    ),
}


def transposed(chain: str) -> Model:
    """Weights that nodes make of what is stored."""
    g = Graph()
    g.input("x", ["b", "s", 32], normal(2, 3, 32))
    constants, steps = CHAINS[chain]
    g.constants_of(constants)
    g.steps([*steps, step("MatMul", "x w", name="layer")])
    g.output("y")
    return g.model()


BIASES = {"row": (40,), "matrix": (6, 40), "one": (1, 40), "scalar": (), "column": (6, 1)}


def gemm(
    *, a: int = 0, b: int = 0, alpha: float = 1.0, beta: float = 1.0, bias: str = "row"
) -> Model:
    g = Graph()
    g.input("x", [48, "m"] if a else ["m", 48], normal(48, 6) if a else normal(6, 48))
    g.weight("w", *((40, 48) if b else (48, 40)))
    if bias == "computed":
        g.input("c", [40], normal(40, seed=7))
    elif bias != "none":
        g.const("c", normal(*BIASES[bias], seed=7))
    g(
        "Gemm",
        "x w" if bias == "none" else "x w c",
        "y",
        name="fc",
        transA=a,
        transB=b,
        alpha=alpha,
        beta=beta,
    )
    g.output("y")
    return g.model()


def fused(*, a: int = 0, b: int = 0, alpha: float = 1.0, rank: int = 3, **more: int) -> Model:
    g = Graph()
    shape = (2, 3, 32)[3 - rank :] if not a else (2, 32, 3)[3 - rank :]
    g.input("x", list(shape), normal(*shape))
    g.weight("w", *((40, 32) if b else (32, 40)))
    g("FusedMatMul", "x w", "y", domain=MS, name="layer", transA=a, transB=b, alpha=alpha, **more)
    g.output("y")
    return g.model()


def products() -> Model:
    """A product of two activations."""
    g = Graph()
    g.input("a", ["n", 8, 32], normal(2, 8, 32))
    g.input("b", ["n", 32, 16], normal(2, 32, 16, seed=1))
    g("MatMul", "a b", "s", name="scores")
    g("Softmax", "s", "p", axis=-1)
    g.weight("w", 16, 80)
    g("MatMul", "p w", "y", name="layer")
    g.output("y")
    return g.model()


def left() -> Model:
    """A constant on the left is no layer."""
    g = Graph()
    g.input("x", [32, "n"], normal(32, 5))
    g.weight("w", 40, 32)
    g("MatMul", "w x", "y", name="layer")
    g.output("y")
    return g.model()


def wide() -> Model:
    """Rows long enough for the form that quantizes along an axis; GELU before the second layer."""
    g = Graph()
    g.input("x", ["b", "s", 48], normal(2, 3, 48))
    g.constants_of({"w0": (48, 1024), "b0": (1024,), "w1": (1024, 48), "root": np.float32(2**0.5)})
    g.constants_of({"one": np.float32(1), "half": np.float32(0.5)})
    g("MatMul", "x w0", "a", name="up")
    g("Add", "a b0", "b")
    g("Div", "b root", "c")
    g("Erf", "c", "d")
    g("Add", "d one", "e")
    g("Mul", "b e", "f")
    g("Mul", "f half", "g")
    g("MatMul", "g w1", "h", name="down")
    g("Add", "h x", "y")
    g.output("y", ["b", "s", 48])
    return g.model()


def special(what: str) -> Model:
    """Rows and weights of special numbers."""
    g = Graph()
    x = normal(6, 32)
    w = normal(32, 40, seed=1)
    if what == "zeros":
        x[1], w[:, 3] = 0, 0
    elif what == "huge":
        x[2] *= 1e30
        w[:, 5] *= 1e6
    elif what == "tiny":
        x[2] *= 1e-38
        w[:, 5] *= 1e-39
    elif what == "one":
        w[...] = 0.25
    elif what == "positive":
        x, w = np.abs(x), np.abs(w)
    elif what == "nan input":
        x[3, 4] = np.nan
        x[4, 1] = np.inf
    g.input("x", ["m", 32], x)
    g.const("w", w)
    g.weight("v", 40, 32)
    g("MatMul", "x w", "h", name="first")
    g("MatMul", "h v", "y", name="second")
    g.output("y")
    return g.model()


def asked_products(folder: Path) -> Facts:
    """Products of two activations where they are asked for."""
    facts: Facts = {}
    for form in ("portable", "any", "per-tensor", "native", "accurate native", "qdq"):
        more = {"extra_options": {"MatMulConstBOnly": False}}
        facts |= quantized(folder, products(), form, **more)
    return facts


Make = Callable[[], Model]
MODELS: dict[str, Make] = {
    "matmul vector weight": lambda: matmul((3, 2048), (2048,)),
    "matmul vector input": lambda: matmul((32,), (32, 40)),
    "matmul rank 4": lambda: matmul((2, 2, 3, 32), (32, 40), bias=True),
    "matmul batched weights": lambda: matmul((4, 3, 32), (4, 32, 40)),
    "matmul broadcast weights": lambda: matmul((2, 4, 3, 32), (1, 32, 40)),
    "matmul batched by one input": lambda: matmul((3, 32), (2, 32, 40)),
    "matmul bias": lambda: matmul((2, 5, 40), (40, 30), bias=True),
    "matmul odd sizes": lambda: matmul((7, 63), (63, 37)),
    "matmul one column": lambda: matmul((7, 1500), (1500, 1), bias=True),
    "matmul one input": lambda: matmul((7, 1), (1, 1600)),
    "matmul 260 inputs": lambda: matmul((3, 260), (260, 20), bias=True),
    **{f"weight by {c}": (lambda c=c: transposed(c)) for c in CHAINS},
    "gemm": gemm,
    "gemm transB": lambda: gemm(b=1),
    "gemm transA": lambda: gemm(a=1, bias="none"),
    "gemm all": lambda: gemm(a=1, b=1, alpha=0.3, beta=0.7),
    "gemm beta 0": lambda: gemm(beta=0.0),
    "gemm alpha only": lambda: gemm(alpha=2.5, bias="none"),
    "gemm matrix bias": lambda: gemm(bias="matrix", beta=0.5),
    "gemm bias of one row": lambda: gemm(bias="one"),
    "gemm scalar bias": lambda: gemm(bias="scalar", beta=-1.0),
    "gemm column bias": lambda: gemm(bias="column"),
    "gemm computed bias": lambda: gemm(bias="computed", beta=0.25),
    "fused matmul": fused,
    "fused matmul transA": lambda: fused(a=1, alpha=0.5),
    "fused matmul transB": lambda: fused(b=1, alpha=3.0),
    "fused matmul rank 2": lambda: fused(a=1, b=1, rank=2),
    "fused matmul batch axis": lambda: fused(transBatchA=1),
    "products": products,
    "constant on the left": left,
    **{
        f"numbers {w}": (lambda w=w: special(w))
        for w in ("zeros", "huge", "tiny", "one", "positive", "nan input")
    },
    "matmul": lambda: matmul((5, 32), (32, 40)),
}

CASES: dict[str, Case] = {
    "mlp": case(lambda: mlp(3), tuple(FORMS)),
    "wide": case(wide, tuple(FORMS)),
    "asked products": asked_products,
    **spread(MODELS, 4),
}
