"""Steps of programs beside what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as f

from octavo.core.linear import Linear
from octavo.core.program import Normed, Program


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


@dataclass(frozen=True)
class Case:
    """`build(program, values)` adds steps; `stated(tensors)` is what they compute."""

    inputs: tuple[Tensor, ...]
    build: Callable[[Program, list[int]], Any]
    stated: Callable[..., Any]
    ints: tuple[int, ...] = ()

    def found(self, threads: int = 1) -> list[Tensor]:
        p = Program()
        values = [p.input(x.dim(), str(x.dtype).removeprefix("torch.")) for x in self.inputs]
        sizes: list[Any] = [p.input_int() for _ in self.ints]
        made = self.build(p, [*values, *sizes])
        for value in made if isinstance(made, tuple) else (made,):
            p.output(value)
        return list(p.finish("a case")(self.inputs, self.ints, threads))

    def expected(self) -> list[Tensor]:
        stated = self.stated(*self.inputs, *self.ints)
        return list(stated) if isinstance(stated, tuple) else [stated]


X = tensor(2, 5, 4, 8)
"""As linear layers leave heads: [batch, rows, heads, width]."""
HEADS = X.transpose(1, 2)
IDS = torch.randint(0, 7, (2, 5), generator=torch.Generator().manual_seed(1))
PLACES = torch.randint(5, 37, (1, 70, 40), generator=torch.Generator().manual_seed(1))


def step(
    word: str, inputs: tuple[Tensor, ...], stated: Callable[..., Any], *rest: Any, **options: Any
) -> Case:
    """A step that takes the inputs, and what else is given."""
    return Case(inputs, lambda p, v: getattr(p, word)(*v, *rest, **options), stated)


def view(name: str, x: Tensor, *arguments: Any) -> Case:
    """A step whose arguments are those of the tensor's method of its name."""
    return Case(
        (x,),
        lambda p, v: getattr(p, name)(v[0], *arguments),
        lambda x: getattr(x, name)(*arguments),
    )


VIEWS = {
    "reshape": view("reshape", X, (2, -1, 32)),
    "reshape-strided": view("reshape", HEADS, (2, 20, 8)),
    "reshape-splits": view("reshape", HEADS, (2, 2, 2, 5, 4, 2)),
    "permute": view("permute", X, (3, 0, 2, 1)),
    "expand": view("expand", X[:, :, :1], (3, -1, 5, 4, -1)),
    "unsqueeze": view("unsqueeze", X, -2),
    "squeeze": view("squeeze", X[:, :1], 1),
    "contiguous": view("contiguous", HEADS),
    "reshape-size": Case(
        (X,),
        lambda p, v: p.reshape(v[0], (p.compute("mul", p.size(v[0], 0), p.size(v[0], 1)), 32)),
        lambda x: x.reshape(10, 32),
    ),
    "slice": step("slice", (X,), lambda x: x[:, 1:-1:2], 1, 1, -1, 2),
    "slice-open": step("slice", (X,), lambda x: x[..., 3:], -1, 3, None),
    "slice-int": Case(
        (X,), lambda p, v: p.slice(v[0], 1, v[1], v[2]), lambda x, a, b: x[:, a:b], ints=(1, 4)
    ),
    "slice-beyond": step("slice", (X,), lambda x: x[:, 4:99], 1, 4, 99),
    "slice-nothing": step("slice", (X,), lambda x: x[:, 4:2], 1, 4, 2),
}

LAYER = Linear.from_float(np.random.default_rng(0).standard_normal((48, 32)).astype(np.float32))
OTHER = Linear.from_float(np.random.default_rng(1).standard_normal((48, 32)).astype(np.float32))
ROWS = tensor(2, 5, 32)


def layer(x: Tensor, of: Linear = LAYER) -> Tensor:
    return torch.from_numpy(np.array(of(np.ascontiguousarray(x.numpy()))))


