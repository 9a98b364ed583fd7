"""What is asked of every family, and which family is furthest from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from benchmarks.results import Row


class Aim(Enum):
    """What is measured, and the least that each family is to reach."""

    TORCH_OVER_AO = ("PyTorch: octavo int8 over torch.ao per channel", 1.35)
    TORCH_OVER_FLOAT = ("PyTorch: octavo int8 over float", 2.8)
    ONNX_OVER_PEERS = ("ONNX native over the best of ONNX Runtime int8 and OpenVINO", 1.25)
    EXPORTERS = ("ONNX native: fastest export's time as a share of the slowest's", 0.95)
    FUSED = ("ONNX native: share of the attentions that are one node", 1.0)
    WHISPER = ("Whisper encoder over the best of CTranslate2, OpenVINO, ONNX Runtime int8", 1.3)
    TOKEN_OVER_BF16 = ("Llama, one token: octavo int8 over torch bfloat16", 3.0)
    TOKEN_OVER_AO = ("Llama, one token: octavo int8 over torch.ao per channel", 1.5)
    MORE_THREADS = ("PyTorch: many threads over few", 1.0)
    SMOLLM_ONE = ("SmolLM2-135M, decode, one thread, over llama.cpp with 4 bits", 1.1)
    SMOLLM_TWO = ("SmolLM2-135M, decode, two threads, over llama.cpp with 4 bits", 0.9)

    @property
    def what(self) -> str:
        """The figure, in words."""
        return str(self.value[0])

    @property
    def least(self) -> float:
        """What is asked."""
        return float(self.value[1])


class Aims:
    """Collects figures from all sections."""

    def __init__(self) -> None:
        self._found: dict[Aim, dict[str, float]] = {}

    def add(self, aim: Aim, where: str, figure: float) -> None:
        """`where` says family, export and threads."""
        self._found.setdefault(aim, {})[where] = figure

    def take(self, other: Aims) -> None:
        """The figures of another collection too."""
        for aim, found in other._found.items():
            self._found.setdefault(aim, {}).update(found)

    def to_list(self) -> list[tuple[str, str, float | None]]:
        """Plain data for JSON, which has no NaN."""
        return [
            (aim.name, where, None if math.isnan(figure) else figure)
            for aim, found in self._found.items()
            for where, figure in found.items()
        ]

    @classmethod
    def from_list(cls, data: Sequence[Sequence[Any]]) -> Aims:
        """The inverse of `to_list`."""
        made = cls()
        for name, where, figure in data:
            made.add(Aim[name], where, math.nan if figure is None else figure)
        return made

    def rows(self, section: str) -> Iterator[Row]:
        """For each aim with figures the least of them, and how many places reach it."""
        for aim, found in self._found.items():
            known = {w: figure for w, figure in found.items() if not math.isnan(figure)}
            if not known:
                yield Row(aim.what, math.nan, "x", at_least=aim.least, section=section)
                continue
            where = min(known, key=lambda w: known[w])
            reached = sum(figure >= aim.least for figure in known.values())
            note = f"{where}; {reached} of {len(found)} reach it"
            yield Row(aim.what, known[where], "x", at_least=aim.least, section=section, note=note)
