"""QConfigs: what they take, what they refuse, and `with_args`."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch

from octavo.errors import OptionError
from octavo.torch.qconfig import (
    QConfig,
    QConfigDynamic,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    per_channel_dynamic_qconfig,
)
from octavo.torch.qconfig.observers import (
    MinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

PRESETS = {
    "default": default_dynamic_qconfig,
    "per channel": per_channel_dynamic_qconfig,
    "float16": float16_dynamic_qconfig,
    "float qparams": float_qparams_weight_only_qconfig,
}
every_preset = pytest.mark.parametrize("qconfig", PRESETS.values(), ids=PRESETS)


@pytest.mark.parametrize(
    ("qconfig", "weight", "activation"),
    [
        (default_dynamic_qconfig, (torch.int8, torch.per_tensor_symmetric), (torch.uint8, True)),
        (per_channel_dynamic_qconfig, (torch.int8, torch.per_channel_symmetric),
         (torch.uint8, True)),
        (float16_dynamic_qconfig, (torch.float16, torch.per_tensor_affine), (torch.float16, True)),
        (float_qparams_weight_only_qconfig,
         (torch.uint8, torch.per_channel_affine_float_qparams), (torch.float32, False)),
    ],
    ids=PRESETS,
)  # fmt: skip
def test_presets_are_torchs(qconfig: QConfig, weight: tuple, activation: tuple) -> None:
    observer = qconfig.weight()
    assert (observer.dtype, observer.qscheme) == weight
    observer = qconfig.activation()
    assert type(observer) is PlaceholderObserver
    assert (observer.dtype, observer.is_dynamic) == activation


@every_preset
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))]
)
def test_copies_are_equal(qconfig: QConfig, clone: Any) -> None:
    other = clone(qconfig)
    assert type(other) is QConfig
    assert other == qconfig
    assert hash(other) == hash(qconfig)


def test_unlike_qconfigs_differ() -> None:
    assert len(set(PRESETS.values())) == len(PRESETS)
    assert default_dynamic_qconfig == QConfig(
        activation=default_dynamic_qconfig.activation,
        weight=MinMaxObserver.with_args(qscheme="per_tensor_symmetric", dtype="int8"),
    )


def test_a_qconfig_is_a_tuple_with_names() -> None:
    qconfig = QConfig(weight=MinMaxObserver, activation=PlaceholderObserver)
    activation, weight = qconfig
    assert (activation, weight) == (PlaceholderObserver, MinMaxObserver) == qconfig
    assert qconfig._replace(weight=PerChannelMinMaxObserver).weight is PerChannelMinMaxObserver
    assert repr(QConfig(None, MinMaxObserver.with_args(dtype="int8"))) == (
        "QConfig(activation=None, weight=MinMaxObserver.with_args(dtype='int8'))"
    )


def test_a_dynamic_qconfig_says_the_weight_only() -> None:
    qconfig = QConfigDynamic(weight=MinMaxObserver)
    assert qconfig == (torch.nn.Identity, MinMaxObserver)
    assert pickle.loads(pickle.dumps(qconfig)) == qconfig
    assert type(copy.deepcopy(qconfig)) is QConfigDynamic
    assert QConfigDynamic().weight is torch.nn.Identity


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"activation": torch.nn.Identity()}, "activation is an instance of Identity"),
        ({"weight": torch.int8}, r"weight torch\.int8 makes no observer"),
    ],
)
def test_instances_are_refused(given: dict[str, Any], message: str) -> None:
    for kind in (QConfig, QConfigDynamic):
        with pytest.raises(OptionError, match=f"^{kind.__name__}: {message}"):
            kind(**{"activation": PlaceholderObserver, "weight": MinMaxObserver} | given)


def test_with_args_chains_and_later_arguments_win() -> None:
    first = MinMaxObserver.with_args(dtype="int8", quant_min=-8)
    second = first.with_args(quant_min=-4, quant_max=3)
    observer = second()
    assert (observer.dtype, observer.quant_min, observer.quant_max) == (torch.int8, -4, 3)
    assert second(quant_max=7).quant_max == 7
    assert first.arguments == {"dtype": "int8", "quant_min": -8}
    assert second() is not second()
    assert second == MinMaxObserver.with_args(quant_max=3, quant_min=-4, dtype="int8")
    assert second != first
    assert hash(second) == hash(copy.deepcopy(second))


def test_with_args_of_arguments_that_have_no_hash() -> None:
    factory = MinMaxObserver.with_args(factory_kwargs={"device": "cpu"})
    assert pickle.loads(pickle.dumps(factory)) == factory
    assert len({factory, copy.deepcopy(factory)}) == 1


def test_with_args_of_users_classes() -> None:
    class Clipped(MinMaxObserver):
        def __init__(self, share: float = 0.5, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.share = share

    observer = Clipped.with_args(share=0.9, dtype="int8")()
    assert (observer.share, observer.dtype) == (0.9, torch.int8)
    assert QConfig(None, functools.partial(MinMaxObserver, dtype="int8")).weight().quant_max == 127
