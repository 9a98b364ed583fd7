"""Transformers that no library names: PyTorch's own layers, and blocks as people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def transformer_encoder(width: int, layers: int, heads: int, inner: int) -> nn.Module:
    """`nn.TransformerEncoder`, norms first; called with `src` [batch, length, width]."""
    layer = nn.TransformerEncoderLayer(
        *(width, heads, inner), activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)


def transformer_decoder(width: int, layers: int, heads: int, inner: int) -> nn.Module:
    """`nn.TransformerDecoder`, norms last; `tgt` and `memory` are [batch, length, width]."""
    layer = nn.TransformerDecoderLayer(width, heads, inner, batch_first=True)
    return nn.TransformerDecoder(layer, layers)


class OwnBlocks(nn.Module):  # type: ignore[misc]  # PyTorch is Any here
    """Blocks in the manner of timm and of nanoGPT: one layer for q, k and v, scaled residuals."""

    def __init__(self, width: int, layers: int, heads: int, inner: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(OwnBlock(width, heads, inner) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, src: Tensor) -> Tensor:
        """[batch, length, width], both ways."""
        for block in self.blocks:
            src = block(src)
        done: Tensor = self.norm(src)
        return done


class OwnBlock(nn.Module):  # type: ignore[misc]
    """x + scale * attention(norm(x)), then the same of a gated feed-forward."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate_up, self.down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.scale_out = nn.Parameter(torch.ones(width))
        self.scale_down = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, width], both ways."""
        batch, length, width = x.shape
        qkv = self.qkv(self.first(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = x + self.scale_out * self.out(mixed)
        gate, up = self.gate_up(self.second(x)).chunk(2, dim=-1)
        return x + self.scale_down * self.down(functional.silu(gate) * up)
