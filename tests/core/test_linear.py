"""The linear layer against a float64 statement of its definition, and its arguments."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from octavo.core.kernels import PackedWeight, aligned, pack, quantize_rows
from octavo.core.linear import Linear, linear_together
from tests.core import statement
from tests.core.layers import packed, random_layer, random_rows
from tests.core.statement import ACTIVATIONS, assert_same_bits, assert_states

both_groupings = pytest.mark.parametrize("group", [0, 128], ids=["rows", "groups"])
both_weights = pytest.mark.parametrize("affine", [False, True], ids=["symmetric", "affine"])
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
X = random_rows(6, 37)
OUT, ROOM = np.full((6, 20), 7, np.float32), np.full(1000, 7, np.float32)
"""What no call that is refused writes to."""


@both_groupings
@both_weights
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 5, 7), (7, 300, 33), (2, 1000, 17), (40, 64, 16), (2, 200_000, 3)],
    ids=str,
)
def test_a_layer_computes_what_is_defined(
    shape: tuple[int, int, int], affine: bool, group: int
) -> None:
    m, k, n = shape
    layer = random_layer(n, k, group=group, affine=affine)
    x, residual = random_rows(m, k), random_rows(m, n)
    quantized = statement.quantize_rows(x, group)
    assert_states(packed(layer)(x), layer(*quantized))
    for activation in ACTIVATIONS:
        layer = random_layer(n, k, group=group, affine=affine, activation=activation)
        assert_states(packed(layer)(x, residual), layer(*quantized, residual))


@every_activation
def test_activations_are_accurate(activation: str) -> None:
    """With no inputs a layer is its bias behind the activation."""
    near = np.linspace(-20, 20, 40_001)
    far = np.geomspace(1e-45, 1e30, 3000)
    x = np.concatenate([near, far, -far, [0.0, -0.0]]).astype(np.float32)
    layer = packed(random_layer(x.size, 0, activation=activation))
    layer = Linear.from_packed(layer.weight, x, activation)
    y = layer(np.empty((1, 0), np.float32))[0].astype(np.float64)
    with np.errstate(over="ignore"):
        expected = ACTIVATIONS[activation](x.astype(np.float64))
    error = np.abs(y - expected) / np.maximum(1, np.abs(expected))
    assert error.max() <= (0 if activation in ("none", "relu") else 4e-7), x[error.argmax()]


@both_groupings
def test_rows_from_subnormal_to_the_greatest(group: int) -> None:
    unit = random_rows(1, 300)[0] / np.float32(1000)
    x = (unit.astype(np.float64) * 10.0 ** np.arange(-46, 39)[:, None]).astype(np.float32)
    layer = random_layer(20, 300, group=group)
    with np.errstate(invalid="ignore"):
        assert_states(packed(layer)(x), layer(*statement.quantize_rows(x, group)))


@both_groupings
@both_weights
@pytest.mark.parametrize("k", [1000, 32_640, 32_641, 65_281])
def test_the_greatest_sums_are_exact(k: int, affine: bool, group: int) -> None:
    """Everything at an end of its range: nothing saturates or wraps."""
    ends = [-128, 127] if affine else [-127, 127]
    q = np.repeat(np.array([ends[0], ends[1], ends[0], ends[1]], np.int8), k).reshape(4, k)
    zero = np.array([127, -128, -128, 127], np.int32) if affine else None
    layer = statement.Layer(q, np.full(4, 1e-6, np.float32), zero, None, group)
    groups = len(statement.sections(k, group))
    x = np.repeat(np.array([255, 0, 255, 0], np.uint8), k).reshape(4, k)
    scale = np.full((4, groups), 0.01, np.float32)
    zeros = np.repeat(np.array([0, 255, 255, 0], np.int32), groups).reshape(4, groups)
    assert_states(packed(layer).quantized(x, scale, zeros), layer(x, scale, zeros))


def test_from_float_is_the_weight_quantizer() -> None:
    w = random_rows(6, 10)
    w[2] = 0
    layer = Linear.from_float(w)
    assert np.array_equal(
        layer.weight.scale, np.where(w.any(1), np.abs(w).max(1) / np.float32(127), 1)
    )
    assert np.array_equal(layer.weight.unpack(), np.rint(w / layer.weight.scale[:, None]))
    whole = Linear.from_float(w, per_channel=False)
    assert np.array_equal(whole.weight.scale, np.full(6, np.abs(w).max() / np.float32(127)))
    affine = Linear.from_float(w, symmetric=False, group=128, activation="gelu", bias=w[:, 0])
    assert affine.weight.zero_point is not None
    assert repr(affine) == ("Linear(10 -> 6, int8 affine, group=128, bias=True, activation=gelu)")


@both_groupings
@every_activation
def test_what_is_not_finite_stays_in_its_row(activation: str, group: int) -> None:
    for k in (5, 300, 40_000):
        layer = packed(random_layer(20, k, group=group, affine=True, activation=activation))
        x, residual = random_rows(9, k), random_rows(9, 20)
        clean = layer(x, residual)
        for row, value in [(2, np.nan), (4, np.inf), (8, -np.inf)]:
            x[row, k // 2] = value
        y = layer(x, residual)
        assert np.isnan(y[[2, 4, 8]]).all()
        others = [0, 1, 3, 5, 6, 7]
        assert_same_bits(y[others], clean[others])


@both_groupings
@pytest.mark.parametrize("k", [70, 300])
def test_a_row_does_not_depend_on_the_others(group: int, k: int) -> None:
    layer = packed(random_layer(80, k, group=group, affine=True, activation="silu"))
    x = random_rows(70, k)
    alone = np.concatenate([layer(x[m : m + 1]) for m in range(70)])
    for m in (*range(1, 36), 48, 64, 65, 70):
        assert_same_bits(layer(x[:m]), alone[:m])
    assert_same_bits(layer(x[::-1]), alone[::-1])


@pytest.mark.parametrize("shape", [(0, 5, 7), (3, 0, 7), (3, 5, 0), (0, 0, 0)], ids=str)
@both_groupings
def test_sizes_of_zero(shape: tuple[int, int, int], group: int) -> None:
    m, k, n = shape
    layer = packed(random_layer(n, k, group=group, affine=True))
    y = layer(np.ones((m, k), np.float32))
    assert (y.shape, y.dtype) == ((m, n), np.float32)
    if k == 0 and n:
        assert np.array_equal(y, np.broadcast_to(layer.bias, (m, n)))
    q, scale, zero = quantize_rows(np.ones((m, k), np.float32), group)
    assert_same_bits(layer.quantized(q, scale, zero), y)
    assert linear_together([layer, layer], np.ones((m, k), np.float32))[1].shape == (m, n)
    made = Linear.from_float(np.ones((n, k), np.float32))
    assert made(np.ones((m, k), np.float32)).shape == (m, n)


@both_groupings
@both_weights
def test_inputs_that_are_integers_already(affine: bool, group: int) -> None:
    for m, k, n in [(1, 1, 1), (1, 300, 40), (9, 129, 17), (40, 257, 70), (2, 40_000, 5)]:
        layer = packed(random_layer(n, k, group=group, affine=affine, activation="tanh"))
        x, residual = random_rows(m, k), random_rows(m, n)
        x[m // 2, 0] = np.nan
        q, scale, zero = quantize_rows(x, group)
        assert_same_bits(layer.quantized(q, scale, zero), layer(x))
        assert_same_bits(layer.quantized(q, scale, zero, residual), layer(x, residual))


@both_groupings
def test_layers_together_are_the_layers_one_by_one(group: int) -> None:
    layers = [
        packed(random_layer(n, 200, group=group, affine=n == 16, activation=activation, seed=n))
        for n, activation in [(40, "none"), (16, "gelu"), (1, "none"), (0, "none"), (70, "relu")]
    ]
    for m in (1, 5, 40):
        x = random_rows(m, 200).reshape(1, m, 200)
        for found, layer in zip(linear_together(layers, x), layers, strict=True):
            assert_same_bits(found, layer(x))
        wide = np.zeros((1, m, 140), np.float32)  # outputs may be columns of one array
        outs = [
            wide[..., 2:42],
            wide[..., 42:58],
            wide[..., 58:59],
            wide[..., :0],
            wide[..., 59:129],
        ]
        given = linear_together(layers, x, outs)
        assert all(a is b for a, b in zip(given, outs, strict=True))
        for out, layer in zip(outs, layers, strict=True):
            assert_same_bits(out, layer(x))
        assert not wide[..., :2].any() and not wide[..., 129:].any()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@both_groupings
def test_rows_of_16_bits(group: int, dtype: Any) -> None:
    for m, k, n in [(1, 300, 40), (9, 129, 17), (70, 64, 300), (3, 40_000, 5)]:
        layer = packed(random_layer(n, k, group=group, activation="gelu"))
        x = (random_rows(m, k + 3) / 1000).astype(dtype)[:, :k]
        residual = random_rows(m, n + 5).astype(dtype)[:, :n]
        y = layer(x.astype(np.float32))
        added = (y + residual.astype(np.float32)).astype(dtype)
        room = np.full((m, n + 2), 9, dtype)
        for threads in (1, 2):
            assert_same_bits(layer(x, threads=threads), y.astype(dtype))
            out = room[:, :n]
            assert_same_bits(layer(x, residual, out=out, threads=threads).copy(), added)
        assert (room[:, n:] == 9).all()
        assert_same_bits(linear_together([layer, layer], x)[1], layer(x))


def strided_inputs(x: np.ndarray) -> dict[str, np.ndarray]:
    m, k = x.shape
    found = {
        "byte-aligned": np.empty(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape),
        "4-byte-aligned": np.empty(x.size + 1, np.float32)[1:].reshape(x.shape),
        "every second input": np.full((m, 2 * k + 1), np.nan, np.float32)[:, ::2][:, :k],
        "part of wider rows": np.full((m, k + 7), np.nan, np.float32)[:, 3 : 3 + k],
        "records": np.empty(x.shape, np.dtype([("flag", "i1"), ("x", np.float32)]))["x"],
        "read-only": x.copy(),
    }
    for view in found.values():
        view[...] = x
    found["read-only"].flags.writeable = False
    return found | {
        "columns first": np.asfortranarray(x),
        "backwards": x[::-1].copy()[::-1],
        "subclass": x.view(np.matrix),
    }


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_inputs_of_every_layout() -> None:
    layer, x = packed(random_layer(20, 37)), random_rows(6, 37)
    expected = layer(x)
    for name, view in strided_inputs(x).items():
        assert np.array_equal(np.asarray(layer(view)), expected), name
    cube = random_rows(24, 37).reshape(2, 3, 4, 37)
    y = layer(cube)
    assert y.shape == (2, 3, 4, 20)
    for axes in itertools.permutations(range(3)):
        assert_same_bits(layer(cube.transpose(*axes, 3)), y.transpose(*axes, 3).copy())
    assert_same_bits(layer(cube[0, 0, 0]), y[0, 0, 0])
    assert_same_bits(layer(cube[:, 1:2]), y[:, 1:2].copy())
    assert_same_bits(layer(cube[:, :, 0]), y[:, :, 0].copy())
    same = layer(np.broadcast_to(x[0], (5, 37)))
    assert_same_bits(same, np.broadcast_to(expected[0], (5, 20)).copy())


@both_groupings
@both_weights
def test_live_scales_and_biases_lie_anywhere(group: int, affine: bool) -> None:
    """A front end's own vectors begin at any float, and each call reads what they hold then."""
    n, k = 64, 300
    layer = random_layer(n, k, group=group, affine=affine)
    weight, exact = pack(layer.q), packed(layer)
    assert Linear.reads_live(n)
    for at in (0, 1, 4, 8, 13):
        scale, bias = (aligned(4 * n + 64).view(np.float32)[at : at + n] for _ in "ab")
        live = Linear(PackedWeight(weight, n, k, scale, layer.zero, group), bias, live=True)
        scale[:], bias[:] = layer.scale, layer.bias
        for rows in (1, 6, 16, 48, 70):
            x = random_rows(rows, k)
            assert_same_bits(live(x), exact(x))


