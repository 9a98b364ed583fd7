"""Models of other shapes: subgraphs, functions, float types, opsets, data files, numbers as they
come of other tools; what is quantized in part; names that collide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import octavo.onnx
from tests.golden.corpus import Case
from tests.golden.facts import Facts, attempt, file_facts, inspection_facts, report_facts, under
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
from tests.golden.onnx_conv import ASKED, chosen, conv, two
from tests.golden.onnx_linear import gemm, mlp
from tests.golden.onnx_recurrent import layer
from tests.golden.onnx_runs import FORMS, MAIN, brief, case, quantized, ran, spread
from tests.golden.onnx_tables import lookup


def branches(where: str) -> Model:
    """An If whose branches hold layers; their weights lie inside or outside."""
    g = Graph()
    g.input("x", ["m", 32], normal(4, 32))
    g.input("choice", [], np.array(True), BOOL)
    g.weight("w", 32, 40)
    g.weight("v", 40, 32)
    inner = [numpy_helper.from_array(normal(32, 40, seed=s), f"i{s}") for s in (1, 2)]
    names = (
        ["i1", "i2"]
        if where == "inside"
        else ["w", "w"]
        if where == "outside, shared"
        else ["w", "u"]
    )
    if where == "outside":
        g.weight("u", 32, 40)
    if where == "constants":
        value = numpy_helper.from_array(normal(32, 40, seed=1), "value")
        then = [helper.make_node("Constant", [], ["k1"], value=value), node("MatMul", "x k1", "t0")]
        other = [
            helper.make_node("Constant", [], ["k2"], value=value),
            node("MatMul", "x k2", "e0"),
            node("Relu", "e0", "e1"),
        ]
        bodies = (
            body(then, "then", (), [("t0", F32, None)]),
            body(other, "else", (), [("e1", F32, None)]),
        )
    else:
        held = where == "inside"
        then = [node("MatMul", f"x {names[0]}", "t0"), node("Relu", "t0", "t1")]
        other = [node("MatMul", f"x {names[1]}", "e0")]
        bodies = (
            body(then, "then", (), [("t1", F32, None)], inner[:1] if held else ()),
            body(other, "else", (), [("e0", F32, None)], inner[1:] if held else ()),
        )
    g("If", "choice", "h", then_branch=bodies[0], else_branch=bodies[1])
    g("MatMul", "h v", "y", name="last")
    g.output("y")
    return g.model()


def loop(op: str) -> Model:
    """A Loop or Scan with a layer inside."""
    g = Graph()
    if op == "Loop":
        g.input("x", [3, 48], normal(3, 48))
        g.const("count", np.array(3))
        g.const("go", np.array(True))
        g.weight("w", 48, 48)
        inside = body(
            [
                node("MatMul", "s w", "p"),
                node("Tanh", "p", "t"),
                node("Identity", "go_in", "go_out"),
                node("Identity", "t", "each"),
            ],
            "body",
            [("i", I64, []), ("go_in", BOOL, []), ("s", F32, [3, 48])],
            [("go_out", BOOL, []), ("t", F32, [3, 48]), ("each", F32, [3, 48])],
        )
        g("Loop", "count go x", "y all", body=inside)
        g.output("all")
    else:
        g.input("x", [5, 3, 48], normal(5, 3, 48))
        g.input("s0", [3, 48], normal(3, 48, seed=2))
        inner = numpy_helper.from_array(normal(48, 48, seed=1, scale=0.15), "w")
        inside = body(
            [
                node("Add", "s x1", "a"),
                node("MatMul", "a w", "p"),
                node("Tanh", "p", "t"),
                node("Identity", "t", "each"),
            ],
            "body",
            [("s", F32, [3, 48]), ("x1", F32, [3, 48])],
            [("t", F32, [3, 48]), ("each", F32, [3, 48])],
            [inner],
        )
        g("Scan", "s0 x", "last y", body=inside, num_scan_inputs=1)
        g.output("last")
    g.output("y")
    return g.model()


def function() -> Model:
    """A function of the model's own with a layer inside, called twice."""
    g = Graph()
    g.input("x", ["m", 40], normal(4, 40))
    g.weight("w0", 40, 40)
    g.weight("w1", 40, 40)
    g("Dense", "x w0", "h", domain="own")
    g("Dense", "h w1", "y", domain="own")
    g.output("y")
    proto, feeds = g.model()
    proto.opset_import.append(helper.make_opsetid("own", 1))
    steps = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    proto.functions.append(
        helper.make_function(
            "own", "Dense", ["a", "b"], ["d"], steps, [helper.make_opsetid("", 17)]
        )
    )
    return proto, feeds


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
            for each in proto.graph.node:
                each.input[:] = [new if v == old else v for v in each.input]
                each.output[:] = [new if v == old else v for v in each.output]
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
            for each in graph.node:
                each.input[:] = [inner if v == info.name else v for v in each.input]
            graph.node.insert(
                0, helper.make_node("Cast", [info.name], [inner], to=kind, name=f"{inner}_node")
            )
            feeds[info.name] = feeds[info.name].astype(np.float32)
    for info in graph.output:
        info.type.tensor_type.elem_type = F32
        inner = f"{info.name}_{kind}"
        for each in graph.node:
            each.input[:] = [inner if v == info.name else v for v in each.input]
            each.output[:] = [inner if v == info.name else v for v in each.output]
        graph.node.append(
            helper.make_node("Cast", [inner], [info.name], to=F32, name=f"{info.name}_cast_node")
        )
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
    onnx.save(
        proto, folder / "e.onnx", save_as_external_data=True, location="e.bin", size_threshold=100
    )
    for form in ("portable", "native", "per-tensor", "float16", "block"):
        for outside in (False, True):
            out = folder / f"{form}_{outside}.onnx"
            options = {**FORMS[form], "use_external_data_format": outside, "verify": False}
            done, failed = attempt(octavo.onnx.quantize_dynamic, "e.onnx", out, **options)
            if failed:
                facts[f"{form} {outside}: error"] = failed
                continue
            found = {
                **report_facts(done),
                **file_facts(out),
                **ran(out, feeds, exact=form == "native"),
            }
            facts |= under(f"{form} {outside}", brief(found))
            facts[f"{form} {outside}: beside"] = sorted(p.name for p in folder.glob(f"{out.name}*"))
        if form in MAIN:
            to = "native" if form == "portable" else "portable"
            octavo.onnx.convert_target(
                folder / f"{form}_True.onnx", folder / f"{form}_turned.onnx", to=to
            )
            turned = folder / f"{form}_turned.onnx"
            found = {**file_facts(turned), **ran(turned, feeds, exact=to == "native")}
            facts |= under(f"{form} turned", brief(found))
    return facts


