"""Rounding to groups: never worse than the plain way; with error feedback outputs lose less."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from octavo.core.error_feedback import round_with_feedback
from octavo.core.group_rounding import RoundedGroups, round_groups
from octavo.core.kernels import GroupedWeight, WeightFormat
from tests.core.tables import assert_all_same, on_every_table

Float32 = npt.NDArray[np.float32]
GROUPED = [f for f in WeightFormat if f.group and not f.minimum]
FOUR_BITS = [f for f in GROUPED if f.bits == 4]


def _weight(n: int = 24, k: int = 200, kind: str = "normal") -> Float32:
    rng = np.random.default_rng(0)
    w = rng.standard_t(3, size=(n, k)) if kind == "heavy" else rng.normal(size=(n, k))
    if kind == "outlier":
        w[:, ::37] *= 20
    if kind == "positive":
        w = np.abs(w)
    if kind == "few-values":
        w = np.sign(w) * (np.abs(w) > 0.5)
    return (w * 0.03).astype(np.float32)


def _plain_errors(w: Float32, bits: int, group: int, weights: Float32) -> npt.NDArray[np.float64]:
    """By group, the weighted squared error of round(w / scale), scale = float16(max|w| / qmax)."""
    most = 2 ** (bits - 1) - 1
    errors = []
    for i in range(0, w.shape[1], group):
        part = w[:, i : i + group].astype(np.float64)
        size = np.abs(part).max(axis=1, keepdims=True)
        scale = (size / most).astype(np.float16).astype(np.float64)
        scale[scale == 0] = 1
        off = part - np.clip(np.round(part / scale), -most, most) * scale
        errors.append((np.square(off) * weights[i : i + group]).sum(axis=1))
    return np.stack(errors, axis=1)


def _errors(w: Float32, held: GroupedWeight, weights: Float32) -> npt.NDArray[np.float64]:
    off = np.square(w - held.dequantize().astype(np.float64)) * weights
    group = held.format.group
    return np.stack(
        [off[:, i : i + group].sum(axis=1) for i in range(0, w.shape[1], group)], axis=1
    )


@pytest.mark.parametrize("fmt", GROUPED, ids=lambda f: f.value)
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "by-moments"])
@pytest.mark.parametrize("kind", ["normal", "heavy", "outlier", "positive", "few-values"])
def test_no_group_is_worse_than_by_its_largest_weight(
    fmt: WeightFormat, weighted: bool, kind: str
) -> None:
    w, k = _weight(kind=kind), 200
    moments = np.random.default_rng(3).chisquare(1, k).astype(np.float32) if weighted else None
    weights = np.maximum(moments / moments.mean(), 1e-3) if moments is not None else np.ones(k)
    found = _errors(w, round_groups(w, fmt, moments).weight, weights)
    plain = _plain_errors(w, fmt.bits, fmt.group, weights)
    if fmt.affine:  # it has steps of its own; a group alone may lose what others win
        found, plain = found.sum(), plain.sum()
    assert (found <= plain * (1 + 1e-4) + 1e-12).all()
    if kind == "normal" and fmt.bits == 4:
        assert found.sum() < 0.75 * plain.sum()


@pytest.mark.parametrize("fmt", GROUPED, ids=lambda f: f.value)
def test_every_instruction_set_and_number_of_threads_gives_the_same(fmt: WeightFormat) -> None:
    w = _weight(n=50, k=300, kind="heavy")
    moments = np.random.default_rng(3).chisquare(1, 300).astype(np.float32)
    first = round_groups(w, fmt, moments)
    on_every_table(lambda _: parts_of(round_groups(w, fmt, moments)), [1])
    parts = [round_groups(part, fmt, moments).weight.q for part in np.split(w, [7, 16, 33])]
    np.testing.assert_array_equal(np.concatenate(parts), first.weight.q)


def parts_of(found: RoundedGroups) -> list[npt.NDArray[np.generic] | None]:
    held, sums = found.weight, np.array([found.signal, found.noise])
    return [held.q, held.scale, held.zero, held.channel_scale, sums]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_16_bits_are_rounded_as_their_values_in_32(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    w = torch.from_numpy(_weight()).to(getattr(torch, dtype))
    found = round_groups(w, WeightFormat.INT4_32)
    assert_all_same(parts_of(found), parts_of(round_groups(w.float(), WeightFormat.INT4_32)))


def test_columns_of_a_larger_weight_are_read_where_they_lie() -> None:
    w = _weight(k=320)
    part = w[:, 64:256]
    found, copied = (round_groups(a, WeightFormat.INT4_64_AFFINE) for a in (part, part.copy()))
    assert_all_same(parts_of(found), parts_of(copied))


@pytest.mark.parametrize("fmt", [WeightFormat.INT4_32, WeightFormat.INT8_32_AFFINE])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e-3, 1.0, 1e5, 1e30])
def test_weights_of_any_size_keep_their_precision(fmt: WeightFormat, size: float) -> None:
    w = _weight()
    found, usual = round_groups(w * np.float32(size), fmt), round_groups(w, fmt)
    assert found.noise / found.signal == pytest.approx(usual.noise / usual.signal, rel=0.02)
    exponents = np.log2(found.weight.channel_scale.astype(np.float64))
    np.testing.assert_array_equal(exponents, np.round(exponents))
    scales = np.abs(found.weight.scale.astype(np.float32))
    assert scales.min() >= 2.0**-14
    assert np.isfinite(scales).all()


def test_zeros_stay_zeros() -> None:
    w = _weight()
    w[3], w[5, :64] = 0, 0
    for fmt in GROUPED:
        held = round_groups(w, fmt).weight.dequantize()
        assert not held[3].any()
        assert not held[5, :64].any()


@pytest.mark.parametrize("fmt", GROUPED, ids=lambda f: f.value)
def test_sums_are_those_of_the_weight(fmt: WeightFormat) -> None:
    w = _weight()
    found = round_groups(w, fmt)
    held = found.weight.dequantize().astype(np.float64)
    assert found.signal == pytest.approx(np.square(w, dtype=np.float64).sum(), rel=1e-6)
    assert found.noise == pytest.approx(np.square(w - held).sum(), rel=1e-5)


def _with(bad: float) -> Float32:
    w = _weight()
    w[17, 3] = bad
    return w


@pytest.mark.parametrize(
    ("w", "fmt", "moments", "named"),
    [
        *((_with(bad), "int4-32", None, "channel 17 .* NaN") for bad in (np.nan, np.inf, -np.inf)),
        (_weight(), "int8", None, "int8 has no groups"),
        (_weight(), "int4-32", np.ones(3, np.float32), r"moments: needs shape \(200,\)"),
        (_weight(), "int4-32", np.full(200, np.nan, np.float32), "moments: holds NaN"),
        (_weight(), "int4-32", np.full(200, -1, np.float32), "moments: .* below 0"),
    ],
)
def test_what_cannot_be_rounded_is_refused(
    w: Float32, fmt: str, moments: Float32 | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        round_groups(w, WeightFormat(fmt), moments)


def _samples(k: int, seed: int = 0, count: int = 300) -> Float32:
    """Inputs that go together, and some that are much larger than others."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, k // 4)) @ rng.normal(size=(k // 4, k))
    sizes = np.exp(rng.normal(size=k))
    return ((mixed + 0.3 * rng.normal(size=(count, k))) * sizes).astype(np.float32)