def test_outputs_and_residuals_in_place() -> None:
    layer, x = packed(random_layer(20, 37)), random_rows(6, 37)
    residual = random_rows(6, 20)
    expected, added = layer(x), layer(x, residual)
    room = np.full((6, 30), 7, np.float32)
    out = room[:, 4:24]
    assert layer(x, out=out) is out
    assert_same_bits(out.copy(), expected)
    assert (room[:, :4] == 7).all()
    assert (room[:, 24:] == 7).all()
    assert_same_bits(layer(x, residual.T.copy().T), added)
    assert_same_bits(layer(x, np.broadcast_to(residual[0], (6, 20))), expected + residual[0])
    assert layer(x, residual, out=residual) is residual
    assert_same_bits(residual, added)


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    layer, x, residual = packed(random_layer(20, 37)), random_rows(6, 37), random_rows(6, 20)
    expected = layer(x, residual)
    tensor, extra = torch.from_numpy(x), torch.from_numpy(residual)
    for view in (tensor, tensor.T.contiguous().T, tensor.clone().requires_grad_(True)):
        y = layer(view, extra)
        assert isinstance(y, torch.Tensor)
        assert_same_bits(y.numpy(), expected)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = (tensor / 1000).to(dtype)
        y = layer(narrow)
        assert y.dtype is dtype
        assert torch.equal(y, torch.from_numpy(layer(narrow.float().numpy())).to(dtype))
    made = Linear.from_float(tensor.bfloat16(), tensor[:, 0].half())
    again = Linear.from_float(tensor.bfloat16().float().numpy(), x[:, 0].astype(np.float16))
    assert_same_bits(made(tensor).numpy(), again(x))


