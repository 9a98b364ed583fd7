"""What every quantized layer has to stand, whatever it computes."""

from __future__ import annotations

import copy
import io
import json
import pickle
from typing import Any

import torch
from torch import Tensor

from tests.models import assert_bits, quiet

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def assert_close(a: Tensor, b: Tensor, error: float) -> None:
    """`a` has the dtype and shape of `b`, and differs by at most `error` of its norm."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    a, b = a.double(), b.double()
    assert torch.isfinite(a).all()
    assert (a - b).norm() <= error * b.norm()


def assert_keeps_its_state(layer: Any, *inputs: Any) -> None:
    """Copies, pickles, saved files and empty layers that are filled compute the same bits."""
    y = layer(*inputs)
    for again in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        _filled(layer, _through_file(layer.state_dict()), assign=True),
        _filled(layer, layer.state_dict(), assign=False),
    ):
        assert_bits(again(*inputs), y)
        assert set(again.state_dict()) == set(layer.state_dict())
    with torch.inference_mode():
        assert_bits(layer(*inputs), y)
    moved = copy.deepcopy(layer).half().double().to(layer._output_dtype).share_memory()
    assert_bits(moved(*inputs), y)
    for name, tensor in layer.state_dict().items():
        assert moved.state_dict()[name].dtype == tensor.dtype
    assert list(layer.parameters()) == []


def _through_file(state: dict[str, Tensor]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _filled(layer: Any, state: dict[str, Tensor], *, assign: bool) -> Any:
    """A new layer of the same configuration, which has been through JSON."""
    config = json.loads(json.dumps(layer.config()))
    if not assign:
        made = type(layer)(**config)
    else:
        with torch.device("meta"):
            made = type(layer)(**config)
        for name, tensor in made.state_dict().items():
            assert (tensor.shape, tensor.dtype) == (state[name].shape, state[name].dtype)
    made.load_state_dict(state, assign=assign)
    return made


def assert_runs_in_graphs(
    layer: Any, inputs: tuple[Any, ...], others: tuple[Any, ...], backend: str = "aot_eager"
) -> None:
    """Compiled, exported and traced, it computes the same bits.

    `others` are inputs whose first axis has another size than that of `inputs`.
    """
    torch._dynamo.reset()
    compiled = quiet(torch.compile(layer, fullgraph=True, dynamic=True, backend=backend))
    batch = torch.export.Dim.AUTO
    shapes = tuple(None if x is None else {0: batch} for x in inputs)
    exported = torch.export.export(layer, inputs, dynamic_shapes=shapes).module()
    given = tuple(x for x in inputs if x is not None)
    traced = quiet(torch.jit.trace)(layer, given, check_trace=False)
    for some in (inputs, others):
        y = layer(*some)
        assert_bits(compiled(*some), y)
        assert_bits(exported(*some), y)
        assert_bits(traced(*(x for x in some if x is not None)), y)


def assert_threads_do_not_matter(layer: Any, *inputs: Any) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = layer(*inputs)
        torch.set_num_threads(2)
        assert_bits(layer(*inputs), one)
    finally:
        torch.set_num_threads(before)
