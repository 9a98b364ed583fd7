"""`export_onnx`, layer by layer, to both targets: what each becomes, and that it computes what the
layer does, bit for bit in Octavo's own operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from octavo import Recipe, Scheme, errors
from octavo.core.convolution import unpack_filters
from octavo.torch import export_onnx, quantize_dynamic
from octavo.torch.qconfig import (
    PlaceholderObserver,
    QConfig,
    float_qparams_weight_only_qconfig,
)
from tests.models import (
    Tied,
    constants,
    encoder,
    filled,
    flat,
    net,
    operators,
    relative,
    run,
    seeded,
)
from tests.onnx.test_oldest_runtime import OldRuntime, oldest  # noqa: F401

pytestmark = pytest.mark.usefixtures("one_registry")
ALL = Recipe(name="all", default=Scheme())  # convolutions and embeddings too
SAME = 2e-6  # relative: float32 sums in another order
CLOSE = 0.03  # relative: activations in steps of another scheme


AS_PORTABLE = "in the form of target portable: target native has no operator for it"


def exported(model: nn.Module, args: tuple[Tensor, ...], path: Path, **options: Any) -> list[Any]:
    """The file's outputs beside the model's, in pairs of one shape and dtype."""
    export_onnx(model, args, path, **options)
    got, expected = run(path, *args), flat(model(*args))
    assert [y.shape for y in got] == [e.shape for e in expected]
    return list(zip(got, expected, strict=True))


def ours(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node if n.domain == "ai.octavo"]


def assert_same_bits(model: nn.Module, args: tuple[Tensor, ...], path: Path) -> None:
    expected = [t.contiguous().numpy() for t in tree_flatten(model(*args))[0]]
    for y, e in zip(run(path, *args), expected, strict=True):
        assert (y.dtype, y.shape, y.tobytes()) == (e.dtype, e.shape, e.tobytes())


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_layers_of_16_bits(tmp_path: Path, storage: str) -> None:
    weights = PlaceholderObserver.with_args(dtype=getattr(torch, storage))
    qconfig = QConfig(activation=PlaceholderObserver, weight=weights)
    model = filled(nn.Sequential(nn.Embedding(50, 24), nn.Linear(24, 16), nn.ReLU()))
    model = quantize_dynamic(model, {nn.Linear: qconfig, nn.Embedding: qconfig})
    path = tmp_path / "m.onnx"
    ((y, expected),) = exported(model, (torch.tensor([[3, 0, 49]]),), path)
    assert relative(y, expected) <= SAME
    assert operators(path) == ["Gather", "Cast", "Cast", "MatMul", "Add", "Relu"]
    stored = [i for i in onnx.load(path).graph.initializer if len(i.dims) == 2]
    kind = onnx.TensorProto.DataType.Value(storage.upper())
    assert [i.data_type for i in stored] == [kind] * 2


def tables() -> nn.Module:
    """Lookups of every kind: (ids, where bags begin, weights of the samples) -> eight outputs."""

    def look_up(m: Any, i: Tensor, starts: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        looked_up = m.signed(i), m.affine(i.int()), m.floating(i)
        whole = m.mean(i), m.max(i)
        parts = m.mean(i.reshape(-1), starts), m.max(i.reshape(-1), starts)
        weighted = m.sum(i.reshape(-1), starts, weights.reshape(-1))
        return *looked_up, *whole, *parts, weighted, m.sum(i, per_sample_weights=weights)

    torch.manual_seed(0)
    lookups = {name: nn.Embedding(50, 24) for name in ("affine", "floating")}
    bags = {mode: nn.EmbeddingBag(50, 24, mode=mode) for mode in ("mean", "max")}
    summed = nn.EmbeddingBag(50, 24, mode="sum", padding_idx=0, include_last_offset=True)
    signed = nn.Embedding(50, 24, padding_idx=3)
    return net(look_up, signed=signed, sum=summed, **lookups, **bags).eval()


def lookups() -> tuple[Tensor, Tensor, Tensor]:
    i = torch.tensor([[3, 0, 49, 7], [5, 5, 0, 1], [0, 0, 0, 0]])
    return i, torch.tensor([0, 4, 4, 12]), seeded(3, 4)  # the second bag is empty


def test_embeddings_and_bags(tmp_path: Path) -> None:
    affine = Scheme.from_dict({"weight": {"qtype": "int8", "symmetric": False}})
    unsigned = Scheme.from_dict({"weight": {"qtype": "uint8", "symmetric": False}})
    spec = {nn.EmbeddingBag: Scheme(), "signed": unsigned, "affine": affine}
    model: Any = quantize_dynamic(tables(), spec | {"floating": float_qparams_weight_only_qconfig})
    assert model.signed.table.dtype is torch.uint8
    for y, expected in exported(model, lookups(), tmp_path / "m.onnx"):
        assert np.allclose(y, expected, rtol=SAME, atol=SAME)
    assert model.affine.zero_point is not None and model.floating.zero_points == "float32"
    found = constants(tmp_path / "m.onnx")
    for name in ("signed", "affine", "floating", "mean", "max", "sum"):
        table = found[f"{name}.table"]
        assert table.dtype in (np.int8, np.uint8)
        q = table.astype(int) + 128 * (name == "signed")  # uint8 there, around 128
        assert np.array_equal(q, model.get_submodule(name).integers().numpy())
    path = tmp_path / "native.onnx"
    for i, (y, expected) in enumerate(exported(model, lookups(), path, target="native")):
        assert np.allclose(y, expected, rtol=SAME, atol=0 if i < 2 else SAME)
    assert ours(path) == ["Embedding", "Embedding"]
    table = constants(path)["affine.table"]
    assert table.tobytes() == model.affine.table.numpy().tobytes()


def convolutions() -> nn.Module:
    def forward(m: Any, x: Tensor, image: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        line, plane = m.line(x), m.plane(image)
        long = line.repeat(1, 1025, 1)
        return line, m.line(x[0]), plane, m.deep(plane), m.mirror(other), m.wide(long)

    mirror: dict[str, Any] = {"dilation": 2, "padding": 1, "padding_mode": "reflect", "groups": 2}
    return filled(
        net(
            forward,
            line=nn.Conv1d(6, 8, 3, padding=1),
            plane=nn.Conv2d(3, 8, 3, stride=2),
            deep=nn.Conv2d(8, 8, 3, padding="same", groups=8, bias=False),
            mirror=nn.Conv2d(4, 8, (3, 2), **mirror),
            wide=nn.Conv1d(8_200, 2, 8),  # 65,600 inputs a sum
        )
    )


def test_convolutions(tmp_path: Path) -> None:
    model = quantize_dynamic(convolutions(), recipe=ALL)
    path = tmp_path / "m.onnx"
    args = seeded(2, 6, 20), seeded(2, 3, 16, 16), seeded(2, 4, 12, 12)
    told = export_onnx(model, args, path)
    (note,) = told.notes
    assert note.startswith("computed in float") and note.endswith(": wide")
    assert told.operators == {"conv": 6}
    for y, expected in zip(run(path, *args), flat(model(*args)), strict=True):
        assert y.shape == expected.shape and relative(y, expected) <= CLOSE
    found = constants(path)
    for name in ("line", "plane", "deep", "mirror"):
        q = model.get_submodule(name).integers().numpy()
        assert found[f"{name}.weight_quantized"].dtype == np.uint8
        assert np.array_equal(found[f"{name}.weight_quantized"].astype(int) - 128, q)
    assert np.array_equal(found["wide.weight_quantized"], model.wide.integers().numpy())
    told = export_onnx(model, args, path, target="native")
    assert told.operators == {"conv": 6} and told.notes == ()
    assert ours(path) == ["Conv"] * 6
    assert_same_bits(model, args, path)
    found = constants(path)
    for name in ("line", "plane", "deep", "mirror", "wide"):
        layer = model.get_submodule(name)
        w = found[f"{name}.weight_quantized"].view(np.uint8)
        assert w.tobytes() == layer.packed.numpy().tobytes()
        q = unpack_filters(w, tuple(layer.integers().shape), layer.groups)
        assert np.array_equal(q, layer.integers().numpy())


def test_an_image_of_a_batch_does_not_change_others(tmp_path: Path) -> None:
    model = quantize_dynamic(filled(nn.Sequential(nn.Conv2d(3, 4, 3))), recipe=ALL)
    path, x = tmp_path / "m.onnx", seeded(3, 3, 8, 8)
    export_onnx(model, (x,), path)
    (whole,) = run(path, x)
    x[1] *= 100
    x[2, 0, 0, 0] = torch.nan
    (y,) = run(path, x)
    assert np.array_equal(y[0], whole[0]) and np.isnan(y[2]).all() and np.isfinite(y[1]).all()


OPTIONS: dict[str, tuple[type[nn.Module], dict[str, Any], bool]] = {
    "lstm": (nn.LSTM, {}, True),
    "lstm, batch first, no bias": (nn.LSTM, {"batch_first": True, "bias": False}, False),
    "lstm, two layers, both ways": (nn.LSTM, {"num_layers": 2, "bidirectional": True}, True),
    "lstm with projection": (nn.LSTM, {"proj_size": 10, "bidirectional": True}, True),
    "lstm with projection, no state": (nn.LSTM, {"proj_size": 10, "num_layers": 2}, False),
    "gru": (nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}, True),
    "gru, no bias, no state": (nn.GRU, {"bias": False}, False),
    "rnn with relu, both ways": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}, False),
    "rnn": (nn.RNN, {"num_layers": 2}, True),
}
INPUTS, HIDDEN, STEPS, BATCH = 20, 24, 9, 3


def recurrent(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    make, options, with_state = OPTIONS[name]

    def with_lstm_states(m: Any, x: Tensor, h: Tensor, c: Tensor) -> Any:
        return m.layer(x, (h, c))

    def with_states(m: Any, x: Tensor, h: Tensor) -> Any:
        return m.layer(x, h)

    call = with_lstm_states if make is nn.LSTM else with_states
    if not with_state:
        call = lambda m, x: m.layer(x)  # noqa: E731
    model = filled(net(call, layer=make(INPUTS, HIDDEN, **options)))
    shape = (BATCH, STEPS) if options.get("batch_first") else (STEPS, BATCH)
    args = [seeded(*shape, INPUTS)]
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    if with_state:
        args.append(seeded(count, BATCH, options.get("proj_size") or HIDDEN, seed=1, scale=0.5))
        if make is nn.LSTM:
            args.append(seeded(count, BATCH, HIDDEN, seed=2, scale=0.5))
    return model, tuple(args)


# Gates in PyTorch's order by their places in ONNX's: i, f, g, o of i, o, f, c; r, z, n of z, r, h.
GATES = {nn.LSTM: (0, 2, 3, 1), nn.GRU: (1, 0, 2), nn.RNN: (0,)}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", OPTIONS)
def test_recurrent_layers(name: str, tmp_path: Path) -> None:
    float_model, args = recurrent(name)
    model: Any = quantize_dynamic(float_model)
    path, (make, options, _) = tmp_path / "m.onnx", OPTIONS[name]
    (note,) = export_onnx(model, args, path).notes
    for y, expected in zip(run(path, *args), flat(model(*args)), strict=True):
        assert y.shape == expected.shape and relative(y, expected) <= CLOSE
    found, layers = operators(path), options.get("num_layers", 1)
    names = [f"layer.l{i}" for i in range(layers)] if layers > 1 else ["layer"]
    assert note.endswith(f": {', '.join(names)}")
    if make is nn.LSTM and "proj_size" not in options:
        assert found.count("DynamicQuantizeLSTM") == layers
        assert note.startswith("activations have one scale a step for the whole batch")
    else:
        assert found.count(make.__name__) == layers and "DynamicQuantizeLSTM" not in found
        assert found.count("DequantizeLinear") == layers * (3 if "proj_size" in options else 2)
        assert note.startswith("computed in float, over int8 weights")
    stored = constants(path)
    held = [a for a in stored.values() if a.ndim > 1 and a.dtype == np.float32]
    assert all(a.size <= 8 * HIDDEN * 2 or "proj_size" in options for a in held)  # biases
    for part in ("ih", "hh") if not {"proj_size", "bidirectional"} & {*options} else ():
        expected, scale = model.layer.integers()[f"weight_{part}_l0"]
        q, s = (stored[f"{names[0]}.weight_{part}_{what}"] for what in ("quantized", "scale"))
        assert q.dtype == np.int8
        q = q[0].T if make is nn.LSTM else q
        assert np.array_equal(in_torch_order(q, GATES[make]), expected.numpy())
        assert np.array_equal(in_torch_order(s.reshape(-1, 1), GATES[make])[:, 0], scale.numpy())
    if "proj_size" not in options:
        told = export_onnx(model, args, path, target="native")
        assert ours(path) == [make.__name__] * layers and told.notes == ()
        assert_same_bits(model, args, path)
    for part in ("ih", "hh") if name == "lstm" else ():
        packed = getattr(model.layer, f"packed_{part}_l0").numpy()
        assert constants(path)[f"layer.weight_{part}_quantized"].tobytes() == packed.tobytes()


def in_torch_order(q: np.ndarray[Any, Any], order: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Rows gate by gate, from ONNX's order to PyTorch's."""
    gates = q.reshape(len(order), -1, q.shape[-1])
    return gates[list(order)].reshape(q.shape)


