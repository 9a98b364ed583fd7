"""`export_onnx` to target native: the packed buffers in an ONNX file, and the model's own bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import octavo
import octavo.onnx
from octavo import Scheme
from octavo.files.metadata import metadata
from octavo.torch import export_onnx, quantize_dynamic
from octavo.torch.export import Exported
from octavo.torch.qconfig import (
    PlaceholderObserver,
    QConfig,
)
from tests.models import (
    constants,
    filled,
    flat,
    net,
    operators,
    quiet,
    relative,
    run,
    seeded,
)
from tests.torch.test_torch_export_layers import (
    ALL,
    AS_PORTABLE,
    HIDDEN,
    INPUTS,
    SAME,
    STEPS,
    assert_same_bits,
    ours,
)

pytestmark = pytest.mark.usefixtures("one_registry")


def export(model: nn.Module, args: tuple[Any, ...], path: Path, **options: Any) -> Exported:
    return export_onnx(model, args, path, target="native", **options)


def test_what_was_written_and_its_bits(tmp_path: Path) -> None:
    stages = nn.Linear(40, 56), nn.ReLU(), nn.Linear(56, 24, bias=False)
    quantized: Any = quantize_dynamic(filled(nn.Sequential(*stages)))
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    shapes = ({0: "batch"},)
    args = (seeded(3, 40),)
    exported = export(quantized, args, tmp_path / "m.onnx", dynamic_shapes=shapes, **names)
    assert exported.operators == {"linear": 2} and exported.notes == ()
    assert exported.min_onnxruntime == "1.17" and exported.opset == 20
    model = onnx.load(exported.path)
    onnx.checker.check_model(model)
    assert {o.domain: o.version for o in model.opset_import} == {"": 20, "ai.octavo": 1}
    assert [n.op_type for n in model.graph.node] == ["Linear", "Linear"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [o.name for o in model.graph.output] == ["y"]
    found = constants(exported.path)
    for name in ("0", "2"):
        layer = quantized.get_submodule(name)
        w = found[f"{name}.weight_quantized"]
        n, k = layer.out_features, layer.in_features
        assert w.dtype == np.int8 and w.shape == (-(-n // 16), -(-k // 4), 16, 4)
        assert w.tobytes() == layer.packed.numpy().tobytes()
        assert np.array_equal(found[f"{name}.weight_scale"], layer.scale.numpy())
        assert not found[f"{name}.weight_zero_point"].any()
    assert not found["2.bias"].any() and found["0.bias"].any()
    for batch in (1, 17):
        x = seeded(batch, 40, seed=batch, scale=3.0)
        x[0, 5] = torch.nan
        (y,), expected = run(exported.path, x), quantized(x).numpy()
        assert np.isnan(y[0]).all() and np.isnan(expected[0]).all()
        assert np.array_equal(y[1:], expected[1:])


def test_weights_in_a_data_file_begin_on_pages(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    large = quantize_dynamic(filled(nn.Sequential(nn.Linear(130, 70), nn.Linear(70, 100))))
    export(large, (seeded(3, 130),), path, external_data=True)
    held = onnx.load(path, load_external_data=False).graph.initializer
    places = {i.name: {e.key: e.value for e in i.external_data} for i in held}
    for name in ("0.weight_quantized", "1.weight_quantized"):
        assert int(places[name].get("offset", 0)) % 64 == 0
        assert places[name]["location"] == metadata(path)["octavo.data_file"]
    assert_same_bits(large, (seeded(3, 130),), path)


def forms() -> nn.Module:
    """What linear layers may be: tied, long, affine, in groups, over a vector, in 16 bits."""

    def forward(m: Any, x: Tensor, vector: Tensor, small: Tensor) -> tuple[Tensor, ...]:
        half, bfloat, double = (m.small(small.to(t)) for t in KINDS)
        wide = m.wide(vector.repeat(2049)[:65_540])
        tied = m.again(torch.relu(m.tied(x))), m.tied(vector)
        return *tied, wide, m.small(small), half, bfloat.float(), double

    tied, again = nn.Linear(32, 32), nn.Linear(32, 32)
    again.weight = tied.weight
    wide, small = nn.Linear(65_540, 3), nn.Linear(300, 8)
    return filled(net(forward, tied=tied, again=again, wide=wide, small=small))


KINDS = (torch.float16, torch.bfloat16, torch.float64)


def test_forms_of_linear_layers(tmp_path: Path) -> None:
    model = quantize_dynamic(forms(), recipe="int8-accurate")
    assert model.small.zero_point.any() and model.small.group == 128
    args, path = (seeded(2, 5, 32), seeded(32), seeded(6, 300)), tmp_path / "m.onnx"
    told = export(model, args, path)
    assert told.notes == ()
    assert_same_bits(model, args, path)
    found = constants(path)
    assert np.array_equal(found["small.weight_zero_point"], model.small.zero_point.numpy())
    packed = [a.shape for a in found.values() if a.dtype == np.int8 and a.ndim == 4]
    assert sorted(packed) == [(1, 75, 16, 4), (1, 16_385, 16, 4), (2, 8, 16, 4)]  # tied: once


def test_activations_are_those_of_the_kernels(tmp_path: Path) -> None:
    stages = [nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.GELU()]
    stages += [nn.Linear(24, 24), nn.GELU("tanh"), nn.Linear(24, 24), nn.SiLU()]
    model = quantize_dynamic(filled(nn.Sequential(*stages)))
    export(model, (seeded(5, 24),), tmp_path / "m.onnx")
    assert operators(tmp_path / "m.onnx") == ["Linear"] * 4
    assert_same_bits(model, (seeded(5, 24),), tmp_path / "m.onnx")


def test_what_stands_around_layers_is_fused(tmp_path: Path) -> None:
    """Layers over one input, with an activation and a residual that the graph has."""
    around = net(
        lambda m, x: x + m.down(nn.functional.silu(m.gate(x)) * m.up(x)),
        gate=nn.Linear(24, 40),
        up=nn.Linear(24, 40),
        down=nn.Linear(40, 24),
    )
    model, args = quantize_dynamic(filled(around)), (seeded(2, 5, 24),)
    export(model, args, tmp_path / "m.onnx")
    assert operators(tmp_path / "m.onnx") == ["GatedLinear", "Linear"]
    (y,), (expected,) = run(tmp_path / "m.onnx", *args), flat(model(*args))
    assert relative(y, expected) <= 0.01  # silu in other bits may be another integer


def test_layers_without_a_native_operator_keep_their_portable_form(tmp_path: Path) -> None:
    weights = PlaceholderObserver.with_args(dtype=torch.float16)
    spec: dict[Any, Any] = {nn.LSTM: Scheme(), "whole": Scheme()}
    spec["sixteen"] = QConfig(activation=PlaceholderObserver, weight=weights)
    parts = {"whole": nn.Linear(24, 16), "sixteen": nn.Linear(16, 20)}
    projected = nn.LSTM(20, 24, proj_size=10)
    float_model = net(lambda m, x: m.lstm(m.sixteen(m.whole(x)))[0], **parts, lstm=projected)
    model, args, path = quantize_dynamic(filled(float_model), spec), (seeded(5, 3, 24),), tmp_path
    told = export(model, args, path / "m.onnx")
    sixteen, projection = sorted(told.notes, reverse=True)
    assert sixteen == f"{AS_PORTABLE}: sixteen"
    assert projection.startswith("computed in float, over int8") and projection.endswith(": lstm")
    assert ours(path / "m.onnx") == ["Linear"] and "LSTM" in operators(path / "m.onnx")
    (y,), (expected,) = run(path / "m.onnx", *args), flat(model(*args))
    assert relative(y, expected) <= 0.03


def test_activations_behind_convolutions_are_one_with_them(tmp_path: Path) -> None:
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.SiLU()
    model = quantize_dynamic(filled(nn.Sequential(*layers)), recipe=ALL)
    args, path = (seeded(2, 3, 9, 9),), tmp_path / "m.onnx"
    export(model, args, path, dynamic_shapes=({0: "batch", 2: "h", 3: "w"},))
    assert operators(path) == ["Conv", "Conv"]
    for shape in ((1, 3, 7, 12), (4, 3, 20, 6)):
        (y,), (expected,) = run(path, seeded(*shape)), flat(model(seeded(*shape)))
        assert y.shape == expected.shape and relative(y, expected) <= SAME


def test_sizes_that_vary_and_outputs_that_nothing_reads(tmp_path: Path) -> None:
    lstm = nn.LSTM(INPUTS, HIDDEN, bidirectional=True, batch_first=True)
    last = filled(net(lambda m, x: m.layer(x)[1][0], layer=lstm))
    model, path = quantize_dynamic(last), tmp_path / "m.onnx"
    shapes = ({0: "batch", 1: "steps"},)
    export(model, (seeded(3, STEPS, INPUTS),), path, dynamic_shapes=shapes)
    nodes = onnx.load(path).graph.node
    assert [n.op_type for n in nodes] == ["LSTM", "Transpose"]
    assert [bool(name) for name in nodes[0].output] == [False, True]
    for batch, steps in ((1, 1), (2, 4), (5, 30)):
        assert_same_bits(model, (seeded(batch, steps, INPUTS),), path)


def branches() -> nn.Module:
    def forward(m: Any, x: Tensor, i: Tensor) -> Any:
        def yes(x: Tensor, i: Tensor) -> Any:
            return torch.relu(m.first(x)) + m.table(i)

        def no(x: Tensor, i: Tensor) -> Any:
            return m.second(m.line(x.transpose(1, 2)).transpose(1, 2)) + m.layer(x)[0]

        return torch.cond(x.sum() > 0, yes, no, (x, i))

    linear = {name: nn.Linear(16, 16) for name in ("first", "second")}
    line, table, layer = nn.Conv1d(16, 16, 1), nn.Embedding(300, 16), nn.LSTM(16, 16)
    return filled(net(forward, line=line, table=table, layer=layer, **linear))


def test_layers_in_branches_have_their_weights_there(tmp_path: Path) -> None:
    model, path = quantize_dynamic(branches(), recipe=ALL), tmp_path / "m.onnx"
    x, i = seeded(2, 5, 16).abs(), torch.tensor([[1, 2, 3, 4, 5], [0, 1, 2, 3, 8]])
    export(model, (x, i), path)
    assert not constants(path).keys() & {"table.table", "first.weight_quantized"}
    for sign in (1, -1):
        (y,), (expected,) = run(path, sign * x, i), flat(model(sign * x, i))
        assert relative(y, expected) <= SAME


def layers() -> nn.Module:
    """Layers that both front ends hold in integers."""

    def forward(m: Any, i: Tensor) -> Any:
        x = m.line(m.table(i).transpose(1, 2)).permute(2, 0, 1)
        return m.out(m.lstm(m.gru(x)[0])[0])

    table, line = nn.Embedding(1_100, 16), nn.Conv1d(16, 20, 5)
    gru = nn.GRU(20, 24, num_layers=2, bidirectional=True)
    lstm, out = nn.LSTM(48, 16), nn.Linear(16, 12)
    return filled(net(forward, table=table, line=line, gru=gru, lstm=lstm, out=out))


def digests(path: Path) -> list[tuple[str, list[int]]]:
    found = []
    for node in onnx.load(path).graph.node:
        said = {a.name: a.i for a in node.attribute if a.name.endswith("checksum")}
        if said:
            found.append((node.op_type, [said[name] for name in sorted(said)]))
    return sorted(found)


def test_integers_and_metadata_are_those_of_the_onnx_front_end(tmp_path: Path) -> None:
    float_model, i = layers(), torch.arange(24).reshape(2, 12)
    source, direct, path = (tmp_path / name for name in ("f.onnx", "direct.onnx", "m.onnx"))
    quiet(torch.onnx.export)(float_model, (i,), source, dynamo=True, verbose=False)
    octavo.onnx.quantize_dynamic(source, direct, recipe=ALL, target="native")
    model = quantize_dynamic(float_model, recipe=ALL)
    export(model, (i,), path)
    assert [op for op, _ in digests(path)] == ["Conv", "Embedding", "GRU", "GRU", "LSTM", "Linear"]
    assert digests(path) == digests(direct)
    (y,), (theirs,) = (run(p, i) for p in (path, direct))
    assert np.array_equal(y, theirs) and np.array_equal(y, model(i).numpy())
    said, other = metadata(path), metadata(direct)
    # Of PyTorch's layers `octavo.torch.report` tells: they have other names than the float file's.
    assert json.loads(other.pop("octavo.layers")) and other.pop("octavo.max_error") == "0.1"
    # PyTorch writes a newer file format than the exported model's.
    assert said.pop("octavo.min_onnxruntime") == "1.17"
    assert other.pop("octavo.min_onnxruntime") == "1.18"
    assert said == {key: value for key, value in other.items() if key.startswith("octavo.")}
    assert "octavo.onnx.session" in said["octavo.operators"]
