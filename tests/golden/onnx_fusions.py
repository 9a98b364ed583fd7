"""What stands behind a layer: activations in many spellings, biases, residuals, shared inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.corpus import Case
from tests.golden.graphs import MS, Graph, Model, normal
from tests.golden.onnx_runs import FORMS, case, spread

K, N = 48, 40
Spell = Callable[[Graph, str], str]


def op(name: str, **attributes: Any) -> Spell:
    return lambda g, x: g(name, [x], "act", **attributes)


def c(g: Graph, number: float) -> str:
    return g.const(f"c{number}".replace("-", "m").replace(".", "_"), np.float32(number))


def gelu(kind: str) -> Spell:
    def spell(g: Graph, x: str) -> str:
        if kind == "div":
            g("Div", [x, c(g, 2**0.5)], "e0")
        else:
            g("Mul", [x, c(g, 0.5**0.5)], "e0")
        g("Erf", ["e0"], "e1")
        g("Add", ["e1", c(g, 1)] if kind == "div" else [c(g, 1), "e1"], "e2")
        if kind == "half first":
            g("Mul", [x, c(g, 0.5)], "e3")
            return g("Mul", ["e3", "e2"], "act")
        if kind == "half of erf":
            g("Mul", ["e2", c(g, 0.5)], "e3")
            return g("Mul", [x, "e3"], "act")
        g("Mul", [x, "e2"], "e3")
        return g("Mul", ["e3", c(g, 0.5)], "act")

    return spell


def gelu_tanh(kind: str) -> Spell:
    def spell(g: Graph, x: str) -> str:
        if kind == "pow":
            g("Pow", [x, c(g, 3)], "t0")
        else:
            g("Mul", [x, x], "t00")
            g("Mul", ["t00", x], "t0")
        g("Mul", ["t0", c(g, 0.044715)], "t1")
        g("Add", [x, "t1"], "t2")
        g("Mul", ["t2", c(g, (2 / np.pi) ** 0.5)], "t3")
        g("Tanh", ["t3"], "t4")
        g("Add", ["t4", c(g, 1)], "t5")
        g("Mul", [x, c(g, 0.5)], "t6")
        return g("Mul", ["t6", "t5"], "act")

    return spell


def gated(inner: str, **attributes: Any) -> Spell:
    def spell(g: Graph, x: str) -> str:
        g(inner, [x], "g0", **attributes)
        return g("Mul", [x, "g0"], "act")

    return spell


def quick(alpha: float) -> Spell:
    def spell(g: Graph, x: str) -> str:
        g("Mul", [x, c(g, alpha)], "q0")
        g("Sigmoid", ["q0"], "q1")
        return g("Mul", [x, "q1"], "act")

    return spell


def mish(g: Graph, x: str) -> str:
    g("Softplus", [x], "m0")
    g("Tanh", ["m0"], "m1")
    return g("Mul", [x, "m1"], "act")


def hard_swish(g: Graph, x: str) -> str:
    g("Add", [x, c(g, 3)], "h0")
    g("Clip", ["h0", c(g, 0), c(g, 6)], "h1")
    g("Mul", [x, "h1"], "h2")
    return g("Div", ["h2", c(g, 6)], "act")


def logistic(g: Graph, x: str) -> str:
    g("Neg", [x], "l0")
    g("Exp", ["l0"], "l1")
    g("Add", ["l1", c(g, 1)], "l2")
    return g("Div", [x, "l2"], "act")


def relu6(g: Graph, x: str) -> str:
    return g("Clip", [x, c(g, 0), c(g, 6)], "act")


SPELLINGS: dict[str, tuple[Spell, int]] = {
    "relu": (op("Relu"), 17),
    "tanh": (op("Tanh"), 17),
    "sigmoid": (op("Sigmoid"), 17),
    "leaky relu": (op("LeakyRelu", alpha=0.1), 17),
    "elu": (op("Elu"), 17),
    "softplus": (op("Softplus"), 17),
    "hard swish": (op("HardSwish"), 17),
    "erf": (op("Erf"), 17),
    "exp": (op("Exp"), 17),
    "abs": (op("Abs"), 17),
    "softmax": (op("Softmax", axis=-1), 17),
    "gelu div": (gelu("div"), 17),
    "gelu mul": (gelu("mul"), 17),
    "gelu half first": (gelu("half first"), 17),
    "gelu half of erf": (gelu("half of erf"), 17),
    "gelu op": (op("Gelu"), 20),
    "gelu op tanh": (op("Gelu", approximate="tanh"), 20),
    "gelu ms": (op("Gelu", domain=MS), 17),
    "fast gelu ms": (op("FastGelu", domain=MS), 17),
    "quick gelu ms": (op("QuickGelu", domain=MS), 17),
    "quick gelu ms 1": (op("QuickGelu", domain=MS, alpha=1.0), 17),
    "swish": (op("Swish"), 24),
    "gelu tanh pow": (gelu_tanh("pow"), 17),
    "gelu tanh mul": (gelu_tanh("mul"), 17),
    "silu": (gated("Sigmoid"), 17),
    "hard sigmoid gate": (gated("HardSigmoid", alpha=0.1667, beta=0.5), 17),
    "tanh gate": (gated("Tanh"), 17),
    "quick 1.702": (quick(1.702), 17),
    "quick 1": (quick(1.0), 17),
    "mish": (mish, 17),
    "hard swish apart": (hard_swish, 17),
    "logistic": (logistic, 17),
    "relu6": (relu6, 17),
}


def activated(name: str, *, bias: bool = True, opset: int = 0) -> Model:
    """Layer, activation, layer: the second reads numbers of one sign, or of a gate."""
    spell, since = SPELLINGS[name]
    g = Graph(opset or since)
    g.input("x", ["b", "s", K], normal(2, 4, K))
    g.weight("w0", K, N)
    last = g("MatMul", "x w0", "a", name="first")
    if bias:
        g.weight("b0", N)
        last = g("Add", "a b0", "h")
    act = spell(g, last)
    g.weight("w1", N, K)
    g("MatMul", [act, "w1"], "y", name="second")
    g.output("y")
    return g.model()


def around(kind: str) -> Model:
    """Sums, biases and inputs in other places."""
    g = Graph()
    g.input("x", ["b", "s", K], normal(2, 4, K))
    g.weight("w", K, K)
    if kind == "residual":
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a x", "y")
    elif kind == "residual first":
        g("MatMul", "x w", "a", name="layer")
        g("Add", "x a", "y")
    elif kind == "residual, bias, relu":
        g.weight("b", K)
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a b", "h")
        g("Relu", "h", "r")
        g("Add", "r x", "y")
    elif kind == "residual of one row":
        g.input("o", ["b", 1, K], normal(2, 1, K, seed=5))
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a o", "y")
    elif kind == "residual vector":
        g.input("o", [K], normal(K, seed=5))
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a o", "y")
    elif kind == "two biases":
        g.weight("b", K)
        g.weight("d", K)
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a b", "h")
        g("Add", "d h", "y")
    elif kind == "bias by sum":
        g.weight("b", K)
        g("MatMul", "x w", "a", name="layer")
        g("Sum", "a b", "y")
    elif kind == "scalar bias":
        g.const("b", np.float32(0.25))
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a b", "y")
    elif kind == "bias of rank 3":
        g.const("b", normal(1, 1, K, seed=3))
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a b", "y")
    elif kind == "bias per row":
        g.const("b", normal(4, K, seed=3))
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a b", "y")
    elif kind == "bias read twice":
        g.weight("b", K)
        g("MatMul", "x w", "a", name="layer")
        g("Add", "a b", "h")
        g("Mul", "h a", "y")
    elif kind == "scaled":
        g.const("s", np.float32(0.3))
        g("MatMul", "x w", "a", name="layer")
        g("Mul", "a s", "y")
    elif kind == "gate and up":
        g.weight("v", K, K)
        g("MatMul", "x w", "a", name="gate")
        g("MatMul", "x v", "b", name="up")
        g("Sigmoid", "a", "c")
        g("Mul", "a c", "d")
        g("Mul", "d b", "e")
        g.weight("u", K, K)
        g("MatMul", "e u", "y", name="down")
    elif kind == "three over one input":
        for i, n in enumerate((32, 48, 64)):
            g.weight(f"v{i}", K, n)
            g.weight(f"b{i}", n)
            g("MatMul", f"x v{i}", f"a{i}", name=f"part{i}")
            g("Add", f"a{i} b{i}", f"y{i}" if i else "h")
        g("Relu", "h", "y")
        g.output("y1")
        g.output("y2")
    elif kind == "far apart":
        g.weight("v", K, K)
        g("MatMul", "x w", "a", name="early")
        last = "x"
        for i in range(50):
            last = g("Tanh", [last], f"t{i}")
        g("MatMul", "x v", "b", name="late")
        g("Add", "a b", "s")
        g("Add", ["s", last], "y")
    elif kind == "shared weight":
        g("MatMul", "x w", "a", name="one")
        g("Tanh", "a", "t")
        g("MatMul", "t w", "y", name="two")
    elif kind == "output read inside":
        g("MatMul", "x w", "y", name="layer")
        g("Relu", "y", "z")
        g.output("z")
    elif kind == "heads taken apart":
        g.weight("v", K, 96)
        g.weight("b", 96)
        g.const("shape", np.array([0, 0, 12, 8]))
        g.const("parts", np.array([4, 4, 4]))
        g("MatMul", "x v", "a", name="qkv")
        g("Add", "a b", "h")
        g("Reshape", "h shape", "r")
        g("Transpose", "r", "t", perm=[0, 2, 1, 3])
        g("Split", "t parts", "q k v2", axis=1)
        g("Mul", "q k", "e")
        g("Add", "e v2", "y")
    elif kind == "after softmax":
        g("Softmax", "x", "p", axis=-1)
        g("MatMul", "p w", "y", name="layer")
    elif kind == "after norm without shift":
        g.const("gamma", np.abs(normal(K, seed=3)))
        g("LayerNormalization", "x gamma", "n", axis=-1)
        g("MatMul", "n w", "y", name="layer")
    elif kind == "after sqrt":
        g("Mul", "x x", "q")
        g("Sqrt", "q", "p")
        g("MatMul", "p w", "y", name="layer")
    elif kind == "after concat":
        g("Relu", "x", "r")
        g("Sigmoid", "x", "s")
        g("Concat", "r s", "p", axis=-1)
        g.weight("v", 2 * K, K)
        g("MatMul", "p v", "y", name="layer")
    elif kind == "after a mean":
        g("Relu", "x", "r")
        g.axes("ReduceMean", "r", "p", [1], keepdims=0)
        g("MatMul", "p w", "y", name="layer")
    elif kind == "after clip":
        g.const("lo", np.float32(-0.1))
        g.const("hi", np.float32(0.9))
        g("Clip", "x lo hi", "p")
        g("MatMul", "p w", "y", name="layer")
    elif kind == "normalized by hand":
        g.axes("ReduceMean", "x", "m", [-1])
        g("Sub", "x m", "d")
        g("Mul", "d d", "q")
        g.axes("ReduceMean", "q", "v", [-1])
        g.const("tiny", np.float32(1e-5))
        g("Add", "v tiny", "e")
        g("Sqrt", "e", "s")
        g("Div", "d s", "p")
        g("MatMul", "p w", "y", name="layer")
    elif kind == "l2 normalized":
        g.axes("ReduceL2", "x", "m", [-1])
        g("Div", "x m", "p")
        g("MatMul", "p w", "y", name="layer")
    g.output("y")
    return g.model()


AROUND = (
    "residual",
    "residual first",
    "residual, bias, relu",
    "residual of one row",
    "residual vector",
    "two biases",
    "bias by sum",
    "scalar bias",
    "bias of rank 3",
    "bias per row",
    "bias read twice",
    "scaled",
    "gate and up",
    "three over one input",
    "far apart",
    "shared weight",
    "output read inside",
    "heads taken apart",
    "after softmax",
    "after norm without shift",
    "after sqrt",
    "after concat",
    "after a mean",
    "after clip",
    "normalized by hand",
    "l2 normalized",
)
MODELS: dict[str, Callable[[], Model]] = {
    **{f"act {name}": (lambda name=name: activated(name)) for name in SPELLINGS},
    "act relu, no bias": lambda: activated("relu", bias=False),
    "act gelu div, opset 13": lambda: activated("gelu div", opset=13),
    "act gelu div, opset 23": lambda: activated("gelu div", opset=23),
    **{kind: (lambda kind=kind: around(kind)) for kind in AROUND},
}
CASES: dict[str, Case] = {
    "gelu": case(lambda: activated("gelu div"), tuple(FORMS)),
    **{name: case(make, spread(i, 2), full=()) for i, (name, make) in enumerate(MODELS.items())},
}
