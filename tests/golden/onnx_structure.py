"""Models of other shapes: subgraphs, functions, float types, opsets, data files, numbers as they
come of other tools; what is quantized in part; names that collide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import octavo.onnx
from tests.golden.corpus import Case
from tests.golden.facts import Facts, attempt, inspection_facts, report_facts, under
from tests.golden.graphs import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I64,
    Graph,
    Model,
    body,
    in_type,
    node,
    normal,
)
from tests.golden.onnx_attention import attention, encoder
from tests.golden.onnx_conv import ASKED, conv, two
from tests.golden.onnx_linear import gemm, mlp
from tests.golden.onnx_recurrent import layer
from tests.golden.onnx_runs import FORMS, MAIN, TURNS, case, other, quantized, ran, spread
from tests.golden.onnx_tables import lookup


def branches(where: str) -> Model:
    """An If whose branches hold layers; their weights lie inside or outside."""
    g = Graph()
    g.input("x", ["m", 32], normal(4, 32))
    g.input("choice", [], np.array(True), BOOL)
    g.constants_of({"w": (32, 40), "v": (40, 32)})
    if where == "outside":
        g.weight("u", 32, 40)
    inner = [numpy_helper.from_array(normal(32, 40, seed=s), f"i{s}") for s in (1, 2)]
    held = [[inner[0]], [inner[1]]] if where == "inside" else [[], []]
    names = {"inside": "i1 i2", "outside": "w u", "outside, shared": "w w", "constants": "k1 k2"}
    first, second = names[where].split()
    then = [node("MatMul", f"x {first}", "t0"), node("Relu", "t0", "t1")]
    other = [node("MatMul", f"x {second}", "e0")]
    if where == "constants":
        value = numpy_helper.from_array(normal(32, 40, seed=1), "value")
        constants = [helper.make_node("Constant", [], [k], value=value) for k in ("k1", "k2")]
        then = [constants[0], then[0]]
        other = [constants[1], *other, node("Relu", "e0", "e1")]
    bodies = [
        body(nodes, name, (), [(nodes[-1].output[0], F32, None)], consts)
        for nodes, name, consts in ((then, "then", held[0]), (other, "else", held[1]))
    ]
    g("If", "choice", "h", then_branch=bodies[0], else_branch=bodies[1])
    g("MatMul", "h v", "y", name="last")
    g.output("y")
    return g.model()


def loop(op: str) -> Model:
    """A Loop or Scan with a layer inside."""
    g = Graph()
    product = [node("Tanh", "p", "t"), node("Identity", "t", "each")]
    given = [("t", F32, [3, 48]), ("each", F32, [3, 48])]
    if op == "Loop":
        g.input("x", [3, 48], normal(3, 48))
        g.constants_of({"count": np.array(3), "go": np.array(True), "w": (48, 48)})
        inside = body(
            [node("MatMul", "s w", "p"), node("Identity", "go_in", "go_out"), *product],
            "body",
            [("i", I64, []), ("go_in", BOOL, []), ("s", F32, [3, 48])],
            [("go_out", BOOL, []), *given],
        )
        g("Loop", "count go x", "y all", body=inside)
        g.output("all")
    else:
        g.input("x", [5, 3, 48], normal(5, 3, 48))
        g.input("s0", [3, 48], normal(3, 48, seed=2))
        inside = body(
            [node("Add", "s x1", "a"), node("MatMul", "a w", "p"), *product],
            "body",
            [("s", F32, [3, 48]), ("x1", F32, [3, 48])],
            given,
            [numpy_helper.from_array(normal(48, 48, seed=1, scale=0.15), "w")],
        )
        g("Scan", "s0 x", "last y", body=inside, num_scan_inputs=1)
        g.output("last")
    g.output("y")
    return g.model()


def function() -> Model:
    """A function of the model's own with a layer inside, called twice."""
    g = Graph()
    g.input("x", ["m", 40], normal(4, 40))
    g.constants_of({"w0": (40, 40), "w1": (40, 40)})
    g("Dense", "x w0", "h", domain="own")
    g("Dense", "h w1", "y", domain="own")
    g.output("y")
    proto, feeds = g.model()
    proto.opset_import.append(helper.make_opsetid("own", 1))
    steps = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_function("own", "Dense", ["a", "b"], ["d"], steps, imports)
    proto.functions.append(made)
    return proto, feeds


def rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """A value, wherever nodes read or write it."""
    for each in graph.node:
        each.input[:] = [new if v == old else v for v in each.input]
        each.output[:] = [new if v == old else v for v in each.output]


def names(kind: str) -> Model:
    """Nodes without names, with the same names, and values called as ours would be."""
    proto, feeds = mlp(3, 32)
    for i, each in enumerate(proto.graph.node):
        if kind == "none":
            each.name = ""
        elif kind == "same":
            each.name = "node"
        elif kind == "ours" and i == 1:
            each.name = "layer1"
    if kind == "ours":
        for old, new in (("r0", "x_quantized"), ("h1", "w0_scale"), ("w2", "h0_zero_point")):
            rename(proto.graph, old, new)
            for tensor in proto.graph.initializer:
                tensor.name = new if tensor.name == old else tensor.name
    return proto, feeds


def inputs_too() -> Model:
    """Weights that are inputs as well, as old files have them."""
    proto, feeds = mlp(2, 40)
    for tensor in proto.graph.initializer:
        proto.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    return proto, feeds


def typed(make: Callable[[], Model], kind: int) -> Model:
    """In another float type, with Casts at the ends."""
    proto, feeds = in_type(make(), kind)
    graph = proto.graph
    for info in graph.input:
        if info.type.tensor_type.elem_type == kind:
            info.type.tensor_type.elem_type = F32
            inner = f"{info.name}_cast"
            rename(graph, info.name, inner)
            cast = helper.make_node("Cast", [info.name], [inner], to=kind, name=f"{inner}_node")
            graph.node.insert(0, cast)
            feeds[info.name] = feeds[info.name].astype(np.float32)
    for info in graph.output:
        info.type.tensor_type.elem_type = F32
        inner = f"{info.name}_{kind}"
        rename(graph, info.name, inner)
        name = f"{info.name}_cast_node"
        graph.node.append(helper.make_node("Cast", [inner], [info.name], to=F32, name=name))
    return proto, feeds


def at_opset(make: Callable[[], Model], version: int) -> Model:
    proto, feeds = make()
    proto.opset_import[0].version = version
    proto.ir_version = 8 if version < 21 else 10
    return proto, feeds


def external(folder: Path) -> Facts:
    """Weights in a data file, in the source and in the result; paths in place of protos."""
    facts: Facts = {}
    proto, feeds = encoder(1)
    data = {"save_as_external_data": True, "location": "e.bin", "size_threshold": 100}
    onnx.save(proto, folder / "e.onnx", **data)
    every = ("portable", "native", "per-tensor", "float16", "block")
    for form, outside in (*((form, True) for form in every), ("portable", False)):
        out = folder / f"{form}_{outside}.onnx"
        options = {**FORMS[form], "use_external_data_format": outside, "verify": False}
        done = octavo.onnx.quantize_dynamic("e.onnx", out, **options)
        found = {**report_facts(done), **ran(out, feeds, exact=form == "native")}
        found["beside"] = sorted(p.name for p in folder.glob(f"{out.name}*"))
        facts |= under(f"{form} {outside}", found)
    for form, to in TURNS:
        turned = folder / f"{form}_turned.onnx"
        octavo.onnx.convert_target(folder / f"{form}_True.onnx", turned, to=to)
        facts |= under(f"{form} turned", ran(turned, feeds, exact=to == "native"))
    return facts


def in_part(folder: Path) -> Facts:
    """A file that is quantized in part, and the rest of it."""
    facts: Facts = {}
    model = encoder(1)
    for form in ("portable", "native", "per-tensor"):
        facts |= under("first", quantized(folder, model, form, nodes_to_quantize=["*up*"]))
        half = onnx.load(folder / f"{form}.onnx"), model[1]
        facts |= under("refused", quantized(folder, half, form))
        facts |= under("rest", quantized(folder, half, form, allow_quantized=True))
    return facts


