"""What an inspection and a report say of a PyTorch model's weights."""

from __future__ import annotations

from torch import nn

from octavo.torch import inspect, quantize_dynamic, report
from tests.models import Tied


def test_shared_weights_count_once() -> None:
    table, square = 1000 * 64 * 4, 64 * 64 * 4
    tied = nn.Sequential(*Tied(1000, 64).children())
    found = inspect(tied)
    assert found.weight_bytes == (table, square, 0)
    done = report(quantize_dynamic(tied, recipe="int8"))
    assert [o.bytes_before for o in done.layers] == [table, square, 0]


def test_an_inspection_prints_as_a_table_without_shares_of_what_nobody_knows() -> None:
    text = str(inspect(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 8))))
    assert text.startswith("Sequential\n")
    assert "Leave float: a convolution of 8 outputs" in text
    assert "%" not in text and "MACs: multiply-accumulates" in text


def test_a_list_of_blocks_is_a_row_each_of_its_layers() -> None:
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    text = str(inspect(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)))
    assert "6  layers.*.linear1" in text and "6  layers.*.linear2" in text
    assert "layers.3.linear1" not in text
