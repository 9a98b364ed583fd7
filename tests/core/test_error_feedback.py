"""Error feedback: outputs on samples lose less, of whatever samples; bad ones are named."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from octavo.core.error_feedback import round_with_feedback
from octavo.core.group_rounding import round_groups
from octavo.core.kernels import GroupedWeight, WeightFormat

Float32 = npt.NDArray[np.float32]
FORMATS = [f for f in WeightFormat if f.group and f.bits == 4 and not f.minimum]


def _samples(k: int, seed: int = 0, count: int = 300) -> Float32:
    """Inputs that go together, and some that are much larger than others."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, k // 4)) @ rng.normal(size=(k // 4, k))
    sizes = np.exp(rng.normal(size=k))
    return ((mixed + 0.3 * rng.normal(size=(count, k))) * sizes).astype(np.float32)


def _weight(n: int, k: int) -> Float32:
    return (np.random.default_rng(1).standard_t(5, size=(n, k)) * 0.05).astype(np.float32)


def _output_error(w: Float32, held: GroupedWeight, x: Float32) -> float:
    return float(np.square(x.astype(np.float64) @ (w - held.dequantize()).T).sum())


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.value)
@pytest.mark.parametrize("k", [96, 200, 288], ids=["whole-groups", "short-group", "two-blocks"])
def test_outputs_lose_less_than_by_mean_squares(fmt: WeightFormat, k: int) -> None:
    w, x = _weight(40, k), _samples(k)
    hessian = (x.T @ x) / len(x)
    by_range = round_groups(w, fmt, search=False).weight
    by_moments = round_groups(w, fmt, hessian.diagonal().copy()).weight
    fed_back = round_with_feedback(w, fmt, hessian)
    seen = [_output_error(w, held, x) for held in (by_range, by_moments, fed_back.weight)]
    assert seen[2] < 0.6 * seen[1] < 0.6 * seen[0]
    held = fed_back.weight.dequantize()
    assert fed_back.noise == pytest.approx(np.square(w - held, dtype=np.float64).sum(), rel=1e-5)


def test_inputs_that_never_move_do_no_harm() -> None:
    w, x = _weight(8, 64), _samples(64)
    x[:, :40] = 0
    found = round_with_feedback(w, WeightFormat.INT4_32, (x.T @ x) / len(x))
    assert np.isfinite(found.weight.dequantize()).all()
    assert found.noise < 3 * round_groups(w, WeightFormat.INT4_32).noise
    nothing = round_with_feedback(w, WeightFormat.INT4_32, np.zeros((64, 64), np.float32))
    assert nothing.noise == pytest.approx(round_groups(w, WeightFormat.INT4_32).noise, rel=0.01)


@pytest.mark.parametrize("size", [1e-7, 1e6], ids=["tiny", "huge"])
def test_weights_of_any_size_keep_their_precision(size: float) -> None:
    w, x = _weight(8, 96), _samples(96)
    hessian = (x.T @ x) / len(x)
    usual = round_with_feedback(w, WeightFormat.INT4_32, hessian)
    found = round_with_feedback((w * size).astype(np.float32), WeightFormat.INT4_32, hessian)
    assert found.noise / found.signal == pytest.approx(usual.noise / usual.signal, rel=0.05)


def test_a_hessian_of_another_shape_or_with_nan_is_refused() -> None:
    w = _weight(4, 64)
    with pytest.raises(ValueError, match=r"hessian: needs shape \(64, 64\)"):
        round_with_feedback(w, WeightFormat.INT4_32, np.eye(32, dtype=np.float32))
    with pytest.raises(ValueError, match="hessian: holds NaN or infinity"):
        round_with_feedback(w, WeightFormat.INT4_32, np.full((64, 64), np.nan, np.float32))
