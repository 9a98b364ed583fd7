"""What stands behind a layer: activations in many spellings, biases, residuals, shared inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.corpus import Case
from tests.golden.graphs import MS, Graph, Model, Step, normal, step
from tests.golden.onnx_runs import spread

K, N = 48, 40
ROOT, HALF_ROOT, TANH = 2**0.5, 0.5**0.5, (2 / np.pi) ** 0.5


def to(op: str, inputs: str = "in", out: str = "act", **attributes: Any) -> Step:
    """A node of an activation, between `in` and `act`."""
    return step(op, inputs, out, **attributes)


def erf(e0: Step, one: str = "1 e1") -> list[Step]:
    """1 + erf of what `e0` gives, in `e2`."""
    return [e0, to("Erf", "e0", "e1"), to("Add", one, "e2")]


def gelu_tanh(*cube: Step) -> list[Step]:
    return [
        *cube,
        to("Mul", "t0 0.044715", "t1"),
        to("Add", "in t1", "t2"),
        to("Mul", f"t2 {TANH}", "t3"),
        to("Tanh", "t3", "t4"),
        to("Add", "t4 1", "t5"),
        to("Mul", "in 0.5", "t6"),
        to("Mul", "t6 t5"),
    ]


def gated(gate: str, **attributes: Any) -> list[Step]:
    return [to(gate, "in", "g0", **attributes), to("Mul", "in g0")]


def quick(alpha: float) -> list[Step]:
    return [to("Mul", f"in {alpha}", "q0"), to("Sigmoid", "q0", "q1"), to("Mul", "in q1")]


DIVIDED, MULTIPLIED = to("Div", f"in {ROOT}", "e0"), to("Mul", f"in {HALF_ROOT}", "e0")
HALVED = [to("Mul", "in e2", "e3"), to("Mul", "e3 0.5")]
SPELLINGS: dict[str, list[Step]] = {
    "relu": [to("Relu")],
    "tanh": [to("Tanh")],
    "sigmoid": [to("Sigmoid")],
    "leaky relu": [to("LeakyRelu", alpha=0.1)],
    "elu": [to("Elu")],
    "softplus": [to("Softplus")],
    "hard swish": [to("HardSwish")],
    "erf": [to("Erf")],
    "exp": [to("Exp")],
    "abs": [to("Abs")],
    "softmax": [to("Softmax", axis=-1)],
    "gelu div": [*erf(DIVIDED, "e1 1"), *HALVED],
    "gelu mul": [*erf(MULTIPLIED), *HALVED],
    "gelu half first": [*erf(MULTIPLIED), to("Mul", "in 0.5", "e3"), to("Mul", "e3 e2")],
    "gelu half of erf": [*erf(MULTIPLIED), to("Mul", "e2 0.5", "e3"), to("Mul", "in e3")],
    "gelu op": [to("Gelu")],
    "gelu op tanh": [to("Gelu", approximate="tanh")],
    "gelu ms": [to("Gelu", domain=MS)],
    "fast gelu ms": [to("FastGelu", domain=MS)],
    "quick gelu ms": [to("QuickGelu", domain=MS)],
    "quick gelu ms 1": [to("QuickGelu", domain=MS, alpha=1.0)],
    "swish": [to("Swish")],
    "gelu tanh pow": gelu_tanh(to("Pow", "in 3", "t0")),
    "gelu tanh mul": gelu_tanh(to("Mul", "in in", "t00"), to("Mul", "t00 in", "t0")),
    "silu": gated("Sigmoid"),
    "hard sigmoid gate": gated("HardSigmoid", alpha=0.1667, beta=0.5),
    "tanh gate": gated("Tanh"),
    "quick 1.702": quick(1.702),
    "quick 1": quick(1.0),
    "mish": [to("Softplus", "in", "m0"), to("Tanh", "m0", "m1"), to("Mul", "in m1")],
    "hard swish apart": [
        to("Add", "in 3", "h0"),
        to("Clip", "h0 0 6", "h1"),
        to("Mul", "in h1", "h2"),
        to("Div", "h2 6"),
    ],
    "logistic": [
        to("Neg", "in", "l0"),
        to("Exp", "l0", "l1"),
        to("Add", "l1 1", "l2"),
        to("Div", "in l2"),
    ],
    "relu6": [to("Clip", "in 0 6")],
}
SINCE = {"gelu op": 20, "gelu op tanh": 20, "swish": 24}


def activated(name: str, *, bias: bool = True, opset: int = 0) -> Model:
    """Layer, activation, layer: the second reads numbers of one sign, or of a gate."""
    g = Graph(opset or SINCE.get(name, 17))
    g.input("x", ["b", "s", K], normal(2, 4, K))
    g.weight("w0", K, N)
    last = g("MatMul", "x w0", "a", name="first")
    if bias:
        g.weight("b0", N)
        last = g("Add", "a b0", "h")
    for op, inputs, out, more in SPELLINGS[name]:
        g(op, [last if i == "in" else i for i in inputs.split()], out, **more)
    g.weight("w1", N, K)
    g("MatMul", "act w1", "y", name="second")
    g.output("y")
    return g.model()


def layer(x: str = "x", out: str = "y", w: str = "w", name: str = "layer") -> Step:
    return step("MatMul", f"{x} {w}", out, name=name)


LAYER = layer(out="a")
PARTS = {
    f"{kind}{i}": (K, n)[j:] for i, n in enumerate((32, 48, 64)) for j, kind in enumerate("vb")
}
AROUND: dict[str, tuple[dict[str, Any], list[Step]]] = {
    "residual": ({}, [LAYER, step("Add", "a x")]),
    "residual first": ({}, [LAYER, step("Add", "x a")]),
    "residual, bias, relu": (
        {"b": (K,)},
        [LAYER, step("Add", "a b", "h"), step("Relu", "h", "r"), step("Add", "r x")],
    ),
    "residual of one row": ({}, [LAYER, step("Add", "a o")]),
    "residual vector": ({}, [LAYER, step("Add", "a o")]),
    "two biases": ({"b": (K,), "d": (K,)}, [LAYER, step("Add", "a b", "h"), step("Add", "d h")]),
    "bias by sum": ({"b": (K,)}, [LAYER, step("Sum", "a b")]),
    "scalar bias": ({"b": np.float32(0.25)}, [LAYER, step("Add", "a b")]),
    "bias of rank 3": ({"b": normal(1, 1, K, seed=3)}, [LAYER, step("Add", "a b")]),
    "bias per row": ({"b": normal(4, K, seed=3)}, [LAYER, step("Add", "a b")]),
    "bias read twice": ({"b": (K,)}, [LAYER, step("Add", "a b", "h"), step("Mul", "h a")]),
    "scaled": ({"s": np.float32(0.3)}, [LAYER, step("Mul", "a s")]),
    "gate and up": (
        {"v": (K, K), "u": (K, K)},
        [
            layer(out="a", name="gate"),
            layer(out="b", w="v", name="up"),
            step("Sigmoid", "a", "c"),
            step("Mul", "a c", "d"),
            step("Mul", "d b", "e"),
            layer("e", w="u", name="down"),
        ],
    ),
    "three over one input": (
        PARTS,
        [
            *(layer(out=f"a{i}", w=f"v{i}", name=f"part{i}") for i in range(3)),
            *(step("Add", f"a{i} b{i}", f"y{i}" if i else "h") for i in range(3)),
            step("Relu", "h"),
        ],
    ),
    "far apart": (
        {"v": (K, K)},
        [
            layer(out="a", name="early"),
            *(step("Tanh", f"t{i - 1}" if i else "x", f"t{i}") for i in range(50)),
            layer(out="b", w="v", name="late"),
            step("Add", "a b", "s"),
            step("Add", "s t49"),
        ],
    ),
    "shared weight": (
        {},
        [layer(out="a", name="one"), step("Tanh", "a", "t"), layer("t", name="two")],
    ),
    "output read inside": ({}, [layer(), step("Relu", "y", "z")]),
    "heads taken apart": (
        {"v": (K, 96), "b": (96,), "shape": np.array([0, 0, 12, 8]), "parts": np.array([4] * 3)},
        [
            layer(out="a", w="v", name="qkv"),
            step("Add", "a b", "h"),
            step("Reshape", "h shape", "r"),
            step("Transpose", "r", "t", perm=[0, 2, 1, 3]),
            step("Split", "t parts", "q k v2", axis=1),
            step("Mul", "q k", "e"),
            step("Add", "e v2"),
        ],
    ),
    "after softmax": ({}, [step("Softmax", "x", "p", axis=-1), layer("p")]),
    "after norm without shift": (
        {"gamma": np.abs(normal(K, seed=3))},
        [step("LayerNormalization", "x gamma", "n", axis=-1), layer("n")],
    ),
    "after sqrt": ({}, [step("Mul", "x x", "q"), step("Sqrt", "q", "p"), layer("p")]),
    "after concat": (
        {"v": (2 * K, K)},
        [
            step("Relu", "x", "r"),
            step("Sigmoid", "x", "s"),
            step("Concat", "r s", "p", axis=-1),
            layer("p", w="v"),
        ],
    ),
    "after a mean": (
        {},
        [step("Relu", "x", "r"), step("ReduceMean", "r", "p", axes=[1], keepdims=0), layer("p")],
    ),
    "after clip": (
        {"lo": np.float32(-0.1), "hi": np.float32(0.9)},
        [step("Clip", "x lo hi", "p"), layer("p")],
    ),
    "normalized by hand": (
        {"tiny": np.float32(1e-5)},
        [
            step("ReduceMean", "x", "m", axes=[-1]),
            step("Sub", "x m", "d"),
            step("Mul", "d d", "q"),
            step("ReduceMean", "q", "v", axes=[-1]),
            step("Add", "v tiny", "e"),
            step("Sqrt", "e", "s"),
            step("Div", "d s", "p"),
            layer("p"),
        ],
    ),
    "l2 normalized": (
        {},
        [step("ReduceL2", "x", "m", axes=[-1]), step("Div", "x m", "p"), layer("p")],
    ),
}


def around(kind: str) -> Model:
    """Sums, biases and inputs in other places."""
    g = Graph()
    g.input("x", ["b", "s", K], normal(2, 4, K))
    g.weight("w", K, K)
    if kind == "residual of one row":
        g.input("o", ["b", 1, K], normal(2, 1, K, seed=5))
    elif kind == "residual vector":
        g.input("o", [K], normal(K, seed=5))
    constants, steps = AROUND[kind]
    g.constants_of(constants)
    g.steps(steps)
    more = {"three over one input": ["y1", "y2"], "output read inside": ["z"]}
    for name in (*more.get(kind, ()), "y"):
        g.output(name)
    return g.model()


MODELS: dict[str, Callable[[], Model]] = {
    **{f"act {name}": (lambda name=name: activated(name)) for name in SPELLINGS},
    "act relu, no bias": lambda: activated("relu", bias=False),
    "act gelu div, opset 13": lambda: activated("gelu div", opset=13),
    "act gelu div, opset 23": lambda: activated("gelu div", opset=23),
    **{kind: (lambda kind=kind: around(kind)) for kind in AROUND},
}
CASES: dict[str, Case] = spread(MODELS)