def by_ort(folder: Path) -> Facts:
    """Files of ONNX Runtime's quantizer, for target native."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    facts: Facts = {}
    masked: Make = partial(attention, bias="last", mask="bert")
    for name, make in {
        **pick("mlp", "gemm", "linear", "lstm", "conv"),
        "attention": masked,
    }.items():
        proto, feeds = make()
        path, theirs, ours = (folder / f"{n}.onnx" for n in "fon")
        onnx.save(proto, path)
        for kind, channels in ((QuantType.QInt8, True), (QuantType.QUInt8, False)):
            label = f"{name} {kind.name} {channels}"
            quantize_dynamic(path, theirs, weight_type=kind, per_channel=channels)
            done, failed = attempt(
                octavo.onnx.convert_target, theirs, ours, to="native", verify=False
            )
            if failed:
                facts[f"{label}: error"] = failed
            else:
                found = {"notes": list(done.notes), **ran(ours, feeds, exact=True)}
                facts |= under(label, found)
    return facts


Make = Callable[[], Model]
MAKERS: dict[str, Make] = {
    "mlp": partial(mlp, 2, 48),
    "gemm": partial(gemm, b=1),
    "lookup": lookup,
    "linear": partial(lookup, behind="linear"),
    "tied": partial(lookup, behind="tied"),
    "encoder": encoder,
    "conv": conv,
    "two": two,
    "lstm": partial(layer, "LSTM"),
    "gru": partial(layer, "GRU"),
    "branches": partial(branches, "inside"),
}
OPSETS: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((7, 16, 26), ()),
    9: ("gemm",),
    10: ("lookup",),
    11: ("gemm", "conv"),
    12: ("lookup",),
    13: ("lstm",),
    14: ("gru",),
    18: ("conv",),
    19: ("gemm",),
    20: ("lookup",),
    21: ("lstm", "conv"),
    22: ("gru",),
    23: ("gemm", "lookup"),
}


def pick(*names: str) -> dict[str, Make]:
    return {name: MAKERS[name] for name in names}


def inspected(folder: Path) -> Facts:
    """`inspect` with several recipes."""
    facts: Facts = {}
    for name, make in pick("mlp", "encoder", "two", "tied", "gru", "branches", "gemm").items():
        proto, _ = make()
        for recipe, target in (("int8", "portable"), ("int8-block", "native")):
            found = octavo.onnx.inspect(proto, recipe, target=target)
            facts |= under(f"{name} {recipe} {target}", inspection_facts(found))
    return facts


def opsets(version: int, kinds: Sequence[str]) -> Case:
    def run(folder: Path) -> Facts:
        facts: Facts = {}
        for kind in ("mlp", *kinds):
            model = at_opset(MAKERS[kind], version)
            more = ASKED if kind == "conv" else {}
            for form in (*MAIN, "qdq" if version % 2 else "block"):
                facts |= under(kind, quantized(folder, model, form, **more))
        return facts

    return run


TYPES = {"float16": F16, "bfloat16": BF16, "double": F64}
TYPED: dict[str, Make] = {
    **pick("mlp", "gemm", "lookup"),
    "encoder": partial(encoder, activation="Relu"),
    "conv": conv,
    "lstm": partial(layer, "LSTM", outs=("Y",)),
    "gru": partial(layer, "GRU", outs=("Y",)),
}
SHAPES: dict[str, Callable[[], Model]] = {
    **{
        f"if, weights {w}": (lambda w=w: branches(w))
        for w in ("inside", "outside", "outside, shared", "constants")
    },
    "loop": lambda: loop("Loop"),
    "scan": lambda: loop("Scan"),
    "function": function,
    **{f"names {k}": (lambda k=k: names(k)) for k in ("none", "same", "ours")},
    "weights are inputs": inputs_too,
}
CASES: dict[str, Case] = {
    **spread(SHAPES, 4),
    **{
        f"{kind} {name}": case(
            partial(typed, make, t),
            (*MAIN, other(3 * (i + j))),
            (TURNS[(i + j) % 2],),
            **(ASKED if name == "conv" else {}),
        )
        for i, (name, make) in enumerate(TYPED.items())
        for j, (kind, t) in enumerate(TYPES.items())
        if not j or (i + j) % 2
    },
    **{f"opset {version}": opsets(version, OPSETS[version]) for version in sorted(OPSETS)},
    "external data": external,
    "quantized in part": in_part,
    "files of onnxruntime": by_ort,
    "inspected": inspected,
}