def test_a_layer_of_a_stack_that_stays_float(tmp_path: Path) -> None:
    float_model, args = recurrent("lstm, two layers, both ways")
    model = quantize_dynamic(float_model, {nn.LSTM: Scheme(), "layer.l1": None})
    assert model.layer.storage == ["int8", "float32"]
    for y, expected in exported(model, args, tmp_path / "m.onnx"):
        assert relative(y, expected) <= CLOSE
    found = operators(tmp_path / "m.onnx")
    assert found.count("DynamicQuantizeLSTM") == 1 and found.count("LSTM") == 1
    for y, expected in exported(model, args, tmp_path / "m.onnx", target="native"):
        assert relative(y, expected) <= SAME
    assert ours(tmp_path / "m.onnx") == ["LSTM"]
    assert operators(tmp_path / "m.onnx").count("LSTM") == 2


def test_a_projection_without_an_inverse_takes_no_state(tmp_path: Path) -> None:
    float_model, args = recurrent("lstm with projection")
    with torch.no_grad():
        float_model.layer.weight_hr_l0[1] = float_model.layer.weight_hr_l0[0]
    model = quantize_dynamic(float_model)
    with pytest.raises(errors.ModelError, match="layer: rows of its projection"):
        export_onnx(model, args, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def cells() -> nn.Module:
    def step(m: Any, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        h, c = m.lstm(x, (h, c))
        gru = m.gru(h)
        return h, c, gru, m.rnn(gru)

    made = {"lstm": nn.LSTMCell(INPUTS, 24), "gru": nn.GRUCell(24, 16), "rnn": nn.RNNCell(16, 8)}
    return filled(net(step, **made))


@pytest.mark.parametrize(("dtype", "bound"), [("int8", CLOSE), (torch.float16, SAME)])
def test_cells(dtype: Any, bound: float, tmp_path: Path) -> None:
    model = quantize_dynamic(cells(), dtype=dtype)
    args = seeded(5, INPUTS), seeded(5, 24, seed=1), seeded(5, 24, seed=2)
    for y, expected in exported(model, args, tmp_path / "m.onnx"):
        assert relative(y, expected) <= bound
    if dtype is torch.float16:
        held = [a.dtype for n, a in constants(tmp_path / "m.onnx").items() if ".weight_" in n]
        assert held == [np.float16] * 6
    else:
        export_onnx(model, args, tmp_path / "m.onnx", target="native")
        assert ours(tmp_path / "m.onnx") == ["LSTM", "GRU", "RNN"]
        assert_same_bits(model, args, tmp_path / "m.onnx")


def everything() -> nn.Module:
    def forward(m: Any, i: Tensor) -> Tensor:
        x = m.line(m.table(i).transpose(1, 2)).transpose(1, 2)
        return m.out(torch.relu(m.lstm(m.gru(m.encoder(x))[0])[0]))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    return net(
        forward,
        table=nn.Embedding(300, 16),
        line=nn.Conv1d(16, 16, 3, padding=1),
        encoder=encoder(16, 2, 1, dropout=0.0),
        gru=nn.GRU(16, 16, batch_first=True),
        lstm=nn.LSTM(16, 16, batch_first=True),
        out=nn.Linear(16, 5),
    ).eval()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    model = quantize_dynamic(everything(), recipe=ALL)
    path = tmp_path_factory.mktemp("whole") / "m.onnx"
    i = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    told = export_onnx(model, (i,), path, dynamic_shapes=({0: "batch", 1: "length"},))
    assert told.operators == {"embedding": 1, "conv": 1, "linear": 7, "recurrent": 2}
    assert told.min_onnxruntime == "1.17"
    return model, path


@pytest.mark.vnni
@pytest.mark.parametrize("shape", [(1, 1), (4, 19)])
def test_a_model_with_everything(whole: tuple[nn.Module, Path], shape: tuple[int, int]) -> None:
    model, path = whole
    i = torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(1))
    (y,) = run(path, i)
    (expected,) = flat(model(i))
    assert relative(y, expected) <= 2 * CLOSE


@pytest.mark.slow
def test_a_native_model_with_everything(whole: tuple[nn.Module, Path], tmp_path: Path) -> None:
    model, path = whole[0], tmp_path / "m.onnx"
    i = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    told = export_onnx(model, (i,), path, "native", dynamic_shapes=({0: "batch", 1: "length"},))
    assert told.operators == {"embedding": 1, "conv": 1, "linear": 7, "recurrent": 2}
    assert told.min_onnxruntime == "1.17" and told.notes == ()
    found = ours(path)
    assert {"Embedding", "Conv", "GroupedLinear", "Linear", "GRU", "LSTM"} <= set(found)
    assert found.count("GroupedLinear") == found.count("Attention") == 1
    assert not {"Gemm", "Gather", "DynamicQuantizeLSTM", "Softmax", "MatMul"} & {*operators(path)}
    for shape in ((1, 1), (4, 19)):
        i = torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(1))
        (y,), (expected,) = run(path, i), flat(model(i))
        assert relative(y, expected) <= 0.02  # LayerNorm and Softmax are ONNX Runtime's


