"""Convolutions keep the memory format channels_last, as torch's do."""

import pytest
import torch
from torch import nn

from octavo.torch import quantize_dynamic


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("way", ["eager", "compiled", "exported", "grad"])
def test_images_keep_their_memory_format(way: str, given: torch.memory_format) -> None:
    model = quantize_dynamic(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 3)), {nn.Conv2d})
    for dtype in (torch.float32, torch.bfloat16) if way == "eager" else (torch.float32,):
        x = torch.randn(2, 3, 9, 11).to(dtype).to(memory_format=given)
        expected = model(x.contiguous())
        if way == "compiled":
            torch._dynamo.reset()
            found = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
        elif way == "exported":
            found = torch.export.export(model, (x,)).module()(x)
        else:
            found = model(x.requires_grad_(way == "grad"))
        assert found.is_contiguous(memory_format=given)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(2, 1, 7, 7), (2, 3, 1, 1), (3, 9, 9)], ids=str)
def test_the_format_is_torchs_where_both_hold(shape: tuple[int, ...]) -> None:
    conv = nn.Conv2d(shape[-3], 4, 1)
    quantized = quantize_dynamic(nn.Sequential(conv), {nn.Conv2d})
    x = torch.randn(shape)
    assert quantized(x).stride() == conv(x).stride()
