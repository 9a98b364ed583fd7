"""Observers of qconfigs: what torch.ao 2.13 gave, and their arguments.

`golden/record.py` of commit 50e4b228 recorded it, on x86.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import math
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo.errors import OptionError
from octavo.torch.qconfig import QConfig, observers
from octavo.torch.qconfig.observed import observe_weight
from octavo.torch.qconfig.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "observers.npz"
RANGED = [
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    HistogramObserver,
]
every_ranged = pytest.mark.parametrize("kind", RANGED)


@dataclass
class Case:
    kind: str
    arguments: dict[str, Any]
    tensor: str
    scale: np.ndarray
    zero_point: np.ndarray
    zero_dtype: str
    q: np.ndarray | None
    """The last of the tensors, as uint8 whatever the dtype."""

    @property
    def where(self) -> str:
        return f"{self.kind} {self.arguments} of {self.tensor!r}"


def read_golden() -> tuple[dict[str, list[np.ndarray]], list[Case]]:
    with np.load(GOLDEN) as data:
        stored = {name: data[name] for name in data.files}
    index = json.loads(str(stored["index"]))
    places = dict.fromkeys(stored, 0)

    def take(name: str, n: int) -> np.ndarray:
        places[name] += n
        return stored[name][places[name] - n : places[name]]

    tensors = {
        name: [take("input", math.prod(shape)).reshape(shape) for _ in range(count)]
        for name, count, shape in index["inputs"]
    }
    cases = [
        Case(
            kind,
            arguments,
            tensor,
            take("scale", n),
            take("zero_point", n),
            dtype,
            take("q", tensors[tensor][-1].size) if held else None,
        )
        for kind, arguments, tensor, n, held, dtype in index["cases"]
    ]
    assert all(places[name] == len(stored[name]) for name in ("input", "scale", "q"))
    return tensors, cases


TENSORS, CASES = read_golden()
KINDS = sorted({case.kind for case in CASES})


def made(case: Case) -> Any:
    return getattr(observers, case.kind)(**case.arguments)


def watched(observer: Any, arrays: list[np.ndarray]) -> Any:
    for array in arrays:
        x = torch.from_numpy(array)
        assert observer(x) is x
    return observer


def test_the_golden_file_is_all_there() -> None:
    assert len(CASES) == 1152
    assert {case.kind for case in CASES} == {kind.__name__ for kind in RANGED}
    assert {case.tensor for case in CASES} == set(TENSORS)


def observed(case: Case) -> tuple[Any, Any]:
    """The observer after all tensors, and the last of them as integers if the case has those."""
    *before, last = TENSORS[case.tensor]
    used = watched(made(case), before)
    if case.q is None:
        return watched(used, [last]), None
    found = observe_weight(QConfig(None, lambda: used), torch.from_numpy(last), "w")
    assert found.q.shape == last.shape
    return used, found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "HistogramObserver"])
def test_parameters_and_integers_have_the_bits_of_torch(kind: str) -> None:
    for case in (case for case in CASES if case.kind == kind):
        used, found = observed(case)
        scale, zero = used.calculate_qparams()
        assert scale.numpy().tobytes() == case.scale.tobytes(), case.where
        assert zero.numpy().astype(np.float32).tobytes() == case.zero_point.tobytes(), case.where
        assert str(zero.dtype) == case.zero_dtype, case.where
        if case.q is not None:
            assert found.q.tobytes() == case.q.tobytes(), case.where
            assert found.scale.tobytes() == case.scale.tobytes(), case.where
            assert found.zero_point.astype(np.float32).tobytes() == case.zero_point.tobytes()


def test_histograms_are_within_a_bin_of_torch() -> None:
    """Where torch.ao's float32 sums of cubed distances do not overflow."""
    for case in (case for case in CASES if case.kind == "HistogramObserver"):
        arrays = TENSORS[case.tensor]
        observer, found = observed(case)
        scale, zero = (x.numpy().astype(np.float64) for x in observer.calculate_qparams())
        steps = observer.quant_max - observer.quant_min
        lo, hi = min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
        assert (observer.min_val.item(), observer.max_val.item()) == (lo, hi)
        if case.tensor in ("huge", "overflowing"):
            continue
        bin_width = (hi - lo) / observer.bins
        off = np.abs(scale - case.scale)
        assert (off <= 2 * bin_width / steps + 1e-6 * scale).all(), case.where
        # zero = qmin - lo / scale: lo may be a bin off, too, and rounding adds a step.
        allowed = (bin_width + np.abs(zero - observer.quant_min) * off) / scale + 1
        assert (np.abs(zero - case.zero_point) <= allowed).all(), case.where
        if case.q is None:
            continue
        kept = np.int8 if case.arguments.get("dtype") == "qint8" else np.uint8
        q, theirs = (x.reshape(-1).astype(np.float64) for x in (found.q, case.q.view(kept)))
        moved = abs(1 / float(found.scale[0]) - 1 / float(case.scale[0]))
        moved = np.abs(arrays[-1].reshape(-1).astype(np.float64)) * moved
        off = abs(float(found.zero_point[0]) - float(case.zero_point[0])) + 1
        assert (np.abs(q - theirs) <= moved + off).all(), case.where


