"""Attention as exporters write it, masks of many kinds, encoder blocks, and fused Attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from tests.golden.corpus import Case
from tests.golden.graphs import BOOL, F32, I32, I64, MS, Graph, Model, normal, step
from tests.golden.onnx_runs import FORMS, case, spread

HEADS, DEPTH = 4, 12
WIDTH = HEADS * DEPTH
BATCH, LENGTH = 3, 20


SCALE = np.float32(DEPTH**-0.5)
POOL: dict[str, Any] = {
    "factor": SCALE,
    "root": np.float32(1 / SCALE),
    "half": np.sqrt(SCALE),
    "zero": np.array(0),
    "one": np.array(1),
    "heads": np.array([HEADS]),
    "depth": np.array([DEPTH]),
    "rest": np.array([-1]),
    "fixed": np.array([0, 0, HEADS, DEPTH]),
    "flat": np.array([0, 0, WIDTH]),
    "blocks": np.array([-1, 5, HEADS, DEPTH]),
    "whole": np.array([-1, 20, WIDTH]),
    "thirds": np.array([WIDTH] * 3),
    "low": np.float32(np.finfo(np.float32).min),
    "nothing": np.float32(0),
    "unit": np.float32(1),
    "two": np.float32(2),
    "epsilon": np.float32(1e-5),
    "c_half": np.float32(0.5),
    "c_one": np.float32(1),
    "c_root": np.float32(2**0.5),
    **{f"a{i}": np.array([i]) for i in range(4)},
    "none": np.zeros(0, np.int64),
    "n-1": np.array(-1),
    "n0": np.array(0),
    "n1": np.array(1),
    "least": np.array(0),
}


class Block(Graph):
    """A graph that takes the constants of attentions from a pool."""

    def __init__(self, opset: int = 17, *, stated: bool = True) -> None:
        super().__init__(opset)
        shape = ["batch", "length", WIDTH] if stated else [BATCH, LENGTH, WIDTH]
        self.input("x", shape, normal(BATCH, LENGTH, WIDTH))

    def __call__(self, op: str, inputs: Any, out: str, **attributes: Any) -> str:
        for name in inputs.split() if isinstance(inputs, str) else inputs:
            if name in POOL:
                self.const(name, POOL[name])
        return super().__call__(op, inputs, out, **attributes)

    def linear(
        self, x: str, name: str, n: int, k: int = WIDTH, *, bias: str = "last", out: str = ""
    ) -> str:
        self.weight(f"w_{name}", k, n)
        if bias == "none":
            return self("MatMul", [x, f"w_{name}"], out or name, name=f"{name}_mm")
        self("MatMul", [x, f"w_{name}"], f"{name}_p", name=f"{name}_mm")
        self.const(f"b_{name}", normal(n, seed=len(name), scale=0.2))
        pair = [f"{name}_p", f"b_{name}"]
        return self("Add", pair if bias == "last" else pair[::-1], out or name)

    def sizes(self, spelling: str, of: str, tag: str = "") -> tuple[str, str]:
        """Names of the shapes of heads, and of the joined width."""
        if spelling == "constant":
            return "fixed", "flat"
        if spelling == "blocks":
            return "blocks", "whole"
        if spelling == "gathered":
            self("Shape", [of], f"shape{tag}")
            dims = []
            for i, index in enumerate(("zero", "one")):
                self("Gather", [f"shape{tag}", index], f"size{i}{tag}")
                dims.append(self.axes("Unsqueeze", f"size{i}{tag}", f"dim{i}{tag}", [0]))
        else:
            dims = [self("Shape", [of], f"dim{i}{tag}", start=i, end=i + 1) for i in (0, 1)]
        middle = "heads" if spelling == "heads, rest" else "rest"
        last = "rest" if spelling == "heads, rest" else "depth"
        self("Concat", [*dims, middle, last], f"split{tag}", axis=0)
        self("Concat", [*dims, "rest"], f"joined{tag}", axis=0)
        return f"split{tag}", f"joined{tag}"


def attention(
    scores: str = "factor",
    *,
    sizes: str = "gathered",
    bias: str = "none",
    keys: str = "once",
    mask: str = "",
    softmax_axis: int = -1,
    opset: int = 17,
    joint: bool = False,
    extra: tuple[str, ...] = (),
    source: str = "x",
    stated: bool = True,
) -> Model:
    """One attention with its output layer."""
    g = Block(opset, stated=stated)
    of = "x"
    if source == "norm":
        g.const("gamma", normal(WIDTH, seed=31))
        g.const("beta", normal(WIDTH, seed=32))
        of = g("LayerNormalization", "x gamma beta", "n", axis=-1)
    split, joined = g.sizes(sizes, of)
    if joint:
        g.linear(of, "qkv", 3 * WIDTH, bias=bias)
        if g.opset < 13:
            g("Split", "qkv", "q k v", axis=-1, split=[WIDTH] * 3)
        else:
            g("Split", "qkv thirds", "q k v", axis=-1)
    else:
        for name in "qkv":
            g.linear(of, name, WIDTH, bias=bias)
    attend(g, split, joined, scores, mask, keys=keys, axis=softmax_axis)
    g.linear("o3", "out", WIDTH, bias=bias, out="y")
    g.output("y", ["batch", "length", WIDTH] if stated else None)
    for name in extra:
        g.output(name)
    return g.model()


def attend(
    g: Block,
    split: str,
    joined: str,
    scores: str,
    mask: str,
    *,
    keys: str = "once",
    axis: int = -1,
    t: str = "",
) -> None:
    """From q, k and v to o3, all with `t` behind their names; the mask "mask" is there already."""
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        g("Reshape", [f"{name}{t}", split], f"{name}4{t}")
        if name == "k" and keys == "twice":
            g("Transpose", [f"k4{t}"], f"k5{t}", perm=[0, 2, 1, 3])
            g("Transpose", [f"k5{t}"], f"kt{t}", perm=[0, 1, 3, 2])
        else:
            g("Transpose", [f"{name}4{t}"], f"{name}t{t}", perm=perm)
    if scores == "both":
        g("Mul", [f"qt{t}", "half"], f"qs{t}")
        g("Mul", [f"kt{t}", "half"], f"ks{t}")
        last = g("MatMul", [f"qs{t}", f"ks{t}"], f"s{t}")
    elif scores == "query":
        g("Mul", [f"qt{t}", "factor"], f"qs{t}")
        last = g("MatMul", [f"qs{t}", f"kt{t}"], f"s{t}")
    else:
        g("MatMul", [f"qt{t}", f"kt{t}"], f"qk{t}")
        spelt = {
            "factor": ("Mul", [f"qk{t}", "factor"]),
            "divisor": ("Div", [f"qk{t}", "root"]),
            "factor first": ("Mul", ["factor", f"qk{t}"]),
            "relu": ("Relu", [f"qk{t}"]),
            "none": ("Identity", [f"qk{t}"]),
        }
        last = g(*spelt[scores], f"s{t}")
    last = g("Add", [last, mask], f"logits{t}") if mask == "mask" else masked(g, last, mask)
    g("Softmax", [last], f"p{t}", axis=axis)
    g("MatMul", [f"p{t}", f"vt{t}"], f"o4{t}")
    g("Transpose", [f"o4{t}"], f"ot{t}", perm=[0, 2, 1, 3])
    g("Reshape", [f"ot{t}", joined], f"o3{t}")


def padding() -> Any:
    tokens = np.ones((BATCH, LENGTH), np.int64)
    tokens[0, LENGTH // 2 + 1 :] = 0
    tokens[-1, : LENGTH // 3] = 0
    return tokens


BERT = [
    step("Cast", "t2", "t3", to=F32),
    step("Sub", "unit t3", "t4"),
    step("Mul", "t4 low", "mask"),
]
WHERE = [step("Not", "t2", "t3")]
EXPANDED = [
    step("Shape", "scores", "scores_shape"),
    step("Expand", "t2 scores_shape", "t3"),
    step("Cast", "t3", "t4", to=BOOL),
    step("Where", "t4 nothing low", "mask"),
]


def masked(g: Block, scores: str, mask: str) -> str:
    """The scores with a mask of some kind added, or chosen by Where."""
    if not mask:
        return scores
    low = POOL["low"]
    if mask in ("given", "given first"):
        added = np.zeros((BATCH, 1, 1, LENGTH), np.float32)
        added[1, ..., 15:] = low
        g.input("mask", ["batch", 1, 1, "length"], added)
    elif mask == "per query":
        g.input("mask", ["batch", 1, "length", "length"], normal(BATCH, 1, LENGTH, LENGTH, seed=6))
    elif mask == "per head":
        g.const("mask", normal(1, HEADS, LENGTH, LENGTH, seed=6))
    elif mask == "constant causal":
        g.const("mask", np.triu(np.full((LENGTH, LENGTH), low, np.float32), 1))
    else:
        g.input("tokens", ["batch", "length"], padding(), I64)
        if mask.startswith("gathered"):
            gathered(g, mask)
        elif mask == "where":
            g("Cast", "tokens", "real", to=BOOL)
            g.axes("Unsqueeze", "real", "t2", [1, 2])
            g.steps(WHERE)
            return g("Where", ["t3", "low", scores], "logits")
        else:
            g.axes("Unsqueeze", "tokens", "t2", [1, 2])
            for op, inputs, out, more in BERT if mask == "bert" else EXPANDED:
                g(op, inputs.replace("scores", scores) if op == "Shape" else inputs, out, **more)
    return g("Add", ["mask", scores] if mask == "given first" else [scores, "mask"], "logits")


def gathered(g: Block, kind: str) -> None:
    """What transformers 5 computes of the mask: indices of every element."""

    def filled(t: int, v: Any) -> Any:
        return onnx.helper.make_tensor("t", t, [1], [v])

    g("Cast", "tokens", "real", to=BOOL)
    for name, of, axis in (("B", "x", 0), ("Q", "x", 1), ("K", "real", 1)):
        g("Shape", of, f"{name}_shape")
        g("Gather", f"{name}_shape n{axis}", f"{name}_size")
        g("Cast", f"{name}_size", name, to=I64)
    for size, name, axes in (("B", "b", "123"), ("Q", "qr", "013"), ("K", "kr", "012")):
        g("Range", f"n0 {size} n1", name)
        for i, axis in enumerate(axes):
            g("Unsqueeze", f"{name + axes[:i]} a{axis}", name + axes[: i + 1])
    causal = kind == "gathered causal"
    swapped = kind == "gathered swapped"
    seen = ("LessOrEqual", "kr012 qr013") if causal else ("GreaterOrEqual", "qr013 least")
    g.steps(
        [
            step("ConstantOfShape", "none", "true", value=filled(BOOL, True)),
            step(*seen, "is_seen"),
            step("Cast", "is_seen", "seen", to=BOOL),
            step("And", "true seen", "first"),
            step("Shape", "real", "real_shape"),
            step("Gather", "real_shape n1", "stride"),
            step("Flatten", "real", "laid", axis=2),
            step("Mul", "b123 stride", "rows"),
            step("Add", "rows kr012" if swapped else "kr012 rows", "index"),
            step("Gather", "laid index", "found", axis=0),
            step("Shape", "index", "index_shape"),
            step("Reshape", "found rest", "listed"),
            step("Concat", "index_shape", "listed_shape", axis=0),
            step("Reshape", "listed listed_shape", "there"),
            step("Cast", "there", "there_bool", to=BOOL),
            step("And", "first there_bool", "both"),
            *(step("Unsqueeze", f"{name}_size a0", f"{name}_dim") for name in "BQK"),
            step("Concat", "B_dim rest Q_dim K_dim", "asked", axis=0),
            step("Reshape", "asked rest", "target"),
            step("Shape", "target", "target_shape"),
            step("ConstantOfShape", "target_shape", "ones", value=filled(I64, 1)),
            step("Mul", "ones n-1", "marks"),
            step("Equal", "target marks", "is_open"),
            step("Where", "is_open ones target", "sizes"),
            step("Expand", "both sizes", "wide"),
            step("Where", "wide nothing low", "mask", name="mask"),
        ]
    )


def encoder(
    layers: int = 1,
    *,
    activation: str = "gelu",
    norm: str = "one",
    mask: str = "bert",
    opset: int = 17,
    before: bool = False,
    joint: bool = False,
) -> Model:
    """Encoder blocks with residuals and layer norms."""
    g = Block(opset)
    x = "x"
    for i in range(layers):
        t = f"_{i}"
        h = layer_norm(g, x, f"n0{t}", norm) if before else x
        split, joined = g.sizes("gathered", h, t)
        if joint:
            g.linear(h, f"qkv{t}", 3 * WIDTH)
            g("Split", f"qkv{t} thirds", f"q{t} k{t} v{t}", axis=-1)
        else:
            for name in "qkv":
                g.linear(h, f"{name}{t}", WIDTH)
        attend(g, split, joined, "divisor", "mask" if i and mask else mask, t=t)
        g.linear(f"o3{t}", f"out{t}", WIDTH)
        x = g("Add", [f"out{t}", x], f"r0{t}")
        if not before:
            x = layer_norm(g, x, f"n1{t}", norm)
        h = layer_norm(g, x, f"n1{t}", norm) if before else x
        g.linear(h, f"up{t}", 2 * WIDTH)
        activated = activate(g, f"up{t}", activation, t)
        g.linear(activated, f"down{t}", WIDTH, 2 * WIDTH)
        x = g("Add", [f"down{t}", x], f"r1{t}")
        if not before:
            x = layer_norm(g, x, f"n2{t}", norm)
    g("Identity", [x], "y")
    g.output("y", ["batch", "length", WIDTH])
    return g.model()


def layer_norm(g: Graph, x: str, out: str, spelling: str) -> str:
    gamma = g.const(f"{out}_gamma", normal(WIDTH, seed=41) * np.float32(0.3) + 1)
    beta = g.const(f"{out}_beta", normal(WIDTH, seed=42) * np.float32(0.2))
    if spelling == "one":
        return g("LayerNormalization", [x, gamma, beta], out, axis=-1, epsilon=1e-5)
    g.axes("ReduceMean", x, f"{out}_m", [-1])
    g("Sub", [x, f"{out}_m"], f"{out}_d")
    squared = ("Pow", f"{out}_d two") if spelling == "pow" else ("Mul", f"{out}_d {out}_d")
    g(*squared, f"{out}_q")
    g.axes("ReduceMean", f"{out}_q", f"{out}_v", [-1])
    g("Add", f"{out}_v epsilon", f"{out}_e")
    g("Sqrt", [f"{out}_e"], f"{out}_s")
    g("Div", [f"{out}_d", f"{out}_s"], f"{out}_n")
    g("Mul", [f"{out}_n", gamma], f"{out}_g")
    return g("Add", [f"{out}_g", beta], out)


def activate(g: Graph, x: str, spelling: str, t: str) -> str:
    out = f"act{t}"
    if spelling in ("Relu", "Tanh", "Sigmoid"):
        return g(spelling, [x], out)
    if spelling == "gelu":
        g("Div", [x, "c_root"], f"e0{t}")
        g("Erf", [f"e0{t}"], f"e1{t}")
        g("Add", [f"e1{t}", "c_one"], f"e2{t}")
        g("Mul", [x, f"e2{t}"], f"e3{t}")
        return g("Mul", [f"e3{t}", "c_half"], out)
    g("Sigmoid", [x], f"e1{t}")
    return g("Mul", [x, f"e1{t}"], out)


def fused_attention(
    *,
    mask: str = "",
    bias: bool = True,
    sizes: tuple[int, ...] = (),
    causal: bool = False,
    past: bool = False,
    added: bool = False,
    width: int = WIDTH,
    scale: float = 0.0,
) -> Model:
    """com.microsoft.Attention."""
    g = Graph()
    g.input("x", ["b", "s", width], normal(2, 6, width))
    total = sum(sizes) or 3 * width
    ins = ["x", g.weight("w", width, total), "_"]
    if bias:
        ins[2] = g.const("bias", normal(total, seed=4, scale=0.2))
    attributes: dict[str, Any] = {"num_heads": HEADS}
    if sizes:
        attributes["qkv_hidden_sizes"] = list(sizes)
    if causal:
        attributes["unidirectional"] = 1
    if scale:
        attributes["scale"] = scale
    seen = np.array([6, 4] if mask == "lengths" else [[1] * 6, [1] * 3 + [0] * 3], np.int32)
    shapes: dict[str, Any] = {"tokens": ["b", "s"], "lengths": ["b"], "not stated": None}
    if mask:
        ins.append(g.input("mask", shapes[mask], seen, I32))
    if past:
        kept = normal(2, 2, HEADS, 3, DEPTH, seed=8)
        ins += ["_"] * (4 - len(ins)) + [g.input("past", [2, "b", HEADS, "p", DEPTH], kept)]
    if added:
        more = normal(2, HEADS, 6, 6, seed=8)
        ins += ["_"] * (5 - len(ins)) + [g.input("add", list(more.shape), more)]
    g("Attention", ins, "y present" if past else "y", domain=MS, name="attention", **attributes)
    g.output("y")
    if past:
        g.output("present")
    v = sizes[2] if sizes else width
    g.weight("v", v, 32)
    g("MatMul", "y v", "z", name="head")
    g.output("z")
    return g.model()


GIVEN = ("given", "given first", "per query", "per head", "constant causal")
MASKS = (*GIVEN, "bert", "where", "expanded", "gathered", "gathered swapped", "gathered causal")
MODELS: dict[str, Callable[[], Model]] = {
    **{
        f"scores by {s}": (lambda s=s: attention(s))
        for s in ("divisor", "factor first", "both", "query", "none", "relu")
    },
    **{
        f"sizes {s}": (lambda s=s: attention(sizes=s))
        for s in ("sliced", "constant", "blocks", "heads, rest")
    },
    **{f"bias {b}": (lambda b=b: attention(bias=b, sizes="constant")) for b in ("last", "first")},
    **{f"mask {m}": (lambda m=m: attention(mask=m, bias="last")) for m in MASKS},
    "mask bert, sizes constant": lambda: attention(mask="bert", bias="last", sizes="constant"),
    "keys turned twice": lambda: attention(keys="twice", bias="last"),
    "axis 3": lambda: attention(softmax_axis=3),
    "axis 2": lambda: attention(softmax_axis=2),
    "joint": lambda: attention(joint=True, bias="last"),
    "joint, constant": lambda: attention(joint=True, bias="none", sizes="constant"),
    "behind a norm": lambda: attention(source="norm", bias="last"),
    "all sizes stated": lambda: attention(stated=False, bias="last", mask="bert"),
    "read in the middle": lambda: attention(extra=("p",), bias="last"),
    "query read outside": lambda: attention(extra=("q",), bias="last"),
    "context read outside": lambda: attention(extra=("o4",), bias="last"),
    "opset 11": lambda: attention(opset=11, bias="last", mask="bert"),
    "opset 12": lambda: attention(opset=12, sizes="constant", bias="last"),
    "opset 21": lambda: attention(opset=21, bias="last", mask="where"),
    "encoder of two": lambda: encoder(2),
    "encoder, no mask": lambda: encoder(mask=""),
    "encoder, relu": lambda: encoder(activation="Relu", norm="pow", mask="where"),
    "encoder, silu": lambda: encoder(activation="silu", norm="mul", mask="gathered"),
    "encoder, norm before": lambda: encoder(2, before=True, mask="constant causal"),
    "encoder, joint": lambda: encoder(joint=True, norm="pow"),
    "encoder, opset 13": lambda: encoder(opset=13, norm="pow"),
    "encoder, opset 23": lambda: encoder(opset=23),
    "fused, no bias": lambda: fused_attention(bias=False),
    "fused, mask": lambda: fused_attention(mask="tokens"),
    "fused, lengths": lambda: fused_attention(mask="lengths"),
    "fused, mask not stated": lambda: fused_attention(mask="not stated"),
    "fused, sizes": lambda: fused_attention(sizes=(48, 48, 32)),
    "fused, causal": lambda: fused_attention(causal=True),
    "fused, past": lambda: fused_attention(past=True),
    "fused, added": lambda: fused_attention(added=True),
    "fused, scale": lambda: fused_attention(scale=0.5, mask="tokens"),
}
CASES: dict[str, Case] = {
    "attention": case(lambda: attention(bias="last", mask="given"), tuple(FORMS)),
    "encoder": case(encoder, tuple(FORMS)),
    "fused": case(fused_attention, tuple(FORMS)),
    **spread(MODELS),
}