def rotated(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotated_neighbours(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


COS, SIN = tensor(1, 1, 5, 6), tensor(2, 1, 5, 6, seed=3)
GAIN, SHIFT = tensor(32), tensor(32, seed=1)


def with_rms(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + y, f.rms_norm(x + y, (32,), GAIN, 1e-6)


def gated_with_rms(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    normed = f.rms_norm(x, (32,), weight, 1e-6)
    return f.silu(layer(normed)) * layer(normed, OTHER), normed


LAYERS = {
    "linear-activations": step(
        "linear",
        (ROWS,),
        lambda x: (f.gelu(layer(x)), layer(x, OTHER)),
        [LAYER.native, OTHER.native],
        ["gelu", "none"],
    ),
    "linear-gate": step(
        "linear",
        (ROWS,),
        lambda x: f.silu(layer(x)) * layer(x, OTHER),
        [LAYER.native, OTHER.native],
        gate="silu",
    ),
    "linear-rows-apart": step("linear", (tensor(2, 5, 40)[..., 3:35],), layer, [LAYER.native]),
    "linear-of-one-row": Case(
        (ROWS,),
        lambda p, v: p.linear(p.slice(v[0], 1, 0, 1), [LAYER.native]),
        lambda x: layer(x[:, :1]),
    ),
    "linear-strided": Case(
        (tensor(2, 32, 5).transpose(1, 2), tensor(2, 48, 5).transpose(1, 2)),
        lambda p, v: p.linear(v[0], [LAYER.native], residual=v[1]),
        lambda x, y: layer(x) + y,
    ),
    "linear-of-a-norm": Case(
        (ROWS, GAIN, SHIFT),
        lambda p, v: p.linear(
            v[0], [LAYER.native, OTHER.native], norm=Normed("layer", v[1], v[2], 1e-5)
        ),
        lambda x, w, b: tuple(layer(f.layer_norm(x, (32,), w, b), of) for of in (LAYER, OTHER)),
    ),
    "linear-of-a-norm-kept": Case(
        (tensor(2, 32, 300).transpose(1, 2), GAIN),
        lambda p, v: p.linear(
            v[0],
            [LAYER.native, OTHER.native],
            gate="silu",
            norm=Normed("rms", v[1], None, 1e-6, kept=True),
        ),
        gated_with_rms,
    ),
    "linear-of-a-span": Case(
        (tensor(1, 60, 32), tensor(2, 70, 48), PLACES),
        lambda p, v: p.gathered_product(
            p.slice(v[1], 0, 0, 1),
            *p.linear(v[0], [LAYER.native], span=[v[2], p.slice(v[2], 2, 0, 3)]),
            v[2],
        ),
        lambda x, a, i: (a[:1] @ layer(x).mT).gather(-1, i),
    ),
    "linear-of-no-rows": step("linear", (ROWS[:, :0],), layer, [LAYER.native]),
    "layer-norm": step(
        "norm",
        (ROWS, GAIN, SHIFT),
        lambda x, w, b: f.layer_norm(x, (32,), w, b, 1e-5),
        1e-5,
        "layer",
    ),
    "plain-layer-norm": step(
        "norm", (ROWS.transpose(0, 1),), lambda x: f.layer_norm(x, (32,)), None, None, 1e-5, "layer"
    ),
    "rms-norm": step(
        "norm", (ROWS, GAIN), lambda x, w: f.rms_norm(x, (32,), w, 1e-6), None, 1e-6, "rms"
    ),
    "rms-norm-of-heads": step(
        "norm", (HEADS, tensor(8)), lambda x, w: f.rms_norm(x, (8,), w, 1e-6), None, 1e-6, "rms"
    ),
    "norm-residual": Case(
        (ROWS, tensor(2, 32, 5).transpose(1, 2)),
        lambda p, v: p.norm(
            v[0], p.constant(GAIN.data_ptr(), (32,)), None, 1e-6, "rms", residual=v[1]
        ),
        with_rms,
    ),
    "rotary-part": step(
        "rotary",
        (HEADS, COS.expand(2, 1, 5, 6), SIN),
        lambda x, c, s: torch.cat((x[..., :6] * c + rotated(x[..., :6]) * s, x[..., 6:]), -1),
    ),
    "rotary-gaps": step(
        "rotary",
        (tensor(2, 4, 5, 16)[..., ::2], tensor(5, 16)[:, ::2], tensor(5, 8, seed=1)),
        lambda x, c, s: x * c + rotated(x) * s,
    ),
    "attention-gaps": step(
        "attention",
        (HEADS.transpose(2, 3).contiguous().transpose(2, 3), tensor(2, 4, 5, 16)[..., ::2], HEADS),
        f.scaled_dot_product_attention,
        8**-0.5,
    ),
    "rotary-neighbours": step(
        "rotary",
        (HEADS, tensor(5, 8), tensor(5, 8, seed=1)),
        lambda x, c, s: x * c + rotated_neighbours(x) * s,
        interleaved=True,
    ),
    "attention": step(
        "attention", (HEADS, HEADS.flip(0), HEADS.flip(1)), f.scaled_dot_product_attention, 8**-0.5
    ),
    "attention-groups": step(
        "attention",
        (HEADS, HEADS[:, :2], HEADS[:, 1:3]),
        lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        8**-0.5,
        causal=True,
    ),
    "attention-bias": Case(
        (HEADS, HEADS[:, :, :3], HEADS[:, :, 2:], tensor(4, 5, 3)),
        lambda p, v: p.attention(v[0], v[1], v[2], 8**-0.5, bias=v[3]),
        f.scaled_dot_product_attention,
    ),
    "attention-mask": Case(
        (HEADS, HEADS, HEADS, tensor(2, 1, 1, 5) > -0.5),
        lambda p, v: p.attention(*v[:3], 8**-0.5, mask=v[3]),
        f.scaled_dot_product_attention,
    ),
    "attention-cache": Case(
        (HEADS[:, :, :2], HEADS, HEADS),
        lambda p, v: p.attention(
            *v[:3], 8**-0.5, causal=True, offset=p.compute("sub", p.size(v[1], 2), p.size(v[0], 2))
        ),
        lambda q, k, v: f.scaled_dot_product_attention(
            q, k, v, torch.ones(2, 5, dtype=torch.bool).tril(3)
        ),
    ),
}

POSITIVE = X.abs() + 0.1
UNARY = {
    "neg": torch.neg,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": f.gelu,
    "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
    "silu": f.silu,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "abs": torch.abs,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "log": torch.log,
    "softplus": f.softplus,
}
FLOATS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
}
COMPARES = {w: getattr(torch, w) for w in ("gt", "ge", "lt", "le", "eq", "ne")}
WHOLE = {**FLOATS, "floordiv": torch.floor_divide}
del WHOLE["div"]


def unary(word: str, x: Tensor) -> Case:
    return Case((x,), lambda p, v: p.unary(word, v[0]), UNARY[word])


def binary(word: str, a: Tensor, b: Tensor, stated: Any) -> Case:
    return Case((a, b), lambda p, v: p.binary(word, v[0], v[1]), stated)


PAIRS = {
    "alike": (X, tensor(2, 5, 4, 8, seed=9)),
    "order": (HEADS, tensor(2, 4, 5, 8)),
    "row": (X, tensor(8)),
    "column": (X, tensor(5, 1, 1)),
    "both": (tensor(5, 1, 8), tensor(2, 1, 4, 1)),
    "one": (X, tensor(1)),
    "turned": (X.transpose(2, 3), X.flip(0).transpose(2, 3)),
    "gaps": (X[..., ::2], tensor(2, 5, 4, 8)[..., 1::2]),
    "nothing": (X[:, :0], tensor(8)),
}

ELEMENTS = {
    **{f"unary-{w}": unary(w, POSITIVE if w in ("rsqrt", "sqrt", "log") else X) for w in UNARY},
    "unary-strided": unary("tanh", X.transpose(1, 3)),
    "unary-gaps": unary("tanh", X[..., ::3]),
    **{f"{w}-{n}": binary(w, *PAIRS[n], FLOATS[w]) for w in FLOATS for n in PAIRS},
    **{f"{w}-ids": binary(w, IDS, IDS.flip(0), COMPARES[w]) for w in COMPARES},
    **{f"{w}-floats": binary(w, *PAIRS["both"], COMPARES[w]) for w in COMPARES},
    **{f"{w}-whole": binary(w, IDS - 3, IDS.flip(0) + 1, WHOLE[w]) for w in WHOLE},
    "and": binary("and", IDS > 3, IDS.flip(0) > 2, torch.logical_and),
    "or": binary("or", IDS > 3, IDS[:1] > 2, torch.logical_or),
    "not": Case((IDS > 3,), lambda p, v: p.unary("not", v[0]), torch.logical_not),
    "add-float": Case((X,), lambda p, v: p.binary("add", v[0], 1.5), lambda x: x + 1.5),
    "size": Case(
        (IDS,), lambda p, v: p.binary("lt", v[0], p.size(v[0], 1)), lambda x: x < x.shape[1]
    ),
    **{
        f"power-{e}": Case((POSITIVE,), lambda p, v, e=e: p.power(v[0], e), lambda x, e=e: x**e)
        for e in (2.0, 3.0, 0.5, -0.5, -1.0, 1.7)
    },
    "where": step("where", (X > 0, X, tensor(8)), torch.where),
    "where-float": step("where", (X > 0, X), lambda c, x: torch.where(c, x, -1.0), -1.0),
    "where-ids": step("where", (IDS > 2, IDS, IDS * 2), torch.where),
    "cast-bool": step("cast", (IDS > 2,), lambda x: x.float(), "float32"),
    "cast-float": step("cast", (X,), lambda x: x.long(), "int64"),
    "cast-to-bool": step("cast", (IDS - 2,), lambda x: x.bool(), "bool"),
}

MOVES = {
    "softmax": step("softmax", (X,), lambda x: x.softmax(-1)),
    "softmax-strided": step("softmax", (X.transpose(1, 3),), lambda x: x.softmax(-1)),
    "softmax-hidden": step(
        "softmax", (torch.tensor([[0.0, -float("inf"), 3], [1, 2, 200]]),), lambda x: x.softmax(-1)
    ),
    "mean": step("mean", (HEADS,), lambda x: x.mean(-1, True), True),
    "sum": step("sum", (X.transpose(1, 3),), lambda x: x.sum(-1)),
    "matmul": step("matmul", (X, tensor(8, 21)), torch.matmul),
    "matmul-turned": step("matmul", (HEADS, HEADS.transpose(2, 3)), torch.matmul),
    "matmul-rows-turned": step("matmul", (HEADS.transpose(2, 3), HEADS), torch.matmul),
    "matmul-items": step("matmul", (tensor(3, 1, 70, 20), tensor(2, 20, 33)), torch.matmul),
    "matmul-of-nothing": step("matmul", (tensor(3, 0), tensor(0, 5)), torch.matmul),
    "cat": Case(
        (HEADS, HEADS[:, :, :3]),
        lambda p, v: p.cat((v[0], v[1], v[0]), 2),
        lambda x, y: torch.cat((x, y, x), 2),
    ),
    "cat-ids": Case((IDS, IDS), lambda p, v: p.cat(v, -1), lambda x, y: torch.cat((x, y), -1)),
    "take": Case(
        (X, IDS[0] % 4), lambda p, v: p.take(v[0], 2, v[1]), lambda x, i: x.index_select(2, i)
    ),
    "gather": Case(
        (HEADS, IDS[:, :3, None, None].expand(2, 3, 5, 2) % 4),
        lambda p, v: p.gather(v[0], 1, v[1]),
        lambda x, i: x.gather(1, i),
    ),
    "gathered-product": step(
        "gathered_product",
        (HEADS, tensor(1, 4, 37, 8), PLACES[:, None, :5]),
        lambda q, w, i: (q @ w.mT).gather(-1, i.expand(*q.shape[:2], *i.shape[2:])),
    ),
    "gathered-product-turned": step(
        "gathered_product",
        (tensor(4, 70, 64), tensor(4, 300, 64), PLACES),
        lambda q, w, i: (q @ w.mT).gather(-1, i.expand(q.shape[0], *i.shape[1:])).mT,
        transposed=True,
    ),
    "gathered-product-of-columns": step(
        "gathered_product",
        (tensor(3, 20, 70).mT, tensor(3, 20, 64).mT, IDS[:1, :1, None].expand(3, 70, 9)),
        lambda q, w, i: (q @ w.mT).gather(-1, i),
    ),
    "embedding": step("embedding", (tensor(7, 6), IDS.t()), lambda w, i: f.embedding(i, w)),
    "arange": Case(
        (IDS,), lambda p, v: p.arange(p.size(v[0], 1)), lambda x: torch.arange(x.shape[1])
    ),
    "causal-mask": Case(
        (IDS,),
        lambda p, v: p.binary(
            "le",
            p.unsqueeze(p.arange(5), 0),
            p.binary("add", p.unsqueeze(p.arange(5), 1), p.integer(v[1])),
        ),
        lambda x, n: torch.ones(5, 5, dtype=torch.bool).tril(n),
        ints=(1,),
    ),
}

CASES = {**VIEWS, **LAYERS, **ELEMENTS, **MOVES}
