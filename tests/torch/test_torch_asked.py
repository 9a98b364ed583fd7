"""Types and names that ask for layers which have no quantized form."""

from typing import Any

import pytest
from torch import nn

from octavo.errors import OptionError
from octavo.torch import default_mapping, quantize_dynamic
from octavo.torch.qconfig import per_channel_dynamic_qconfig

OTHERS = (nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@pytest.mark.parametrize("kind", OTHERS)
def test_layers_without_a_quantized_form_are_refused(kind: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), kind(2, 3, 3))
    for spec in ({nn.Linear, kind}, {"1"}, {kind: per_channel_dynamic_qconfig}):
        with pytest.raises(OptionError, match=rf"asks for {kind.__name__} \(1\).*Conv1d, Conv2d"):
            quantize_dynamic(model, spec)
        assert type(model[1]) is kind


@pytest.mark.parametrize("kind", [*OTHERS, nn.LayerNorm])
def test_what_is_not_asked_for_stays_float(kind: Any) -> None:
    layer = kind(3) if kind is nn.LayerNorm else kind(2, 3, 3)
    made = quantize_dynamic(
        nn.Sequential(nn.Linear(4, 4), layer), {nn.Linear: per_channel_dynamic_qconfig, kind: None}
    )
    assert type(made[1]) is kind


def test_other_layers_with_weights_too() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(1, 4))
    with pytest.raises(OptionError, match=r"asks for LayerNorm \(1\) and GroupNorm \(2\)"):
        quantize_dynamic(model, {nn.Linear, nn.LayerNorm, nn.GroupNorm})


def test_containers_and_a_mapping_of_ones_own_are_heeded() -> None:
    class Own(nn.Module):  # type: ignore[misc]
        @classmethod
        def from_float(cls, module: nn.Module) -> nn.Module:
            return cls()

    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Conv3d(2, 3, 3), nn.ReLU())
    made = quantize_dynamic(
        model, {nn.Conv3d, "0", nn.ReLU}, mapping=default_mapping() | {nn.Conv3d: Own}
    )
    assert type(made[1]) is Own
    assert type(made[0][0]).__name__ == "QuantizedLinear"
