"""`export_onnx`: the same integers in an ONNX file, whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo import errors
from octavo.files.metadata import metadata
from octavo.torch import export_onnx, quantize_dynamic
from octavo.torch.dynamic_type import has_dynamic_type
from octavo.torch.export import Exported
from tests.models import (
    constants,
    filled,
    flat,
    net,
    operators,
    relative,
    run,
    seeded,
    worst_of_rows,
)

pytestmark = pytest.mark.usefixtures("one_registry")
STEP = 1 + 1e-4  # room for float32 beside a bound that is exact in numbers without rounding


def network() -> nn.Module:
    return filled(nn.Sequential(nn.Linear(40, 56), nn.Tanh(), nn.Linear(56, 24, bias=False)))


@pytest.fixture(scope="module")
def quantized() -> nn.Module:
    return quantize_dynamic(network())


@pytest.fixture(scope="module")
def exported(quantized: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_onnx(
        quantized,
        (seeded(3, 40),),
        tmp_path_factory.mktemp("exported") / "m.onnx",
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes=({0: "batch"},),
    )


def test_what_was_written(exported: Exported) -> None:
    """A valid file of stock operators, and the metadata that the ONNX front end writes."""
    assert exported.operators == {"linear": 2} and exported.notes == ()
    assert exported.bytes == exported.path.stat().st_size
    assert exported.opset == 20 and exported.min_onnxruntime == "1.17"
    assert [p.name for p in exported.path.parent.iterdir()] == ["m.onnx"]
    assert metadata(exported.path) == {
        "octavo.version": octavo.__version__,
        "octavo.recipe": "default",
        "octavo.target": "portable",
        "octavo.cpu": "vnni",
        "octavo.quant_format": "qoperator",
        "octavo.min_onnxruntime": "1.17",
    }
    model = onnx.load(exported.path)
    onnx.checker.check_model(model, full_check=True)
    assert {o.domain for o in model.opset_import} == {"", "com.microsoft"}
    assert model.ir_version == 9 and not model.functions
    assert {node.domain for node in model.graph.node} <= {"", "com.microsoft"}
    assert [i.name for i in model.graph.input] == ["x"]
    assert [o.name for o in model.graph.output] == ["y"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert not any("packed" in name for name in constants(exported.path))
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)


def test_the_integers_are_those_of_the_model(quantized: nn.Module, exported: Exported) -> None:
    found = constants(exported.path)
    for name in ("0", "2"):
        layer = quantized.get_submodule(name)
        q = found[f"{name}.weight_quantized"]
        assert q.dtype == np.int8
        assert np.array_equal(q.T, layer.integers().numpy())
        assert np.array_equal(found[f"{name}.weight_scale"], layer.scale.numpy())
        assert not found[f"{name}.weight_zero_point"].any()


@pytest.mark.parametrize("batch", [1, 17])
def test_a_layer_is_as_exact_as_its_rows(
    quantized: nn.Module, exported: Exported, batch: int
) -> None:
    """Both layers apart: the second one's input is what the first gave."""
    x = seeded(batch, 40, seed=batch, scale=3.0)
    (y,) = run(exported.path, x)
    first, second = quantized[0], quantized[2]
    w1, w2 = (np.asarray(layer.weight(), np.float64) for layer in (first, second))
    hidden = np.tanh(x.double().numpy() @ w1.T + first.bias.double().numpy())
    off = worst_of_rows(x.numpy(), w1)
    # Tanh is no steeper than 1, and its outputs no larger than 1.
    bound = off @ np.abs(w2).T + worst_of_rows(np.ones((batch, 56)), w2)
    assert (np.abs(y - hidden @ w2.T) <= bound * STEP).all()
    # The schemes differ in their steps: max|x| / 127 there, (max - min) / 255 here.
    expected = quantized(x).numpy()
    norms = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(y - expected, axis=1) <= 0.03 * norms).all()


@pytest.mark.parametrize("number", [torch.nan, 1e6])
def test_a_row_does_not_change_others(exported: Exported, number: float) -> None:
    x = seeded(4, 40)
    (whole,) = run(exported.path, x)
    x[2, 5] = number
    (y,) = run(exported.path, x)
    assert np.isnan(y[2]).all() == np.isnan(number)
    assert np.array_equal(np.delete(y, 2, 0), np.delete(whole, 2, 0))


