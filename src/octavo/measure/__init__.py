"""What a model or a machine does: plain data, without a front end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.measure.benchmark import bench as bench

__all__ = ["bench"]


def __getattr__(name: str) -> object:
    if name != "bench":
        raise AttributeError(f"module 'octavo.measure' has no attribute {name!r}; it has {__all__}")
    from octavo.measure.benchmark import bench

    return bench
