"""`torch.ops.octavo.*` check what they are given: exported programs call them with anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from octavo.torch.quantizer import Quantizer
from tests.torch.layers.cases import choice_of, quantized, rows
from tests.torch.layers.test_torch_experts import E, H, K, made

pytestmark = pytest.mark.usefixtures("one_registry")
REFUSALS = (IndexError, OverflowError, RuntimeError, TypeError, ValueError)
Call = tuple[Any, tuple[Any, ...]]


class Recorded(TorchDispatchMode):
    """Calls of Octavo's operators, which layers make where a mode is on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op.namespace == "octavo":
            self.calls.append((op, args))
        return op(*args, **(kwargs or {}))


def tied() -> nn.Module:
    choice = choice_of("default")
    return QuantizedPackedEmbedding.of(nn.Embedding(20, 8), choice, Quantizer(), "table")


INDICES = torch.tensor([[1, 2], [3, 4]])
BAGS = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])
SEQUENCE = rows(4, 3, 6)
EXPERTS = rows(3, H), torch.arange(3 * K).reshape(3, K) % E, torch.rand(3, K)
CALLS: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "linear": (lambda: quantized(nn.Linear(40, 24)), (rows(3, 40),)),
    "linear affine": (lambda: quantized(nn.Linear(40, 24), "affine"), (rows(3, 40),)),
    "linear of 4 bits": (lambda: quantized(nn.Linear(64, 24), "int4-32"), (rows(3, 64),)),
    "half_linear": (lambda: quantized(nn.Linear(40, 24), "float16"), (rows(3, 40),)),
    "conv of one axis": (lambda: quantized(nn.Conv1d(8, 6, 3)), (rows(2, 8, 9),)),
    "conv": (lambda: quantized(nn.Conv2d(8, 6, 3)), (rows(2, 8, 9, 9),)),
    "embedding": (lambda: quantized(nn.Embedding(20, 8)), (INDICES,)),
    "embedding of float zero points": (
        lambda: quantized(nn.Embedding(20, 8), "float qparams"),
        (INDICES,),
    ),
    "packed_embedding": (tied, (INDICES,)),
    "embedding_bag": (
        lambda: quantized(nn.EmbeddingBag(20, 8, mode="sum")),
        (*BAGS, torch.rand(4)),
    ),
    "embedding_bag of rows": (lambda: quantized(nn.EmbeddingBag(20, 8)), (INDICES,)),
    "embedding_bag of float zero points": (
        lambda: quantized(nn.EmbeddingBag(20, 8, mode="sum"), "float qparams"),
        (*BAGS, torch.rand(4)),
    ),
    "embedding_bag of float16": (
        lambda: quantized(nn.EmbeddingBag(20, 8, mode="sum"), "float16"),
        (*BAGS, torch.rand(4)),
    ),
    "recurrent": (lambda: quantized(nn.LSTM(6, 5, bidirectional=True)), (SEQUENCE,)),
    "recurrent with lengths": (
        lambda: quantized(nn.LSTM(6, 5, proj_size=3)),
        (pack_padded_sequence(SEQUENCE, [4, 3, 1]),),
    ),
    "recurrent with a state": (lambda: quantized(nn.GRU(6, 5)), (SEQUENCE, rows(1, 3, 5))),
    "experts": (lambda: quantized(made()), EXPERTS),
}
every_call = pytest.mark.parametrize("name", CALLS)


def recorded(name: str) -> Call:
    """The operator that a layer calls, and what it gives it."""
    layer, given = CALLS[name]
    module = layer()
    with torch.no_grad(), Recorded() as mode:
        module(*given)
    (call,) = mode.calls
    assert call[0]._opname == name.partition(" ")[0]
    return call


def numbers_of(call: Call) -> list[Tensor]:
    op, args = call
    found = op(*args)
    return [found] if isinstance(found, Tensor) else list(found)


def reshaped(x: Tensor) -> dict[str, Tensor]:
    if not x.numel():
        return {}
    return {
        "shorter": x[:-1],
        "empty": x[:0],
        "longer": torch.cat([x, x]),
        "deeper": x[None].clone(),
    }


def otherwise(x: Tensor) -> dict[str, Tensor]:
    """Other dtypes, and integers that no table has."""
    kinds = (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8)
    found = {str(kind): x.to(kind) for kind in kinds if kind is not x.dtype}
    if not x.is_floating_point() and x.dtype is not torch.uint8:
        found |= {str(n): torch.full_like(x, n) for n in (-1, 100, torch.iinfo(x.dtype).max)}
    return found


Changes = Callable[[Any], dict[str, Any]]