@pytest.mark.parametrize(
    ("error", "named", "changed"),
    [
        (TypeError, "x: needs float32, float16 or bfloat16, not float64", {"x": X.astype(float)}),
        (TypeError, "x: needs float32.*, not >f4", {"x": X.astype(">f4")}),
        (TypeError, "x: is a list", {"x": X.tolist()}),
        (ValueError, r"x: needs shape \[\.\.\., 37\], not \(6, 36\)", {"x": X[:, 1:]}),
        (TypeError, "out: needs float32, as the input", {"out": OUT.astype("f2")}),
        (ValueError, r"out: needs shape \(6, 20\)", {"out": OUT[:, :1]}),
        (
            *(ValueError, "out: is read-only"),
            {"out": np.frombuffer(OUT.tobytes(), "f4").reshape(6, 20)},
        ),
        (ValueError, "out: strides .* contiguous last axis", {"out": np.asfortranarray(OUT)}),
        (ValueError, "out: strides .* no overlap", {"out": as_strided(OUT, (6, 20), (4, 4))}),
        (TypeError, "residual: needs float32, as the output", {"residual": OUT.astype("f2")}),
        (ValueError, r"residual: needs shape \(6, 20\)", {"residual": OUT[0]}),
        (ValueError, "threads: -1", {"threads": -1}),
        (
            *(ValueError, "out: shares memory with x"),
            {"x": ROOM[:222].reshape(6, 37), "out": ROOM[200:320].reshape(6, 20)},
        ),
        (
            *(ValueError, "out: shares part of its memory with residual"),
            {"residual": ROOM[:120].reshape(6, 20), "out": ROOM[20:140].reshape(6, 20)},
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    error: type[Exception], named: str, changed: dict[str, Any]
) -> None:
    arguments = {"x": X, "out": OUT, **changed}
    with pytest.raises(error, match=named):
        packed(random_layer(20, 37))(**arguments)
    assert (OUT == 7).all()
    assert (ROOM == 7).all()


def test_tensors_that_cannot_be_read_say_so() -> None:
    torch = pytest.importorskip("torch")
    zeros = torch.zeros(6, 37)
    for named, tensor in [
        ("x: is a strided tensor on meta", zeros.to("meta")),
        ("x: is a sparse_coo tensor on cpu", zeros.to_sparse()),
        ("x: is negated lazily", zeros.to(torch.complex64).conj().imag),
        (r"x: needs float32.*not torch\.int64", zeros.long()),
    ]:
        with pytest.raises(TypeError, match=named):
            packed(random_layer(20, 37))(tensor)


W = random_rows(4, 5)


@pytest.mark.parametrize(
    ("error", "named", "changed"),
    [
        (TypeError, "w: needs float32, not float64", {"w": W.astype(float)}),
        (ValueError, r"w: needs shape \[N, K\]", {"w": W.ravel()}),
        (ValueError, "w: channel 2 .* NaN", {"w": np.where(W[2, 1] == W, np.nan, W)}),
        (ValueError, r"bias: needs shape \(4,\)", {"bias": W[0]}),
        (TypeError, "bias: needs float32, not int64", {"bias": np.arange(4)}),
        (ValueError, "group: 32", {"group": 32}),
        (ValueError, "'gelutanh'. Did you mean 'gelu_tanh'", {"activation": "gelutanh"}),
    ],
)
def test_layers_that_cannot_be_made_say_so(
    error: type[Exception], named: str, changed: dict[str, Any]
) -> None:
    with pytest.raises(error, match=named):
        Linear.from_float(**{"w": W, **changed})


def test_integers_that_do_not_fit_are_refused() -> None:
    layer = packed(random_layer(20, 300, group=128))
    q, scale, zero = quantize_rows(random_rows(6, 300), 128)
    cases: list[tuple[type[Exception], str, tuple[Any, Any, Any]]] = [
        (TypeError, "q: needs uint8, not int8", (q.view(np.int8), scale, zero)),
        (ValueError, r"q: needs shape \[\.\.\., 300\]", (q[:, :200], scale, zero)),
        (ValueError, r"scale: needs shape \(6, 3\)", (q, scale[:, :1], zero)),
        (ValueError, r"zero_point: needs shape \(6, 3\)", (q, scale, zero[:, 0])),
        (TypeError, "zero_point: needs int32", (q, scale, zero.astype(np.uint8))),
        (ValueError, r"zero_point: .* 0\.\.255", (q, scale, zero + 256)),
    ]
    for error, named, arguments in cases:
        with pytest.raises(error, match=named):
            layer.quantized(*arguments)


def test_layers_that_do_not_go_together_say_so() -> None:
    one, other = packed(random_layer(4, 20)), packed(random_layer(4, 20, group=128))
    x, shared, wide = random_rows(2, 20), np.zeros((2, 4), np.float32), np.zeros((3, 8), np.float32)
    cases: list[tuple[str, list[Linear], list[np.ndarray] | None]] = [
        (r"same k and group, not \(k=20, group=0\), \(k=2", [one, other], None),
        ("layers: is empty", [], None),
        ("outs: 1 for 2 layers", [one, one], [shared]),
        (r"outs\[1\]: needs shape \(2, 4\)", [one, one], [shared, shared[0]]),
        (r"outs\[1\]: shares memory with outs\[0\]", [one, one], [shared, shared]),
        (r"outs\[2\]: .* outs\[1\]", [one] * 3, [shared, wide[:2, 1:5], wide[1:, 4:8]]),
    ]
    for named, layers, outs in cases:
        with pytest.raises(ValueError, match=named):
            linear_together(layers, x, outs)
    assert not shared.any()
    assert not wide.any()
