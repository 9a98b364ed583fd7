"""Tables of families: figures stand in the line of their family and export, misses are bold."""

from __future__ import annotations

import math

import pytest

from benchmarks.families_table import TABLES
from benchmarks.results import Machine, Result, Row
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO
from benchmarks.variants import NATIVE, OPENVINO, QD_CHANNEL

pytestmark = pytest.mark.slow


def lines(table: str, *rows: Row) -> list[str]:
    machine = Machine("A Processor", (), 2, 2**34)
    result = Result("some", "Some", rows, machine, {}, "0123", False, "2026-11-26", "command")
    return TABLES[table](result)


def test_pytorch() -> None:
    one = "BERT: PyTorch, 1 thread"
    head, _, bert = lines(
        "torch",
        Row(f"{OCTAVO}: speed over {AO_CHANNEL}", 1.304, "x", at_least=1.35, section=one),
        Row(f"{OCTAVO}: speed over {FLOAT}", 4.1, "x", at_least=2.8, section=one),
        Row(f"{OCTAVO}: 1 - cosine with float", 0.00023, section=one),
        Row(f"{AO_CHANNEL}: 1 - cosine with float", math.nan, section=one, note="refused"),
    )
    assert head.startswith("| family | over torch.ao | over float | two threads")
    assert bert == "| BERT | **1.30** | 4.10 |  | 2.3e-04 |  |"


@pytest.mark.parametrize("export", ["torchscript eager", "dynamo sdpa"])
def test_exports_have_a_line_each(export: str) -> None:
    title = "ViT: ONNX, target native"
    *_, vit = lines(
        "onnx",
        Row(f"{export}: over {QD_CHANNEL}", 1.4, "x", section=f"{title}: speed, 1 thread"),
        Row(
            f"{export}: over the best", 1.2, "x", at_least=1.25, section=f"{title}: speed, 1 thread"
        ),
        Row(f"{export}: over {OPENVINO}", 1.2, "x", section=f"{title}: speed, 2 threads"),
        Row(f"{export}: {NATIVE}: 1 - cosine with float", 1e-4, section=f"{title}: what was made"),
    )
    name = export.replace(" ", ", ")
    assert vit == f"| ViT | {name} | **1.20** | 1.40 |  |  | 1.20 | 1.0e-04 |  |  |"