def test_the_model_is_as_it_was(tmp_path: Path) -> None:
    model = nn.Sequential(quantize_dynamic(network()), nn.Dropout(0.5)).train()
    modes = [module.training for module in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export_onnx(model, (seeded(3, 40),), tmp_path / "m.onnx")
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert not {"Dropout", "Identity"} & set(operators(tmp_path / "m.onnx"))


def test_any_processor(quantized: nn.Module, exported: Exported, tmp_path: Path) -> None:
    path = tmp_path / "any.onnx"
    export_onnx(quantized, seeded(3, 40), path, cpu="any")
    found = constants(path)
    q = quantized[0].integers().numpy().astype(np.int32)
    assert found["0.weight_quantized"].dtype == np.uint8
    assert np.array_equal(found["0.weight_quantized"].T, q + 128)
    assert (found["0.weight_zero_point"] == 128).all()
    assert metadata(path)["octavo.cpu"] == "any"
    x = seeded(3, 40, seed=1)
    assert np.allclose(run(path, x)[0], run(exported.path, x)[0], rtol=1e-6, atol=1e-6)


def whole_call(m: Any, x: Tensor, vector: Tensor, small: Tensor) -> tuple[Tensor, ...]:
    a = m.again(torch.relu(m.tied(m.tied(x))))
    attended, tied = m.attention(a, a, a, need_weights=False)[0], m.tied(vector)
    return attended, tied, m.wide(vector.repeat(2049)[:65_540]), m.small(small)


@pytest.fixture(scope="module")
def forms() -> Any:
    tied, again = nn.Linear(32, 32), nn.Linear(32, 32)
    again.weight = tied.weight
    attention = nn.MultiheadAttention(32, 4, batch_first=True)
    parts = {"tied": tied, "wide": nn.Linear(65_540, 3), "again": again, "attention": attention}
    made = net(whole_call, **parts, small=nn.Linear(32, 8))
    return quantize_dynamic(filled(made), recipe="int8-accurate")


@pytest.fixture(scope="module")
def forms_exported(forms: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    path = tmp_path_factory.mktemp("forms") / "m.onnx"
    return export_onnx(forms, forms_inputs(), path)


def forms_inputs() -> tuple[Tensor, Tensor, Tensor]:
    return seeded(2, 5, 32), seeded(32), seeded(6, 32).half()


@pytest.mark.vnni
def test_the_forms_agree(forms: Any, forms_exported: Exported) -> None:
    inputs, path = forms_inputs(), forms_exported.path
    got = run(path, *inputs)
    assert [y.dtype for y in got] == [np.float32] * 3 + [np.float16]
    for y, e in zip(got, flat(forms(*inputs)), strict=True):
        assert y.shape == e.shape and relative(y, e) <= 0.03
    found, layer = constants(path), forms.small
    assert layer.zero_point.any()  # affine weights keep their zero points
    assert np.array_equal(found["small.weight_quantized"].T, layer.integers().numpy())
    assert np.array_equal(found["small.weight_zero_point"], layer.zero_point.numpy())
    shapes = [a.shape for a in found.values() if a.dtype == np.int8 and a.ndim == 2]
    of_layers = [(32, 32)] * 2 + [(32, 96), (65_540, 3), (32, 8)]  # tied, attention's: two, ...
    assert sorted(shapes) == sorted(of_layers), "a weight of several layers is stored once"
    # x, tied(x), its ReLU, the input of q, k and v, their attention, vector, small.
    assert operators(path).count("QuantizeLinear") == 7


def test_what_the_file_holds_otherwise_is_noted(forms_exported: Exported) -> None:
    groups, floats = sorted(forms_exported.notes)
    text, _, layers = groups.rpartition(": ")
    assert text == "activations per row: target portable has no groups of 128"
    parts = ["attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.out_proj"]
    assert sorted([*parts, "wide", "small"]) == sorted({*layers.split(", ")} - {"tied", "again"})
    assert floats.startswith("computed in float: ") and floats.endswith(": wide")


def test_query_key_and_value_are_one_product(tmp_path: Path) -> None:
    model = quantize_dynamic(filled(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)).eval())
    x = seeded(2, 5, 32)
    paths = [tmp_path / name for name in ("together.onnx", "apart.onnx")]
    export_onnx(model, (x,), paths[0])
    with patch("octavo.graph.rewrite.passes.merge_qkv", return_value=[]):
        export_onnx(model, (x,), paths[1])
    assert [operators(p).count("MatMulIntegerToFloat") for p in paths] == [4, 6]
    assert [operators(p).count("Split") for p in paths] == [1, 0]
    assert np.array_equal(run(paths[0], x)[0], run(paths[1], x)[0])


def test_activations_that_layers_have_taken_over(tmp_path: Path) -> None:
    acts = [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU()]
    pairs = nn.ModuleList(nn.Sequential(nn.Linear(24, 40), act) for act in acts)
    model: Any = quantize_dynamic(filled(net(lambda m, x: [p(x) for p in m.pairs], pairs=pairs)))
    assert all(has_dynamic_type(pair) for pair in model.pairs)  # calls layer and activation as one
    x = seeded(5, 24)
    export_onnx(model, (x,), tmp_path / "m.onnx")
    for y, (layer, act) in zip(run(tmp_path / "m.onnx", x), model.pairs, strict=True):
        exact = x.double() @ layer.weight().double().T + layer.bias.double()
        bound = worst_of_rows(x.numpy(), layer.weight().numpy()) * 1.2  # GELU's slope is below 1.13
        assert (np.abs(y - act(exact).numpy()) <= bound).all()


def test_weights_in_a_data_file(
    quantized: nn.Module, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = tmp_path / "m.onnx", seeded(3, 40)
    export_onnx(quantized, (x,), path, external_data=True)
    # The second one has a data file as it is too large for one, and it takes the first one's place.
    monkeypatch.setattr("octavo.torch.export.PROTOBUF_LIMIT", 1000)
    told = export_onnx(quantized, (x,), path)
    data = metadata(path)["octavo.data_file"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m.onnx", data])
    assert told.bytes == sum(p.stat().st_size for p in tmp_path.iterdir())
    assert (tmp_path / data).stat().st_size > 1000
    assert np.array_equal(run(path, x)[0], run(exported.path, x)[0])


def test_a_disk_that_fails(
    quantized: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"the old file")

    def fails(model: Any, where: Path, **options: Any) -> None:
        Path(where).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "it is so")

    monkeypatch.setattr(ir, "save", fails)
    with pytest.raises(errors.OutputError, match=r"m\.onnx .*it is so"):
        export_onnx(quantized, (seeded(3, 40),), path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert path.read_bytes() == b"the old file"


@pytest.mark.parametrize(
    ("error", "said", "changed"),
    [
        (errors.OutputError, "none of the output does not exist", {"path": "none/m.onnx"}),
        (errors.OutputError, "file of the output is not a folder", {"path": "file/m.onnx"}),
        (errors.OutputError, "is a directory; give a file name", {"path": "."}),
        (errors.OptionError, "path is a int", {"path": 5}),
        (errors.OptionError, "Did you mean 'vnni'", {"cpu": "vnn"}),
        (errors.OptionError, "opset_version '20'", {"opset_version": "20"}),
        (errors.OptionError, "Did you mean 'dynamic_shapes'", {"dynamic_shape": ()}),
        (errors.OptionError, "'do_constant_folding'.* Known: cpu, ", {"do_constant_folding": True}),
        (errors.OptionError, r"needs a torch\.nn\.Module, not dict", {"qmodel": {}}),
        (errors.NothingQuantizedError, "Sequential has no quantized", {"qmodel": network()}),
    ],
)
def test_arguments_that_are_refused(
    quantized: nn.Module,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    said: str,
    changed: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"")
    given = {"qmodel": quantized, "args": (seeded(3, 40),), "path": "m.onnx", **changed}
    with pytest.raises(error, match=said):
        export_onnx(**given)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def skips(m: Any, x: Tensor, use: bool = False) -> Any:
    return m.layer(x) if use else x + 1


def decides(m: Any, x: Tensor) -> Any:
    return m.layer(x) if x.sum().item() > 0 else x


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (skips, "the call of Net reaches none of its 1 quantized layers"),
        (decides, r"torch\.onnx\.export cannot export Net: \w+: [^\n]* See that torch\.export"),
    ],
)
def test_calls_that_are_refused(tmp_path: Path, call: Callable[..., Any], said: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"the old file")
    with pytest.raises(errors.ModelError, match=said) as caught:
        export_onnx(quantize_dynamic(net(call, layer=nn.Linear(8, 8))), (seeded(3, 8),), path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"the old file"
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_keyword_arguments_of_the_call(tmp_path: Path) -> None:
    model = quantize_dynamic(filled(net(skips, layer=nn.Linear(8, 8))))
    x = seeded(3, 8)
    told = export_onnx(model, (), tmp_path / "m.onnx", kwargs={"x": x, "use": True})
    assert told.operators == {"linear": 1}
    (y,) = run(tmp_path / "m.onnx", x)
    bound = worst_of_rows(x.numpy(), model.layer.weight().numpy()) * 2.1  # of both schemes
    assert (np.abs(y - model(x, True).numpy()) <= bound).all()
