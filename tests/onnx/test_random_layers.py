"""Layers that share inputs, in random graphs: what is fused, grouped and joined stays right."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

from octavo.onnx import convert_target, session
from tests.graphs import convert, run
from tests.onnx.random_layers import Layers, Step, feeds, layers, model, outputs_of

WAYS: dict[str, dict[str, Any]] = {
    "native": {"target": "native"},
    "native-accurate": {"target": "native", "recipe": "int8-accurate"},
    "portable": {},
    "portable-any-cpu": {"cpu": "any"},
    "per-tensor": {"recipe": "int8-per-tensor"},
    "qdq": {"quant_format": "qdq"},
}
# Our rounding and the yardstick's are two draws of about the same noise, of few numbers each.
TIMES, AND = 6.0, 0.01


def layer(reads: int, weight: int, bias: str = "") -> Step:
    return Step("MatMul", (reads,), weight, bias)


GROUPS_OF_GROUPS = Layers(
    (
        layer(0, 0),
        layer(1, 1),
        Step("Relu", (1,)),
        Step("Relu", (1,)),
        layer(1, 2),
        layer(2, 3),
        layer(2, 4),
        layer(3, 5),
    ),
    (),
    False,
)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("way", WAYS)
@given(graph=layers())
@example(graph=GROUPS_OF_GROUPS)
@settings(max_examples=25, deadline=None)
def test_random_layers(way: str, graph: Layers) -> None:
    proto = model(graph)
    rounded = model(graph, "row" if way.startswith(("native", "portable")) else "tensor")
    with tempfile.TemporaryDirectory() as folder:
        done = convert(proto, Path(folder), allow_nothing=True, **WAYS[way])
        runner = session(done.path)
        assert [o.name for o in runner.get_outputs()] == outputs_of(graph)
        for choice, rows in ((True, 3), (False, 5)):
            given_ = feeds(graph, choice, rows)
            found = runner.run(None, given_)
            for y, exact, near in zip(found, run(proto, given_), run(rounded, given_), strict=True):
                assert y.shape == exact.shape
                bound = TIMES * np.linalg.norm(near - exact) + AND * np.linalg.norm(exact)
                assert np.linalg.norm(y - exact) <= bound


@pytest.mark.parametrize("first,then", [("native", "portable"), ("portable", "native")])
@given(graph=layers())
@example(graph=GROUPS_OF_GROUPS)
@settings(max_examples=20, deadline=None)
def test_random_layers_for_the_other_target(first: str, then: str, graph: Layers) -> None:
    """The same integers, in another form: the outputs are those of the first file, nearly."""
    proto, rounded = model(graph), model(graph, "row")
    if not any(n.op_type == "MatMul" for n in proto.graph.node):
        return  # nothing to turn, or in branches alone
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = convert(proto, folder, target=first)
        convert_target(done.path, folder / "other.onnx", to=then, verify=False)
        runner = session(folder / "other.onnx")
        assert [o.name for o in runner.get_outputs()] == outputs_of(graph)
        given_ = feeds(graph, True, 4)
        found = runner.run(None, given_)
    for y, exact, near in zip(found, run(proto, given_), run(rounded, given_), strict=True):
        bound = TIMES * np.linalg.norm(near - exact) + AND * np.linalg.norm(exact)
        assert np.linalg.norm(y - exact) <= bound