def changed(args: tuple[Any, ...], kind: type, changes: Changes) -> Iterator[tuple[str, Any]]:
    """The arguments with one of them, or of those in a list, changed in each way."""
    for i, value in enumerate(args):
        listed = isinstance(value, list | tuple)
        for j, one in enumerate(value if listed else [value]):
            if type(one) is not kind:
                continue
            for what, new in changes(one).items():
                put = [*value[:j], new, *value[j + 1 :]] if listed else new
                yield f"{i}.{j} {what}", (*args[:i], put, *args[i + 1 :])


MAY = {
    # Bags may be fewer; a table of 16-bit floats has no scales that say how many rows it has.
    "embedding_bag": r"1\.0 (shorter|empty)|3\.0 (shorter|longer)",
    "embedding": r"0\.0 .*",
    "packed_embedding": r"0\.0 .*",
}
"""Shapes that fit all the same, where they are others than the first argument's."""


@every_call
def test_other_shapes_are_refused(name: str) -> None:
    op, args = recorded(name)
    for what, given in changed(args, Tensor, reshaped):
        if re.fullmatch(MAY.get(op._opname, "-"), what) or what.startswith("0."):
            try:
                numbers_of((op, given))
            except REFUSALS:
                continue
        else:
            with pytest.raises(REFUSALS):
                numbers_of((op, given))
                pytest.fail(what)


@every_call
def test_other_numbers_are_refused_or_read_as_what_they_are(name: str) -> None:
    """No memory is read that is not there, whatever dtype, integer or word comes."""
    op, args = recorded(name)
    whole: Changes = lambda n: {str(m): m for m in (0, -1, n + 1, 2**40, 2**63 - 1)}  # noqa: E731
    ways = ((Tensor, otherwise), (int, whole), (bool, lambda b: {"not": not b}))
    for kind, changes in (*ways, (str, lambda word: {"word": f"{word}x"})):
        for _, given in changed(args, kind, changes):
            try:
                numbers_of((op, given))
            except REFUSALS:
                continue


@every_call
def test_gaps_change_nothing(name: str) -> None:
    op, args = recorded(name)
    wanted = numbers_of((op, args))

    def with_gaps(x: Tensor) -> dict[str, Tensor]:
        wide = x.new_full((*x.shape, 2), 3)
        wide[..., 0] = x
        return {"gaps": wide[..., 0]}

    for what, given in changed(args, Tensor, with_gaps):
        for found, exact in zip(numbers_of((op, given)), wanted, strict=True):
            assert torch.equal(found, exact), what


LENGTHS = {
    r"lengths: needs int64 on the CPU, not int32": torch.tensor([4, 3, 1], dtype=torch.int32),
    r"lengths: needs shape \[3\], not \[2\]": torch.tensor([4, 3]),
    r"lengths: holds 5, which is not in 0\.\.4, the steps": torch.tensor([4, 5, 1]),
    r"lengths: holds -1, which is not in 0\.\.4": torch.tensor([4, -1, 1]),
}


@pytest.mark.parametrize("message", LENGTHS)
def test_lengths_are_checked(message: str) -> None:
    op, args = recorded("recurrent with lengths")
    with pytest.raises((TypeError, ValueError), match=message):
        op(*args[:3], LENGTHS[message], *args[4:])


def test_weights_of_samples_are_checked() -> None:
    op, args = recorded("embedding_bag")
    with pytest.raises(ValueError, match=r"per_sample_weights: needs the shape of input, \(4,\)"):
        op(*args[:2], args[2][:2], *args[3:])
    with pytest.raises(TypeError, match=r"per_sample_weights: needs float32, not torch\.float16"):
        op(*args[:2], args[2].half(), *args[3:])


WRONG: dict[str, tuple[str, int, Callable[[Tensor], Tensor]]] = {
    r"packed: needs uint8, not int64": ("conv of one axis", 1, Tensor.long),
    r"packed: needs uint8, not float64": ("conv", 1, Tensor.double),
    r"scale: needs float32, not int64": ("conv", 2, Tensor.long),
    r"scale: needs shape \[20\], .* not \[19\]": (
        "embedding of float zero points",
        2,
        lambda x: x[:-1],
    ),
    r"zero_point: needs shape \[20\], .* not \[40\]": (
        "embedding_bag of float zero points",
        5,
        lambda x: torch.cat([x, x]),
    ),
    r"top_k_index: needs whole numbers": ("experts", 1, Tensor.float),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(message: str) -> None:
    name, place, change = WRONG[message]
    op, args = recorded(name)
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        op(*args[:place], change(args[place]), *args[place + 1 :])