@pytest.mark.vnni
def test_it_runs_in_the_oldest_onnxruntime(
    whole: tuple[nn.Module, Path],
    oldest: OldRuntime,  # noqa: F811
) -> None:
    _, path = whole
    i = torch.randint(0, 50, (3, 8), generator=torch.Generator().manual_seed(2))
    (new,), (old,) = run(path, i), oldest.run(path, {"i": i.numpy()})
    assert relative(old, new) <= 1e-3  # now and then an integer that lay between two


def test_layers_of_other_sizes_with_the_same_biases(tmp_path: Path) -> None:
    """Two directions of 16 units and one of 32 have as many biases."""

    both, one = nn.LSTM(16, 16, bidirectional=True), nn.LSTM(32, 32)
    for name, value in [*both.named_parameters(), *one.named_parameters()]:
        if "bias" in name:
            nn.init.constant_(value, 0.1)
    two = net(lambda m, x: m.one(m.both(x)[0])[0], both=both, one=one).eval()
    model, path = quantize_dynamic(two), tmp_path / "m.onnx"
    x = seeded(5, 2, 16)
    export_onnx(model, (x,), path)
    assert relative(run(path, x)[0], model(x).detach().numpy()) <= CLOSE


@pytest.mark.parametrize("recipe", ["int4", "int8"])
def test_weights_in_groups_and_a_table_tied_to_a_head(recipe: str, tmp_path: Path) -> None:
    """A native file stores the shared weight once."""
    model, path = quantize_dynamic(Tied(500, 100).eval(), recipe=recipe), tmp_path / "m.onnx"
    args = (torch.tensor([[0, 7, 499], [31, 16, 15]]),)
    export_onnx(model, args, path, target="native")
    assert_same_bits(model, args, path)
    held = [t.raw_data for t in onnx.load(path).graph.initializer]
    assert sum(len(data) == model.head.packed.nbytes for data in held) == 1
    assert {"Embedding", "Linear"} <= {*operators(path)}
    if recipe == "int4":
        ((y, expected),) = exported(model, args, path)
        assert relative(y, expected) < 0.05
        assert "MatMulNBits" in operators(path)