def test_a_histogram_of_huge_values_finds_a_range() -> None:
    """torch.ao finds scale 7.5e34, which clips four values in ten, and says nothing."""
    (huge,) = TENSORS["huge"]
    scale, _ = watched(HistogramObserver(), [huge]).calculate_qparams()
    assert float(scale) * 255 == pytest.approx(float(huge.max()) - float(huge.min()), rel=0.01)


def test_defaults_and_order_of_arguments_are_those_of_torch() -> None:
    observer = MinMaxObserver(torch.int8, torch.per_tensor_symmetric, False, -127, 127)
    assert (observer.dtype, observer.qscheme) == (torch.int8, torch.per_tensor_symmetric)
    assert (observer.quant_min, observer.quant_max, observer.reduce_range) == (-127, 127, False)
    assert (MinMaxObserver().dtype, MinMaxObserver().qscheme) == (
        torch.uint8,
        torch.per_tensor_affine,
    )
    assert PerChannelMinMaxObserver(1).ch_axis == 1
    assert PerChannelMinMaxObserver().qscheme == torch.per_channel_affine
    assert MovingAverageMinMaxObserver(0.5).averaging_constant == 0.5
    moving = MovingAveragePerChannelMinMaxObserver(0.5, 1, "int8", "per_channel_symmetric")
    assert (moving.averaging_constant, moving.ch_axis) == (0.5, 1)
    assert HistogramObserver(64).bins == 64
    assert MinMaxObserver(eps=0.25).eps.tolist() == [0.25]
    assert MinMaxObserver(is_dynamic=True).is_dynamic
    for kind in RANGED:
        assert kind(factory_kwargs={"device": "cpu", "dtype": torch.float32}).min_val.numel() <= 1


@pytest.mark.parametrize(
    ("dtype", "kept", "bounds"),
    [
        ("int8", torch.int8, (-128, 127)),
        ("qint8", torch.int8, (-128, 127)),
        (torch.uint8, torch.uint8, (0, 255)),
        ("quint8", torch.uint8, (0, 255)),
        *([(torch.qint8, torch.qint8, (-128, 127))] if hasattr(torch, "qint8") else []),
    ],
)
def test_dtypes_by_name(dtype: Any, kept: torch.dtype, bounds: tuple[int, int]) -> None:
    observer = MinMaxObserver(dtype)
    assert (observer.dtype, (observer.quant_min, observer.quant_max)) == (kept, bounds)


@every_ranged
def test_the_range_is_there_to_read_and_to_forget(kind: type) -> None:
    observer = kind()
    arrays = TENSORS["random"]
    before = watched(observer, arrays).calculate_qparams()
    channels = len(arrays[0]) if "Channel" in kind.__name__ else 1
    assert observer.min_val.numel() == observer.max_val.numel() == channels
    assert observer.min_val.min().item() == arrays[0].min()
    assert observer.max_val.max().item() == arrays[0].max()
    assert "min_val=" in repr(observer)
    watched(observer, [arrays[0] * 10])
    observer.reset_min_max_vals()
    assert [x.tolist() for x in watched(observer, arrays).calculate_qparams()] == [
        x.tolist() for x in before
    ]


def through_its_state(observer: Any) -> Any:
    file = io.BytesIO()
    torch.save(observer.state_dict(), file)
    file.seek(0)
    other = type(observer)()
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


