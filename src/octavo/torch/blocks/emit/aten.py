"""The readers of ATen operators, and of Octavo's own: what `reading` has for each name."""

from octavo.torch.blocks.emit import (
    aten_elements,
    aten_layers,
    aten_views,
)

__all__ = ["aten_elements", "aten_layers", "aten_views"]