def _wide(n: int, k: int) -> Float32:
    return (np.random.default_rng(1).standard_t(5, size=(n, k)) * 0.05).astype(np.float32)


def _output_error(w: Float32, held: GroupedWeight, x: Float32) -> float:
    return float(np.square(x.astype(np.float64) @ (w - held.dequantize()).T).sum())


@pytest.mark.parametrize("fmt", FOUR_BITS, ids=lambda f: f.value)
@pytest.mark.parametrize("k", [96, 200, 288], ids=["whole-groups", "short-group", "two-blocks"])
def test_outputs_lose_less_than_by_mean_squares(fmt: WeightFormat, k: int) -> None:
    w, x = _wide(40, k), _samples(k)
    hessian = (x.T @ x) / len(x)
    by_range = round_groups(w, fmt, search=False).weight
    by_moments = round_groups(w, fmt, hessian.diagonal().copy()).weight
    fed_back = round_with_feedback(w, fmt, hessian)
    seen = [_output_error(w, held, x) for held in (by_range, by_moments, fed_back.weight)]
    assert seen[2] < 0.6 * seen[1] < 0.6 * seen[0]
    held = fed_back.weight.dequantize()
    assert fed_back.noise == pytest.approx(np.square(w - held, dtype=np.float64).sum(), rel=1e-5)


def test_inputs_that_never_move_do_no_harm() -> None:
    w, x = _wide(8, 64), _samples(64)
    x[:, :40] = 0
    found = round_with_feedback(w, WeightFormat.INT4_32, (x.T @ x) / len(x))
    assert np.isfinite(found.weight.dequantize()).all()
    assert found.noise < 3 * round_groups(w, WeightFormat.INT4_32).noise
    nothing = round_with_feedback(w, WeightFormat.INT4_32, np.zeros((64, 64), np.float32))
    assert nothing.noise == pytest.approx(round_groups(w, WeightFormat.INT4_32).noise, rel=0.01)


@pytest.mark.parametrize("size", [1e-7, 1e6], ids=["tiny", "huge"])
def test_fed_back_weights_of_any_size_keep_their_precision(size: float) -> None:
    w, x = _wide(8, 96), _samples(96)
    hessian = (x.T @ x) / len(x)
    usual = round_with_feedback(w, WeightFormat.INT4_32, hessian)
    found = round_with_feedback((w * size).astype(np.float32), WeightFormat.INT4_32, hessian)
    assert found.noise / found.signal == pytest.approx(usual.noise / usual.signal, rel=0.05)


def test_a_hessian_of_another_shape_or_with_nan_is_refused() -> None:
    w = _wide(4, 64)
    with pytest.raises(ValueError, match=r"hessian: needs shape \(64, 64\)"):
        round_with_feedback(w, WeightFormat.INT4_32, np.eye(32, dtype=np.float32))
    with pytest.raises(ValueError, match="hessian: holds NaN or infinity"):
        round_with_feedback(w, WeightFormat.INT4_32, np.full((64, 64), np.nan, np.float32))