def in_part(folder: Path) -> Facts:
    """A file that is quantized in part, and the rest of it."""
    facts: Facts = {}
    model = encoder(1)
    for form in ("portable", "native", "per-tensor"):
        facts |= under(
            "first",
            quantized(folder, model, form, full=False, verify=False, nodes_to_quantize=["*up*"]),
        )
        path = folder / f"{form.replace(' ', '_')}.onnx"
        half = onnx.load(path)
        facts |= under(
            "refused", quantized(folder, (half, model[1]), form, full=False, verify=False)
        )
        facts |= under(
            "rest",
            quantized(
                folder, (half, model[1]), form, full=False, verify=False, allow_quantized=True
            ),
        )
    return facts


def by_ort(folder: Path) -> Facts:
    """Files of ONNX Runtime's quantizer, for target native."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    facts: Facts = {}
    makers: dict[str, Callable[[], Model]] = {
        "mlp": lambda: mlp(2, 48),
        "gemm": lambda: gemm(b=1),
        "lookup": lambda: lookup(behind="linear"),
        "lstm": lambda: layer("LSTM"),
        "conv": conv,
        "attention": lambda: attention(bias="last", mask="bert"),
    }
    for name, make in makers.items():
        proto, feeds = make()
        onnx.save(proto, folder / "f.onnx")
        for kind, channels in ((QuantType.QInt8, True), (QuantType.QUInt8, False)):
            label = f"{name} {kind.name} {channels}"
            quantize_dynamic(
                folder / "f.onnx", folder / "o.onnx", weight_type=kind, per_channel=channels
            )
            paths = folder / "o.onnx", folder / "n.onnx"
            done, failed = attempt(octavo.onnx.convert_target, *paths, to="native", verify=False)
            if failed:
                facts[f"{label}: error"] = failed
                continue
            found = {
                "notes": list(done.notes),
                **file_facts(folder / "n.onnx"),
                **ran(folder / "n.onnx", feeds, exact=True),
            }
            facts |= under(label, brief(found))
    return facts


INSPECTED: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp(2),
    "encoder": encoder,
    "two": two,
    "lookup": lambda: lookup(behind="tied"),
    "gru": lambda: layer("GRU"),
    "branches": lambda: branches("inside"),
    "gemm": lambda: gemm(b=1),
}


def inspected(folder: Path) -> Facts:
    """`inspect` with several recipes."""
    facts: Facts = {}
    for name, make in INSPECTED.items():
        proto, _ = make()
        for recipe in ("int8", "int8-per-tensor", "int8-block"):
            for target in ("portable", "native"):
                found = octavo.onnx.inspect(proto, recipe, target=target)
                facts |= under(f"{name} {recipe} {target}", inspection_facts(found))
    return facts


TYPES = {"float16": F16, "bfloat16": BF16, "double": F64}
TYPED: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp(2, 48),
    "gemm": lambda: gemm(b=1),
    "lookup": lookup,
    "encoder": lambda: encoder(activation="Relu"),
    "conv": conv,
    "lstm": lambda: layer("LSTM", outs=("Y",)),
    "gru": lambda: layer("GRU", outs=("Y",)),
}
OPSETS: dict[int, tuple[str, ...]] = {
    7: ("mlp",),
    8: ("mlp",),
    9: ("mlp", "gemm"),
    10: ("mlp", "lookup"),
    11: ("mlp", "gemm", "conv"),
    12: ("mlp", "lookup"),
    13: ("mlp", "lstm"),
    14: ("mlp", "gru"),
    15: ("mlp",),
    16: ("mlp",),
    18: ("mlp", "conv"),
    19: ("mlp", "gemm"),
    20: ("mlp", "lookup"),
    21: ("mlp", "lstm", "conv"),
    22: ("mlp", "gru"),
    23: ("mlp", "gemm", "lookup"),
    24: ("mlp",),
    25: ("mlp",),
    26: ("mlp",),
}
_OF: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp(2, 48),
    "gemm": lambda: gemm(b=1),
    "lookup": lookup,
    "conv": conv,
    "lstm": lambda: layer("LSTM"),
    "gru": lambda: layer("GRU"),
}


def opsets(version: int, kinds: Sequence[str]) -> Case:
    def run(folder: Path) -> Facts:
        facts: Facts = {}
        for kind in kinds:
            more = ASKED if kind == "conv" else {}
            for form in ("portable", "native", "qdq", "per-tensor", "block", "float16"):
                made = quantized(
                    folder, at_opset(_OF[kind], version), form, full=False, verify=False, **more
                )
                facts |= under(kind, made)
        return facts

    return run


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
    **{
        name: case(make, (*spread(i, 4), "native"), full=())
        for i, (name, make) in enumerate(SHAPES.items())
    },
    **{
        f"{kind} {name}": (chosen if name == "conv" else case)(
            (lambda make=make, t=t: typed(make, t)), spread(i + j, 3), full=()
        )
        for i, (name, make) in enumerate(TYPED.items())
        for j, (kind, t) in enumerate(TYPES.items())
    },
    **{f"opset {version}": opsets(version, kinds) for version, kinds in OPSETS.items()},
    "external data": external,
    "quantized in part": in_part,
    "files of onnxruntime": by_ort,
    "inspected": inspected,
}
