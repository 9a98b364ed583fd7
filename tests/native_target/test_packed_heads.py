"""One layer for queries, keys and values, parted after its heads, becomes a layer for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.packed_heads import reference
from octavo.onnx import session
from tests.graphs import (
    FLOAT,
    INT8,
    Array,
    assert_close,
    build,
    convert,
    run,
    values,
    weight,
)
from tests.native_target.spelling import nodes_of

K, PARTS, HEADS, D = 32, 3, 4, 8
STORED = {
    "w": weight(K, PARTS * HEADS * D, spread=False),
    "b": values(PARTS * HEADS * D, seed=4),
    "shape": np.array([0, 0, PARTS, HEADS, D]),
    "rest": np.array([0, 0, PARTS, -1, D]),
    "other": np.array([0, 0, HEADS, PARTS, D]),
    "wider": np.array([2, 3, PARTS, HEADS, -1]),
    "tail": np.array([PARTS, HEADS, D]),
    "ones": np.ones(PARTS, np.int64),
    "two": np.array([2]),
    "minus": np.array([-3]),
    **{f"i{n}": np.array([n]) for n in range(4)},
    **{f"s{n}": np.array(n) for n in range(3)},
    "last": np.array(-1),
}
LAYER = "m=MatMul(x,w); y=Add(m,b); "
SPLIT = "a|d|e=Split(h,ones,axis:2); q=Squeeze(a,two); k=Squeeze(d,two); v=Squeeze(e,two)"
TURNED = "t=Transpose(h,perm:2/0/3/1/4); "
FORMS = {
    "split": f"h=Reshape(y,shape); {SPLIT}",
    "split from the end": f"h=Reshape(y,rest); {SPLIT}".replace("axis:2", "axis:-3").replace(
        "two)", "minus)"
    ),
    "computed sizes": f"z=Shape(x); g=Slice(z,i0,i2); u=Concat(g,tail,axis:0); h=Reshape(y,u); "
    f"{SPLIT}",
    "slices": "h=Reshape(y,shape); a=Slice(h,i0,i1,two); d=Slice(h,i1,i2,two,i1); "
    "e=Slice(h,i2,i3,minus); q=Squeeze(a,two); k=Squeeze(d,two); v=Squeeze(e,two)",
    "gathers": "h=Reshape(y,shape); q=Gather(h,s0,axis:2); k=Gather(h,s1,axis:2); "
    "v=Gather(h,last,axis:2)",
    "parts first": f"h=Reshape(y,shape); {TURNED} q=Gather(t,s0,axis:0); k=Gather(t,s1,axis:0); "
    "v=Gather(t,s2,axis:0)",
}
OTHERS = {
    "heads first": f"h=Reshape(y,other); {SPLIT}".replace("axis:2", "axis:3").replace("two", "i3"),
    "one part twice": "h=Reshape(y,shape); q=Gather(h,s0,axis:2); k=Gather(h,s1,axis:2); "
    "v=Gather(h,s1,axis:2)",
    "two rows as one": f"h=Reshape(y,wider); {SPLIT}",
}


def model(text: str) -> onnx.ModelProto:
    nodes = nodes_of(LAYER + text)
    read = {name for each in nodes for name in each.input}
    stored = {name: a for name, a in STORED.items() if name in read}
    return build(nodes, {"x": (FLOAT, ["batch", "length", K])}, ["q", "k", "v"], stored)


def feeds() -> dict[str, Array]:
    return {"x": values(2, 6, K, seed=9)}


@pytest.mark.parametrize("form", FORMS)
def test_it_becomes_a_layer_for_each(form: str, tmp_path: Path) -> None:
    given = model(FORMS[form])
    done = convert(given, tmp_path, target="native")
    assert "GroupedLinear" in done.ops and not {"Split", "Squeeze"} & set(done.ops)
    exact, found = run(given, feeds()), session(done.path).run(None, feeds())
    y = feeds()["x"] @ STORED["w"] + STORED["b"]
    stated = reference(y, PARTS, HEADS)
    for theirs, ours, part in zip(exact, found, stated, strict=True):
        same = part.swapaxes(1, 2) if form == "parts first" else part
        np.testing.assert_allclose(theirs, same, rtol=1e-4, atol=1e-4)
        assert ours.shape == theirs.shape
        assert_close(ours, theirs, INT8)


@pytest.mark.parametrize("form", OTHERS)
def test_others_stay_one_layer(form: str, tmp_path: Path) -> None:
    given = model(OTHERS[form])
    done = convert(given, tmp_path, target="native")
    assert "GroupedLinear" not in done.ops and done.ops.count("Linear") == 1
    for theirs, ours in zip(
        run(given, feeds()), session(done.path).run(None, feeds()), strict=True
    ):
        assert_close(ours, theirs, INT8)
