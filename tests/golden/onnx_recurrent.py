"""LSTM, GRU and RNN: directions, layouts, lengths, states, activations, weights behind nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.golden.corpus import Case
from tests.golden.graphs import I32, Graph, Model, normal
from tests.golden.onnx_runs import FORMS, TURNS, case, spread

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str,
    *,
    inputs: int = 12,
    hidden: int = 20,
    direction: str = "forward",
    layout: int = 0,
    bias: bool = True,
    lengths: Sequence[int] | None = None,
    states: Sequence[str] = (),
    outs: Sequence[str] = ("Y", "Y_h", "Y_c"),
    weights: str = "stored",
    opset: int = 17,
    peephole: bool = False,
    then: str = "",
    **attributes: Any,
) -> Model:
    """One node, batch and time open."""
    g = Graph(opset)
    ways, gates, steps, batch = (2 if direction == "bidirectional" else 1), GATES[op], 5, 3
    first, second = ("B", "T") if layout else ("T", "B")
    sizes = {"T": steps, "B": batch}
    g.input("X", [first, second, inputs], normal(sizes[first], sizes[second], inputs, seed=9))
    w, r = (
        normal(ways, gates * hidden, inputs, seed=1),
        normal(ways, gates * hidden, hidden, seed=2),
    )
    w, r = w / np.float32(hidden**0.5), r / np.float32(hidden**0.5)
    if weights == "concat":
        for name, a in (("W", w), ("R", r)):
            half = a.shape[1] // 2
            g.const(f"{name}a", a[:, :half])
            g.const(f"{name}b", a[:, half:])
            g("Concat", f"{name}a {name}b", name, axis=1)
    elif weights == "unsqueeze":
        for name, a in (("W", w), ("R", r)):
            g.const(f"{name}a", a[0])
            g.axes("Unsqueeze", f"{name}a", name, [0])
    elif weights == "computed":
        g.input("W", list(w.shape), w)
        g.const("R", r)
    else:
        g.const("W", w)
        g.const("R", r)
    ins = ["X", "W", "R", "_", "_", "_", "_"]
    if bias:
        ins[3] = g.const("B", normal(ways, 2 * gates * hidden, seed=3, scale=0.2))
    if lengths is not None:
        ins[4] = g.input("lens", ["B"], np.array(lengths, np.int32), I32)
    state = ["B", ways, hidden] if layout else [ways, "B", hidden]
    shape = (batch, ways, hidden) if layout else (ways, batch, hidden)
    for i, name in ((5, "h"), (6, "c")):
        if name in states and (name == "h" or op == "LSTM"):
            ins[i] = g.input(f"initial_{name}", state, normal(*shape, seed=i, scale=0.5))
    if peephole:
        ins.append(g.const("P", normal(ways, 3 * hidden, seed=8, scale=0.2)))
    while ins[-1] == "_":
        ins.pop()
    names = [o for o in outs if o != "Y_c" or op == "LSTM"]
    while names[-1] == "_":
        names.pop()
    said = {"hidden_size": hidden, "direction": direction, **({"layout": 1} if layout else {})}
    g(op, ins, " ".join(names), name="layer", **said, **attributes)
    for name in names:
        if name != "_":
            g.output(name)
    if then == "linear":
        g.axes("Squeeze", "Y", "flat", [1])
        g.weight("v", hidden, 16)
        g("MatMul", "flat v", "z", name="head")
        g.output("z")
    elif then == "again":
        g.axes("Squeeze", "Y", "flat", [1])
        g.const("W2", normal(1, gates * hidden, hidden, seed=21, scale=0.2))
        g.const("R2", normal(1, gates * hidden, hidden, seed=22, scale=0.2))
        g(op, "flat W2 R2", "Y2", name="layer2", hidden_size=hidden)
        g.output("Y2")
    return g.model()


TWO = {"direction": "bidirectional"}
ODD = ["HardSigmoid", "Relu", "Tanh"]
VARIANTS: dict[str, dict[str, Any]] = {
    "reverse": {"direction": "reverse"},
    "both ways": TWO,
    "batch first": {"layout": 1, "states": "hc"},
    "batch first both ways": {"layout": 1, **TWO},
    "no bias": {"bias": False},
    "lengths": {"lengths": (5, 2, 0)},
    "lengths both ways": {"lengths": (1, 5, 3), **TWO, "states": "hc"},
    "states": {"states": "hc"},
    "last only": {"outs": ("_", "Y_h")},
    "all steps only": {"outs": ("Y",)},
    "clip": {"clip": 0.4},
    "weights by concat": {"weights": "concat", **TWO},
    "weights by unsqueeze": {"weights": "unsqueeze"},
    "weights computed": {"weights": "computed"},
    "then linear": {"outs": ("Y",), "then": "linear"},
    "two layers": {"outs": ("Y",), "then": "again"},
    "small": {"inputs": 3, "hidden": 18},
    "wide": {"inputs": 40, "hidden": 64},
    "opset 11": {"opset": 11},
    "opset 22": {"opset": 22},
}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "LSTM": {
        "odd activations": {"activations": ODD},
        "peephole": {"peephole": True},
        "coupled": {"input_forget": 1},
        "only h given": {"states": "h"},
        "only the cell": {"outs": ("_", "_", "Y_c")},
        "stated activations": {"activations": ["Sigmoid", "Tanh", "Tanh"]},
    },
    "GRU": {
        "odd activations": {"activations": ODD[:2]},
        "reset after": {"linear_before_reset": 1},
        "reset after both ways": {"linear_before_reset": 1, **TWO, "lengths": (5, 2, 4)},
        "stated activations": {"activations": ["Sigmoid", "Tanh"]},
    },
    "RNN": {
        "odd activations": {"activations": ODD[:1]},
        "relu": {"activations": ["Relu"]},
        "relu both ways": {"activations": ["Relu", "Relu"], **TWO},
        "mixed": {"activations": ["Relu", "Tanh"], **TWO},
        "affine": {
            "activations": ["Affine"],
            "activation_alpha": [0.5],
            "activation_beta": [0.1],
        },
    },
}
NATIVE = tuple(name for name in FORMS if name.endswith(" native"))
FLOATING = ("portable", "float16", "qdq", "block")
CASES: dict[str, Case] = {}
for _op, _own in OWN.items():
    CASES[_op.lower()] = case(partial(layer, _op), tuple(FORMS))
CASES |= spread(
    {f"lstm {n}": partial(layer, "LSTM", **v) for n, v in {**VARIANTS, **OWN["LSTM"]}.items()}
)
for _first, _op in enumerate(("GRU", "RNN")):  # each with every second of what all have
    for _i, (_name, _options) in enumerate({**VARIANTS, **OWN[_op]}.items()):
        if _name in OWN[_op] or _i % 2 == _first:
            _some = ("native", NATIVE[_i % len(NATIVE)], FLOATING[_i % len(FLOATING)])
            _case = case(partial(layer, _op, **_options), _some, TURNS[1:])
            CASES[f"{_op.lower()} {_name}"] = _case
