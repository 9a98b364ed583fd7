"""ai.octavo LSTM, GRU and RNN: the core's bits in ONNX's layouts, and ONNX Runtime's meaning."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.statement import assert_same_bits
from tests.graphs import INT8, error, run
from tests.native_target.recurrent_layers import KINDS, OUTPUTS, Layer, native, opened, outputs

every_kind = pytest.mark.parametrize("kind", KINDS)
DIRECTIONS = ("forward", "reverse", "bidirectional")


def states(kind: str) -> tuple[str, ...]:
    return ("initial_h", "initial_c") if kind == "lstm" else ("initial_h",)


def assert_core(layer: Layer, found: dict[str, np.ndarray]) -> None:
    expected = layer.by_core()
    assert list(found) == list(expected)
    for name, array in found.items():
        assert_same_bits(array, expected[name])


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    kind = draw(st.sampled_from(KINDS))
    steps, batch = draw(st.integers(0, 7)), draw(st.integers(1, 6))
    names = OUTPUTS[: 3 if kind == "lstm" else 2]
    wanted = draw(st.sets(st.sampled_from(names), min_size=1))
    chosen = draw(st.sets(st.sampled_from(states(kind))))
    return Layer(
        kind,
        inputs=draw(st.integers(1, 70)),
        hidden=draw(st.integers(1, 40)),
        direction=draw(st.sampled_from(DIRECTIONS)),
        layout=draw(st.integers(0, 1)),
        clip=draw(st.sampled_from([0.0, 0.3])),
        bias=draw(st.booleans()),
        steps=steps,
        batch=batch,
        lengths=draw(st.none() | st.tuples(*[st.integers(0, steps)] * batch)),
        states=tuple(s for s in states(kind) if s in chosen),
        outs=tuple(n if n in wanted else "" for n in names),
        seed=draw(st.integers(0, 99)),
    )


@settings(max_examples=40, deadline=None)
@given(layer=layers())
def test_any_layer_has_the_bits_of_the_core(
    tmp_path_factory: pytest.TempPathFactory, layer: Layer
) -> None:
    """No steps leave states of 0, and outputs that nobody reads are not there."""
    done = native(layer, tmp_path_factory.mktemp("any"))
    stored = list(done.proto.graph.node[0].output)
    assert tuple(filter(None, stored)) == layer.names and stored[-1]
    found = opened(done.path).run(None, layer.feeds)
    assert_core(layer, dict(zip(layer.names, found, strict=True)))


@pytest.mark.parametrize("layout", [0, 1])
def test_shapes_are_inferred(tmp_path: Path, layout: int) -> None:
    layer = Layer("lstm", direction="bidirectional", layout=layout)
    found = [o.shape for o in opened(native(layer, tmp_path).path).get_outputs()]
    state, y = (["B", 2, 20], ["B", "T", 2, 20]) if layout else ([2, "B", 20], ["T", 2, "B", 20])
    assert found == [y, state, state]


@every_kind
def test_no_items(tmp_path: Path, kind: str) -> None:
    for name, array in outputs(Layer(kind, batch=0), tmp_path).items():
        assert array.shape[1 if name != "Y" else 2] == 0


@every_kind
def test_items_without_steps_are_as_in_onnx_runtime(tmp_path: Path, kind: str) -> None:
    outs: dict[str, Any] = {"states": ("initial_h",), "outs": ("Y", "Y_h")}
    layer = Layer(kind, direction="bidirectional", lengths=(3, 0, 5), **outs)
    theirs = dict(zip(layer.names, run(layer.model(), layer.feeds), strict=True))
    for name, array in outputs(layer, tmp_path).items():
        assert not theirs[name][..., 1, :].any()
        assert not array[..., 1, :].any()
        assert error(array, theirs[name]) < INT8


@pytest.mark.parametrize("kind", ["lstm", "gru", "gru_reset"])
def test_clip_is_that_of_onnx_runtime(tmp_path: Path, kind: str) -> None:
    """The gates are bounded, an LSTM's cell is not."""
    layer = Layer(kind, clip=0.2, states=states(kind), outs=("Y", "Y_h"))
    layer.feeds[states(kind)[-1]] *= 8
    theirs = run(layer.model(), layer.feeds)[0]
    free = run(replace(layer, clip=0.0, weights={}, feeds={}).model(), layer.feeds)[0]
    assert error(free, theirs) > 4 * INT8
    assert error(outputs(layer, tmp_path)["Y"], theirs) < INT8


THREADED: list[tuple[str, dict[str, Any]]] = [
    ("lstm", {"direction": "bidirectional", "batch": 4}),
    ("gru_reset", {"batch": 16}),
    ("tanh", {"batch": 18, "lengths": tuple(range(9)) * 2}),
]


@pytest.mark.parametrize(("kind", "more"), THREADED, ids=str)
def test_threads_give_the_same_bits(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    layer = Layer(kind, 96, 256, steps=8, **more)
    path = native(layer, tmp_path).path
    for threads in (1, 2):
        model = opened(path, threads)
        for _ in range(2):
            found = model.run(list(layer.names), layer.feeds)
            assert_core(layer, dict(zip(layer.names, found, strict=True)))


def test_one_session_in_many_threads(tmp_path: Path) -> None:
    more: dict[str, Any] = {"direction": "bidirectional", "lengths": (20, 3, 0, 9)}
    layer = Layer("gru", 64, 64, steps=20, batch=4, **more)
    expected = layer.by_core().values()
    model = opened(native(layer, tmp_path).path, 2)

    def calls(_: int) -> bool:
        found = [model.run(list(layer.names), layer.feeds) for _ in range(15)]
        return all(
            np.array_equal(a, b) for one in found for a, b in zip(one, expected, strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(calls, range(8)))
