"""What layers read from a qconfig: integers, words, the activation's part; ours and torch.ao's."""

from __future__ import annotations

import functools
import math
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from octavo.core.kernels import quantize_weight
from octavo.core.qparams import Grid, QType
from octavo.errors import OptionError
from octavo.torch.qconfig import (
    QConfig,
    QConfigDynamic,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    per_channel_dynamic_qconfig,
)
from octavo.torch.qconfig.observed import (
    ActivationKind,
    activation_of,
    describe_weight,
    dtype_of,
    is_affine,
    observe_weight,
)
from octavo.torch.qconfig.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from tests import fresh
from tests.models import seeded as weight

DYNAMIC, FLOAT16, WEIGHTS_ONLY = ActivationKind


def of_weight(make: Any) -> QConfig:
    return QConfig(default_dynamic_qconfig.activation, make)


PER_TENSOR = of_weight(MinMaxObserver.with_args(dtype="uint8"))
PER_CHANNEL = of_weight(
    PerChannelMinMaxObserver.with_args(dtype="int8", qscheme="per_channel_affine", ch_axis=1)
)


def test_signal_and_noise_are_counted_as_in_the_core() -> None:
    w = weight(32, 64)
    qconfig = of_weight(
        PerChannelMinMaxObserver.with_args(
            dtype="int8", qscheme="per_channel_symmetric", quant_min=-127, quant_max=127
        )
    )
    before = w.clone()
    found = observe_weight(qconfig, torch.nn.Parameter(w), "w")
    assert torch.equal(w, before) and (found.axis, found.qmin, found.qmax) == (0, -127, 127)
    core = quantize_weight(w.numpy(), Grid.of(QType.INT8, symmetric=True), 0)
    assert found.scale.tolist() == core.qparams.scale.tolist()
    assert np.mean(found.q != core.q) < 0.01  # a reciprocal there, a division here
    assert found.signal == pytest.approx(core.signal, rel=1e-9)
    assert found.noise == pytest.approx(core.noise, rel=1e-3)


def test_layouts_and_dtypes_change_nothing() -> None:
    w = weight(5, 4, 3, 3).half().float()
    want = observe_weight(per_channel_dynamic_qconfig, w, "w").q
    for other in (w.double(), w.half(), w.contiguous(memory_format=torch.channels_last)):
        got = observe_weight(per_channel_dynamic_qconfig, other, "w").q
        assert got.flags.c_contiguous
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize(
    ("kind", "expected"), [(MinMaxObserver, 67), (PerChannelMinMaxObserver, 68)]
)
def test_torch_rounds_once_for_a_whole_tensor_and_twice_by_channel(
    kind: type, expected: int
) -> None:
    """quantize_per_tensor and quantize_per_channel of torch 2.13 on x86 gave these."""

    class Fixed(kind):
        def calculate_qparams(self) -> Any:
            return torch.tensor([0.1]), torch.tensor([100])

    w = torch.tensor([[-3.250000476837158]])  # -32.5 in float32 after the product, not before
    assert observe_weight(of_weight(Fixed), w, "w").q.tolist() == [[expected]]


