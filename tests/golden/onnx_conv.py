"""Convolutions in one to three dimensions, with groups, pads, strides; what stands behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.golden.corpus import Case
from tests.golden.graphs import Graph, Model, normal
from tests.golden.onnx_runs import FORMS, MAIN, TURNS, case, spread

ASKED: dict[str, Any] = {"op_types_to_quantize": ["Conv"]}
"""Convolutions are float by most recipes."""


def conv(
    image: Sequence[int] = (12, 10),
    *,
    channels: int = 16,
    filters: int = 32,
    kernel: Sequence[int] | None = None,
    group: int = 1,
    bias: bool = True,
    behind: Sequence[tuple[str, dict[str, Any]]] = (),
    opset: int = 17,
    stated: bool = True,
    **attributes: Any,
) -> Model:
    g = Graph(opset)
    rank = len(image)
    shape: list[Any] | None = (
        ["b", channels, *image] if stated else ["b", channels, *(f"s{i}" for i in range(rank))]
    )
    g.input("x", shape, normal(2, channels, *image))
    kernel = kernel or (3,) * rank
    scale = (channels // group) ** -0.5 / 3
    g.const("w", normal(filters, channels // group, *kernel, seed=1, scale=scale))
    ins = ["x", "w"]
    if bias:
        ins.append(g.const("b", normal(filters, seed=2)))
    last = g("Conv", ins, "c", name="conv", group=group, **attributes)
    for i, (op, said) in enumerate(behind):
        if op == "Gated":
            g("Sigmoid", [last], f"s{i}")
            last = g("Mul", [last, f"s{i}"], f"v{i}")
        elif op == "Twice":
            g("Relu", [last], f"t{i}")
            last = g("Add", [last, f"t{i}"], f"v{i}")
        else:
            last = g(op, [last], f"v{i}", **said)
    g.output(last)
    return g.model()


def two() -> Model:
    """Convolution, Relu, pool, convolution, and a linear layer over the flat result."""
    g = Graph()
    g.input("x", ["b", 3, 16, 16], normal(2, 3, 16, 16))
    g.const("w0", normal(8, 3, 3, 3, seed=1, scale=0.3))
    g.const("b0", normal(8, seed=2))
    g.const("w1", normal(16, 8, 3, 3, seed=3, scale=0.2))
    g("Conv", "x w0 b0", "a", name="first", pads=[1, 1, 1, 1])
    g("Relu", "a", "r")
    g("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2])
    g("Conv", "p w1", "c", name="second", pads=[1, 1, 1, 1])
    g("Relu", "c", "s")
    g("GlobalAveragePool", "s", "m")
    g("Flatten", "m", "f", axis=1)
    g.weight("w", 16, 10)
    g.weight("bias", 10)
    g("Gemm", "f w bias", "y", name="head")
    g.output("y")
    return g.model()


def residual() -> Model:
    g = Graph()
    g.input("x", ["b", 16, 8, 8], normal(2, 16, 8, 8))
    last = "x"
    for i in range(2):
        g.const(f"w{i}", normal(16, 16, 3, 3, seed=i + 1, scale=0.1))
        g("Conv", [last, f"w{i}"], f"c{i}", name=f"conv{i}", pads=[1, 1, 1, 1])
        last = g("Relu", [f"c{i}"], f"r{i}")
    g("Add", [last, "x"], "y")
    g.output("y")
    return g.model()


def pool(
    kernel: Sequence[int], strides: Sequence[int] | None = None, **more: Any
) -> tuple[str, dict[str, Any]]:
    return "MaxPool", {"kernel_shape": list(kernel), "strides": list(strides or kernel), **more}


RELU: tuple[str, dict[str, Any]] = ("Relu", {})
MODELS: dict[str, Callable[[], Model]] = {
    "1d": lambda: conv((40,), pads=[1, 1]),
    "1d strided": lambda: conv((41,), kernel=(5,), strides=[2], dilations=[2]),
    "3d": lambda: conv((6, 7, 5), channels=4, filters=8, pads=[1] * 6),
    "pointwise": lambda: conv(kernel=(1, 1)),
    "pointwise strided": lambda: conv(kernel=(1, 1), strides=[2, 2], bias=False),
    "strided": lambda: conv(pads=[1, 1, 1, 1], strides=[2, 1]),
    "dilated": lambda: conv(dilations=[2, 2], pads=[2, 2, 2, 2]),
    "uneven pads": lambda: conv(pads=[0, 1, 2, 0]),
    "same upper": lambda: conv(auto_pad="SAME_UPPER", strides=[2, 2]),
    "same lower": lambda: conv(auto_pad="SAME_LOWER"),
    "valid": lambda: conv(auto_pad="VALID", kernel_shape=[3, 3]),
    "groups": lambda: conv(group=4, pads=[1, 1, 1, 1]),
    "depthwise": lambda: conv(group=16, filters=16, pads=[1, 1, 1, 1]),
    "depthwise doubled": lambda: conv(group=16, filters=32),
    "depthwise 1d": lambda: conv((30,), group=16, filters=16),
    "odd channels": lambda: conv(channels=3, filters=5, kernel=(5, 3)),
    "sizes not stated": lambda: conv(stated=False, pads=[1, 1, 1, 1]),
    "relu": lambda: conv(behind=[RELU]),
    "silu": lambda: conv(behind=[("Gated", {})]),
    "sigmoid": lambda: conv(behind=[("Sigmoid", {})]),
    "tanh": lambda: conv(behind=[("Tanh", {})]),
    "leaky relu": lambda: conv(behind=[("LeakyRelu", {"alpha": 0.1})]),
    "read twice": lambda: conv(behind=[("Twice", {})]),
    "relu and pool": lambda: conv(behind=[RELU, pool((2, 3))]),
    "pool": lambda: conv(behind=[pool((2, 2))]),
    "pool and relu": lambda: conv(behind=[pool((2, 2)), RELU]),
    "pool and tanh": lambda: conv(behind=[pool((2, 2)), ("Tanh", {})]),
    "overlapping pool": lambda: conv(behind=[RELU, pool((3, 3), (2, 2))]),
    "padded pool": lambda: conv(behind=[RELU, pool((2, 2), pads=[1, 1, 0, 0])]),
    "pool rounding up": lambda: conv(behind=[RELU, pool((3, 3), ceil_mode=1)]),
    "pool 1d": lambda: conv((40,), behind=[RELU, pool((4,))]),
    "pool 3d": lambda: conv((8, 8, 6), channels=4, filters=8, behind=[RELU, pool((2, 2, 2))]),
    "residual": residual,
    "opset 11": lambda: conv(opset=11, behind=[RELU]),
    "opset 9": lambda: conv(opset=9, behind=[RELU]),
    "opset 22": lambda: conv(opset=22, behind=[RELU]),
}


ALL_TURNS = (*TURNS, ("per-tensor", "native"))
CASES: dict[str, Case] = {
    "conv": case(conv, tuple(FORMS), ALL_TURNS, **ASKED),
    "as recipes have it": case(two),
    "two": case(two, (*MAIN, "per-tensor"), ALL_TURNS, **ASKED),
    **spread(MODELS, **ASKED),
}
