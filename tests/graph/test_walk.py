"""The graphs of a model, in the order that ONNX IR gives them."""

import onnx
import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of

NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
nested (bool c, float[N] x) => (float[N] y)
{
    a = If (c) <
        then_branch = first () => (float[N] t) {
            t = If (c) <
                then_branch = second () => (float[N] u) { u = Neg (x) },
                else_branch = third () => (float[N] v) { v = Abs (x) }
            >
        },
        else_branch = fourth () => (float[N] w) { w = Identity (x) }
    >
    y = If (c) <
        then_branch = fifth () => (float[N] p) { p = Relu (a) },
        else_branch = sixth () => (float[N] q) { q = Exp (a) }
    >
}
"""


def test_outer_graphs_come_first() -> None:
    model = ir.from_proto(onnx.parser.parse_model(NESTED))
    found = graphs_of(model)
    assert [g.name for g in found] == "nested first second third fourth fifth sixth".split()
    assert found == list(model.graphs())


def test_lists_of_graphs() -> None:
    """No standard operator has them; ONNX knows the type."""
    bodies = [ir.Graph([], [], nodes=[], name=name) for name in ("one", "two")]
    node = ir.Node("custom", "Switch", [], [ir.Attr("bodies", ir.AttributeType.GRAPHS, bodies)])
    model = ir.Model(ir.Graph([], [], nodes=[node], name="main"), ir_version=8)
    assert [g.name for g in graphs_of(model)] == ["main", "one", "two"]
    assert graphs_of(model) == list(model.graphs())