def assert_alike(one: Any, other: Any) -> None:
    for a, b in zip(one.calculate_qparams(), other.calculate_qparams(), strict=True):
        assert torch.equal(a, b)
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])


@every_ranged
@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), through_its_state]
)
def test_copies_go_on_by_themselves(kind: type, clone: Any) -> None:
    observer = watched(kind(eps=1e-3), TENSORS["random"])
    other, more = clone(observer), TENSORS["random"][0] * 3
    assert_alike(other, observer)
    watched(other, [more])
    assert_alike(other, watched(kind(eps=1e-3), [*TENSORS["random"], more]))
    assert_alike(observer, watched(kind(eps=1e-3), TENSORS["random"]))


@every_ranged
def test_a_state_that_is_loaded_replaces_what_was_seen(kind: Any) -> None:
    saved = watched(kind(), TENSORS["random"])
    used = watched(kind(), [TENSORS["random"][0][:3] * 9])  # of fewer channels, too
    used.load_state_dict(saved.state_dict())
    assert_alike(saved, used)
    used.load_state_dict(kind().state_dict())
    with pytest.raises(ValueError, match="has observed nothing yet"):
        used.calculate_qparams()
    if "Channel" in kind.__name__:
        with pytest.raises(RuntimeError, match="size mismatch for min_val"):
            used.load_state_dict({**saved.state_dict(), "min_val": torch.tensor(0.0)})


