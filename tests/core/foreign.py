"""Memory of another library: an object that says no more of itself than DLPack asks."""

from __future__ import annotations

from typing import Any


class Foreign:
    """`array` (or tensor) behind `__dlpack__`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()