def test_empty_weights() -> None:
    found = observe_weight(per_channel_dynamic_qconfig, torch.zeros(3, 0), "w")
    assert (found.q.shape, found.scale.tolist(), found.noise) == ((3, 0), [1, 1, 1], 0)
    assert observe_weight(default_dynamic_qconfig, torch.zeros(0, 4), "w").scale.tolist() == [1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_named(value: float) -> None:
    w = weight(3, 4)
    w[1, 2] = value
    for qconfig in (default_dynamic_qconfig, float_qparams_weight_only_qconfig):
        with pytest.raises(OptionError, match=r"^enc\.fc\.weight: .*NaN or infinity"):
            observe_weight(qconfig, w, "enc.fc.weight")


def test_a_range_that_overflows_is_named() -> None:
    w = torch.tensor([[3e38, -3e38]])
    with pytest.raises(OptionError, match=r"^fc: .*MinMaxObserver gives scale inf"):
        observe_weight(PER_TENSOR, w, "fc")
    assert observe_weight(default_dynamic_qconfig, w, "fc").q.tolist() == [[127, -128]]


class Wrong(PerChannelMinMaxObserver):
    def calculate_qparams(self) -> Any:
        return torch.ones(2), torch.zeros(2)


def broken() -> Any:
    raise NotImplementedError("no such thing")


def said(**given: Any) -> QConfig:
    """Of an observer that is no more than what it says."""
    return of_weight(lambda: SimpleNamespace(dtype="int8", **given))


@pytest.mark.parametrize(
    ("qconfig", "message"),
    [
        (float16_dynamic_qconfig, "float16"),
        (None, "None is no qconfig"),
        (getattr(torch, "qint8", "qint8"), "qint8 is no qconfig"),
        (of_weight(PerChannelMinMaxObserver.with_args(dtype="int8", ch_axis=2)), "ch_axis=2"),
        (of_weight(Wrong), "Wrong gives 2 scales and 2 zero points"),
        (of_weight(PlaceholderObserver.with_args(dtype="int8")), "PlaceholderObserver observes no"),
        (of_weight(broken), "no such thing"),
        (of_weight(torch.nn.Identity), "weight is Identity"),
        (of_weight(lambda: SimpleNamespace(dtype="quint4x2")), "quint4x2"),
        (of_weight(PlaceholderObserver), "'float32'. Did you mean 'float"),
        (said(qscheme="per_chanel_affine"), "Did you mean 'per_channel_affine'"),
        (
            said(qscheme="per_tensor_affine", quant_min=0, quant_max=255),
            "quant_min 0 and quant_max",
        ),
    ],
)
def test_qconfigs_that_make_no_integers(qconfig: Any, message: str) -> None:
    with pytest.raises(OptionError, match=r"^fc: ") as caught:
        observe_weight(qconfig, weight(3, 4), "fc")
    assert message in str(caught.value)


def test_no_weight_observer_means_the_default() -> None:
    w = weight(4, 5)
    got = observe_weight(QConfig(None, None), w, "w")
    assert got.q.tolist() == observe_weight(default_dynamic_qconfig, w, "w").q.tolist()


HISTOGRAM = HistogramObserver.with_args(dtype="int8", qscheme="per_tensor_symmetric")
REDUCED = MinMaxObserver.with_args(dtype="int8", reduce_range=True)
BFLOAT16 = PlaceholderObserver.with_args(dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("qconfig", "dtype", "words", "affine"),
    [
        (default_dynamic_qconfig, "int8", "int8 per tensor", False),
        (per_channel_dynamic_qconfig, "int8", "int8 per channel", False),
        (float16_dynamic_qconfig, "float16", "float16", False),
        (of_weight(BFLOAT16), "bfloat16", "bfloat16", False),
        (float_qparams_weight_only_qconfig, "uint8", "uint8 per channel, float zero points", True),
        (PER_TENSOR, "uint8", "uint8 per tensor, affine", True),
        (PER_CHANNEL, "int8", "int8 per channel of axis 1, affine", True),
        (of_weight(REDUCED), "int8", "int8 per tensor, affine, -64..63", True),
        (of_weight(HISTOGRAM), "int8", "int8 per tensor, HistogramObserver", False),
    ],
)
def test_words(qconfig: QConfig, dtype: str, words: str, affine: bool) -> None:
    assert (dtype_of(qconfig), describe_weight(qconfig)) == (dtype, words)
    assert is_affine(qconfig) is affine


INT8 = MinMaxObserver.with_args(dtype="int8")
HALF = PlaceholderObserver.with_args(dtype="float16")


def dynamic(make: Any = PlaceholderObserver, **given: Any) -> QConfig:
    return QConfig(make.with_args(**given), INT8)


@pytest.mark.parametrize(
    ("qconfig", "kind", "noted"),
    [
        (default_dynamic_qconfig, DYNAMIC, ()),
        (QConfig(None, INT8), DYNAMIC, ()),
        (QConfigDynamic(weight=INT8), DYNAMIC, ()),
        (dynamic(dtype="uint8"), DYNAMIC, ()),
        (dynamic(is_dynamic=True), DYNAMIC, ()),
        (dynamic(MinMaxObserver, is_dynamic=True), DYNAMIC, ()),
        (dynamic(dtype="int8", is_dynamic=True), DYNAMIC, ("uint8, not int8",)),
        (dynamic(HistogramObserver, reduce_range=True), DYNAMIC,
         ("HistogramObserver does not run", "0..255, not 0..127")),
        (dynamic(MovingAverageMinMaxObserver), DYNAMIC,
         ("MovingAverageMinMaxObserver does not run",)),
        (float16_dynamic_qconfig, FLOAT16, ()),
        (QConfigDynamic(weight=HALF), FLOAT16, ()),
        (QConfig(None, HALF), FLOAT16, ()),
        (QConfig(default_dynamic_qconfig.activation, HALF), FLOAT16, ("weights are float16",)),
        (float_qparams_weight_only_qconfig, WEIGHTS_ONLY, ()),
        (QConfig(PlaceholderObserver, INT8), WEIGHTS_ONLY, ()),
        (QConfig(HALF, INT8), WEIGHTS_ONLY, ()),
    ],
)  # fmt: skip
def test_activations(qconfig: QConfig, kind: ActivationKind, noted: tuple[str, ...]) -> None:
    found = activation_of(qconfig)
    assert found.kind is kind and bool(found.note) == bool(noted)
    assert all(part in found.note for part in noted)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (HALF.with_args(is_dynamic=True), "dtype float16, its weight int8"),
        (lambda: SimpleNamespace(dtype="uint8", scale=torch.ones(1)), "fixes its scale"),
        (lambda: SimpleNamespace(dtype=torch.int32), "SimpleNamespace with dtype 'int32'"),
        (torch.nn.ReLU, "ReLU with dtype 'None'"),
        (broken, "activation <function broken"),
    ],
)
def test_activations_that_mean_nothing_dynamic(activation: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        activation_of(QConfig(activation, INT8))


def test_nothing_loads_torch_ao_or_makes_a_quantized_tensor() -> None:
    script = """
import sys, warnings, torch
warnings.simplefilter("error")
before = {m for m in sys.modules if m.startswith("torch.ao")}
gone = "qint8 quint8 qint32 quint4x2 quint2x4 quantize_per_tensor quantize_per_channel".split()
gone += "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric".split()
gone += ["per_channel_affine_float_qparams"]
for name in gone:
    if hasattr(torch, name): delattr(torch, name)
import types, octavo
package = types.ModuleType("octavo.torch")  # these modules alone
package.__path__ = [octavo.__file__.replace("__init__.py", "torch")]
sys.modules["octavo.torch"] = package
from octavo.torch.qconfig import observers
from octavo.torch.qconfig import observed
from octavo.torch import qconfig
for q in (qconfig.default_dynamic_qconfig, qconfig.float_qparams_weight_only_qconfig):
    observed.observe_weight(q, torch.randn(3, 4), "w"), observed.describe_weight(q)
    observed.activation_of(q)
assert observers.MinMaxObserver().qscheme == "per_tensor_affine"
assert {m for m in sys.modules if m.startswith("torch.ao")} == before
"""
    fresh.python(script)


def test_torch_aos_own_objects_are_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao = pytest.importorskip("torch.ao.quantization")
        theirs = {
            "default": ao.default_dynamic_qconfig,
            "per channel": ao.per_channel_dynamic_qconfig,
            "float qparams": ao.float_qparams_weight_only_qconfig,
            "deprecated": ao.QConfigDynamic(weight=ao.default_weight_observer),
            "static": ao.get_default_qconfig("x86"),
            "fake": ao.default_weight_only_qconfig,
            "fake per channel": ao.QConfig(None, ao.default_per_channel_weight_fake_quant),
        }
        partial = functools.partial(ao.MinMaxObserver, dtype=torch.qint8, reduce_range=True)
        fixed = ao.QConfig(ao.default_fixed_qparams_range_0to1_observer, partial)
        half = ao.float16_dynamic_qconfig
        narrow = ao.float_qparams_weight_only_qconfig_4bit
    w = weight(6, 10)
    ours = dict.fromkeys(("default", "deprecated", "fake"), default_dynamic_qconfig)
    ours |= dict.fromkeys(
        ("per channel", "static", "fake per channel"), per_channel_dynamic_qconfig
    )
    ours["float qparams"] = float_qparams_weight_only_qconfig
    for name, qconfig in theirs.items():
        got, want = observe_weight(qconfig, w, "w"), observe_weight(ours[name], w, "w")
        assert got.scale.tobytes() == want.scale.tobytes(), name
        assert got.zero_point.tolist() == want.zero_point.tolist(), name
        assert got.q.tolist() == want.q.tolist(), name
        assert got.q.dtype == want.q.dtype, name
        assert describe_weight(qconfig).startswith(describe_weight(ours[name])), name
        assert activation_of(qconfig).kind is activation_of(ours[name]).kind, name
    reduced = observe_weight(of_weight(partial), w, "w")
    mine = observe_weight(of_weight(INT8.with_args(reduce_range=True)), w, "w")
    assert (reduced.qmin, reduced.qmax, reduced.q.tolist()) == (-64, 63, mine.q.tolist())
    assert (dtype_of(half), activation_of(half).kind) == ("float16", FLOAT16)
    with pytest.raises(OptionError, match="FixedQParamsObserver, which fixes its scale"):
        activation_of(fixed)
    with pytest.raises(OptionError, match="'quint4x2': weights of 4 bits"):
        dtype_of(narrow)