@every_ranged
def test_a_state_of_torch_ao_is_read(kind: Any) -> None:
    x = torch.from_numpy(TENSORS["random"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip("torch.ao.quantization.observer")
        saved = getattr(theirs, kind.__name__)()
        saved(x)
        state = saved.state_dict()
    ours, same = kind(), watched(kind(), [x.numpy()])
    ours.load_state_dict(state)
    for a, b in zip(ours.calculate_qparams(), same.calculate_qparams(), strict=True):
        assert torch.allclose(a.float(), b.float(), rtol=2e-3, atol=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved.load_state_dict(ours.state_dict())
    assert torch.equal(saved.min_val, ours.min_val)


def test_a_range_set_from_outside_counts() -> None:
    class Percentile(MinMaxObserver):
        def forward(self, x: Any) -> Any:
            self.min_val.copy_(x.quantile(0.1))
            self.max_val.copy_(x.quantile(0.9))
            return x

    observer = Percentile.with_args(dtype="int8", qscheme="per_tensor_symmetric")()
    observer(torch.linspace(-1, 1, 101))
    assert observer.calculate_qparams()[0].item() == pytest.approx(0.8 / 127.5)


@every_ranged
def test_tensors_of_any_kind_are_seen_as_float32(kind: type) -> None:
    w = torch.tensor([[0.5, -1.0], [0.25, 2.0]])
    want = watched(kind(), [w.numpy()]).calculate_qparams()[0].tolist()
    for x in (w.double(), w.half(), w.bfloat16(), torch.nn.Parameter(w), w.t().contiguous().t()):
        observer = kind()
        assert observer(x) is x
        assert observer.calculate_qparams()[0].tolist() == want
        assert not observer.min_val.requires_grad
    observer(torch.zeros(0, 2))
    assert observer.calculate_qparams()[0].tolist() == want


@every_ranged
def test_what_cannot_be_observed(kind: type) -> None:
    observer = kind()
    with pytest.raises(ValueError, match=f"{kind.__name__} has observed nothing yet; call it"):
        observer.calculate_qparams()
    for value in (math.nan, math.inf, -math.inf, 1e300):  # the last is infinite in float32
        with pytest.raises(ValueError, match=r"cannot observe NaN or infinity: .* at index"):
            observer(torch.tensor([[1.0, value]], dtype=torch.float64))
    with pytest.raises(ValueError, match="has observed nothing"):
        observer.calculate_qparams()


def test_channel_axes() -> None:
    w = TENSORS["convolution"][0]
    last = watched(PerChannelMinMaxObserver(ch_axis=-1), [w])
    assert last.min_val.tolist() == w.min(axis=(0, 1, 2)).tolist()
    with pytest.raises(ValueError, match=r"ch_axis 4 is not an axis of shape \(4, 3, 2, 3\)"):
        watched(PerChannelMinMaxObserver(ch_axis=4), [w])
    with pytest.raises(ValueError, match="saw 3 channels along axis -1 before, now 2; call reset_"):
        watched(last, [w[..., :2]])


def test_moving_averages_follow_their_constant() -> None:
    def ends(constant: float, *arrays: list[float]) -> tuple[float, float]:
        observer = MovingAverageMinMaxObserver(constant)
        watched(observer, [np.array(array, np.float32) for array in arrays])
        return observer.min_val.item(), observer.max_val.item()

    assert ends(0.5, [0, 8], [-4, 4]) == (-2, 6)
    assert ends(1.0, [0, 8], [-4, 4]) == (-4, 4)
    with pytest.raises(ValueError, match="does not fit into float32"):
        ends(0.5, [-2, 6], [3e38, 3e38], [-3e38, -3e38])


def test_a_placeholder_looks_at_nothing() -> None:
    observer = PlaceholderObserver("float16", is_dynamic=True)
    x = torch.tensor([math.nan])
    assert observer(x) is x
    assert (observer.dtype, observer.is_dynamic) == (torch.float16, True)
    assert repr(observer) == "PlaceholderObserver(dtype=torch.float16, is_dynamic=True)"
    assert PlaceholderObserver().dtype == torch.float32
    assert PlaceholderObserver(compute_dtype=torch.int8).is_dynamic
    assert not observer.state_dict()
    observer.load_state_dict({})
    with pytest.raises(ValueError, match="PlaceholderObserver observes nothing"):
        observer.calculate_qparams()


INT8_RANGE = functools.partial(MinMaxObserver, "int8")
SYMMETRIC = functools.partial(MinMaxObserver, "uint8", "per_tensor_symmetric")
CHANNELS = PerChannelMinMaxObserver


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (MinMaxObserver, {"dtype": "int4"}, "dtype 'int4' .*Did you mean 'int8' or 'uint8'"),
        (MinMaxObserver, {"dtype": torch.int32}, r"dtype torch\.int32"),
        (CHANNELS, {"qscheme": "per_chanel_affine"}, "Did you mean 'per_channel_affine'"),
        (HistogramObserver, {"qscheme": torch.per_channel_affine}, r"torch\.per_channel_affine"),
        (CHANNELS, {"qscheme": "per_tensor_affine"}, "qscheme 'per_tensor_affine' is not"),
        (CHANNELS, {"dtype": "int8", "qscheme": "per_channel_affine_float_qparams"}, "not int8"),
        (MinMaxObserver, {"quant_min": -128, "quant_max": 127}, r"within 0\.\.255.*dtype int8"),
        (INT8_RANGE, {"quant_min": 1, "quant_max": 9}, "must hold 0"),
        (INT8_RANGE, {"quant_min": 0, "quant_max": 0}, "must hold 0"),
        (INT8_RANGE, {"quant_min": -8}, "quant_max None"),
        (SYMMETRIC, {"reduce_range": True}, "reduce_range .*symmetric uint8"),
        (MinMaxObserver, {"eps": -1.0}, r"eps -1\.0"),
        (MinMaxObserver, {"eps": math.nan}, "eps nan"),
        (MinMaxObserver, {"factory_kwargs": {"devise": "cpu"}}, "Did you mean 'device'"),
        (MinMaxObserver, {"factory_kwargs": {"dtype": torch.float64}}, r"torch\.float64"),
        (MovingAverageMinMaxObserver, {"averaging_constant": 0.0}, r"averaging_constant 0\.0"),
        (
            MovingAveragePerChannelMinMaxObserver,
            {"averaging_constant": 1.5},
            r"averaging_constant 1\.5",
        ),
        (HistogramObserver, {"bins": 1}, "bins 1"),
        (HistogramObserver, {"is_dynamic": True}, "is_dynamic=True"),
        (CHANNELS, {"is_dynamic": True}, "is_dynamic=True"),
        (MovingAverageMinMaxObserver, {"is_dynamic": True}, "is_dynamic=True"),
        (PlaceholderObserver, {"dtype": "float61"}, "Did you mean 'float16'"),
    ],
)
def test_arguments_that_cannot_be_kept_to(make: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make(**given)
