"""Programs: every step beside PyTorch's, chains of them, memory, errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from octavo.core.program import Program  # noqa: E402
from tests.core.program_cases import (  # noqa: E402
    CASES,
    HEADS,
    LAYER,
    ROWS,
    layer,
    tensor,
)
from tests.core.tables import on_every_table  # noqa: E402
from tests.fresh import python  # noqa: E402


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if found.dtype is torch.float32:
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5, equal_nan=True)
    else:
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_a_step_computes_what_pytorch_does_on_every_table(name: str) -> None:
    case = CASES[name]

    def bits(threads: int) -> list[np.ndarray]:
        found = case.found(threads)
        if threads == 1:
            for one, expected in zip(found, case.expected(), strict=True):
                close(one, expected)
        return [one.contiguous().view(torch.uint8).numpy() for one in found]

    on_every_table(bits, (1, 2))


def test_outputs_are_tensors_of_their_own() -> None:
    """An input, a part of a result, one result twice, another order of axes."""
    p = Program()
    x = p.input(3)
    (y,) = p.linear(x, [LAYER.native])
    part = p.slice(y, 1, 1, 3)
    turned = p.permute(p.unary("neg", y), (2, 0, 1))
    for value in (x, y, y, part, turned):
        p.output(value)
    run = p.finish("outputs")
    found = run((ROWS,), (), 1)
    expected = layer(ROWS)
    stated = (ROWS, expected, expected, expected[:, 1:3], -expected.permute(2, 0, 1))
    for one, other in zip(found, stated, strict=True):
        assert torch.equal(one, other)
    assert found[4].stride() == (1, 240, 48)
    before = [one.clone() for one in found]
    for i, one in enumerate(found):
        one.fill_(i)
    for one, other in zip(run((ROWS,), (), 1), before, strict=True):
        assert torch.equal(one, other)


def test_memory_is_used_again_but_never_while_it_is_read() -> None:
    """A value that lives long beside many that do not, of changing sizes."""
    p = Program()
    x = p.input(2)
    early = p.unary("exp", x)
    value, kept = early, []
    for i in range(12):
        value = p.binary("add", p.unary("tanh", value), 0.5)
        if i % 3 == 0:
            kept.append(p.slice(value, 0, 0, None, 2))
    for one in (early, value, *kept):
        p.output(p.binary("mul", one, 1.0))
    run = p.finish("memory")
    for rows in (3, 50, 7, 1, 0):
        x_now = tensor(rows, 33)
        stated = [now := x_now.exp()]
        parts = []
        for i in range(12):
            now = now.tanh() + 0.5
            if i % 3 == 0:
                parts.append(now[::2])
        for found, wanted in zip(run((x_now,), (), 1), [*stated, now, *parts], strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "tensors,ints,named",
    [
        ((), (), "block: takes 2 tensors, not 0"),
        ((ROWS, ROWS), (), "block: takes 1 integers, not 0"),
        ((ROWS, 3), (1,), "block, input 1: needs a tensor"),
        ((ROWS, ROWS.double()), (1,), r"input 1: .* float32, not of torch.float64"),
        ((ROWS, ROWS[0]), (1,), "input 1: needs 3 axes, not 2"),
        ((ROWS, ROWS[:1, :3]), (1,), r"block, step 2 \(binary\): value 1, .*\[1, 3, 32\]"),
        ((ROWS[..., :31], ROWS), (1,), r"step 1 \(linear\): value 0, float32 \[2, 5, 31\]"),
        ((ROWS, ROWS), (-3,), r"step 4 \(reshape\)"),
    ],
)
def test_what_does_not_fit_is_named(tensors: Any, ints: Any, named: str) -> None:
    p = Program()
    x, y, n = p.input(3), p.input(3), p.input_int()
    rows = p.size(x, 0)
    p.linear(x, [LAYER.native])
    total = p.binary("add", x, y)
    p.compute("mul", rows, n)
    p.output(p.reshape(total, (n, -1)))
    with pytest.raises(ValueError, match=named):
        p.finish("block")(tensors, ints, 1)


@pytest.mark.parametrize(
    "add,named",
    [
        (lambda p, x: p.linear(9, [LAYER.native]), "linear: there is no value 9"),
        (lambda p, x: p.permute(x, (0, 1)), r"permute: value 0 \(float32 with 3 axes\)"),
        (lambda p, x: p.binary("pow", x, x), "binary pow: value 0"),
        (lambda p, x: p.unary("not", x), r"unary not: value 0 .* bool"),
        (lambda p, x: p.rotary(x, x, x), r"rotary: value 0 .* 4 axes"),
        (lambda p, x: p.linear(x, [LAYER.native], gate="silu"), r"linear: .* two layers"),
        (
            lambda p, x: p.linear(x, [LAYER.native], residual=x, span=[p.input(1, "int64")]),
            r"linear: .* span",
        ),
        (lambda p, x: p.gathered_product(p.squeeze(x, 0), x, x), r"gathered_product: .* three or"),
        (lambda p, x: p.gathered_product(x, x, x), r"gathered_product: value 0 .* int64"),
        (lambda p, x: p.linear(x, [LAYER.native], ["swish"]), "unknown activation 'swish'"),
        (lambda p, x: p.norm(x, None, None, 1e-5, "batch"), r"norm: .* 'batch'"),
        (lambda p, x: p.slice(x, 3, 0, 1), r"slice: value 0 .* axis 3"),
        (lambda p, x: p.compute("pow", 1, 2), "compute: 'pow'"),
        (lambda p, x: p.embedding(x, x), r"embedding: value 0 .* int64"),
    ],
)
def test_a_step_that_cannot_be_is_refused(add: Any, named: str) -> None:
    p = Program()
    with pytest.raises(ValueError, match=named):
        add(p, p.input(3))


def test_an_index_outside_of_its_tensor_is_named() -> None:
    p = Program()
    table, index = p.input(2), p.input(1, "int64")
    p.output(p.embedding(table, index))
    run = p.finish("table")
    assert torch.equal(run((tensor(4, 3), torch.tensor([-1])), (), 1)[0], tensor(4, 3)[3:])
    with pytest.raises(ValueError, match=r"table, step 0 \(embedding\): index 4 is outside of 4"):
        run((tensor(4, 3), torch.tensor([1, 4])), (), 1)


def test_an_index_outside_of_a_table_that_is_multiplied_is_named() -> None:
    p = Program()
    a, table, index = p.input(3), p.input(3), p.input(3, "int64")
    p.output(p.gathered_product(a, table, index))
    run = p.finish("table")
    for sizes, threads in (((2, 3, 4), 1), ((2, 3000, 64), 2)):  # a team's leader finds it too
        given = tensor(*sizes), tensor(2, 9, sizes[2]), torch.full((1, sizes[1], 2), 9)
        with (
            pytest.raises(ValueError, match=r"\(gathered product\): index 9 is outside of 9"),
            ThreadPoolExecutor(1) as fresh,  # no delay is known to it that keeps it from a team
        ):
            fresh.submit(run, given, (), threads).result()
    with pytest.raises(ValueError, match=r"does not index products of float32 \[2, 3, 4\]"):
        run((tensor(2, 3, 4), tensor(2, 9, 4), torch.full((1, 4, 2), 0)), (), 1)


def test_misaligned_and_empty_tensors() -> None:
    p = Program()
    x = p.input(2)
    p.output(p.softmax(p.norm(x, None, None, 1e-5, "layer")))
    run = p.finish("rows")
    memory = tensor(1000)
    for rows in (0, 1, 4):
        given = memory[1 : 1 + rows * 33].view(rows, 33)
        (found,) = run((given,), (), 1)
        torch.testing.assert_close(
            found, torch.nn.functional.layer_norm(given, (33,)).softmax(-1), atol=1e-6, rtol=1e-5
        )
    (none,) = run((memory[:0].view(3, 0),), (), 1)
    assert none.shape == (3, 0)


def test_a_copy_goes_into_the_memory_of_an_input() -> None:
    p = Program()
    fresh, cache, start = p.input(3), p.input(3), p.input_int()
    stop = p.compute("add", start, p.size(fresh, 1))
    p.copy_to(fresh, p.slice(cache, 1, start, stop))
    p.output(p.slice(cache, 1, 0, stop))
    rows, memory = tensor(2, 3, 4), tensor(2, 9, 4)
    wanted = memory.clone()
    wanted[:, 4:7] = rows
    (found,) = p.finish("cache")((rows, memory), (4,), 1)
    assert torch.equal(found, wanted[:, :7])
    assert torch.equal(memory, wanted)


def test_heads_of_attention_lie_side_by_side() -> None:
    p = Program()
    q = p.input(4)
    p.output(p.attention(q, q, q, 1.0))
    (found,) = p.finish("attention")((HEADS,), (), 1)
    assert found.transpose(1, 2).is_contiguous()


WITHOUT_EXCHANGE = """
import torch
del torch.Tensor.__dlpack_c_exchange_api__
from octavo.core.program import Program
p = Program()
x, i = p.input(3), p.input(1, "int64")
p.output(p.take(p.unary("neg", x), 1, i))
p.output(i)
run = p.finish("old")
x, i = torch.randn(3, 8, 2).transpose(1, 2), torch.tensor([1, 1, 0])
a, b = run((x, i), (), 1)
assert torch.equal(a, -x[:, i]) and torch.equal(b, i)
for wrong in (x.double(), x.to("meta")):
    try:
        run((wrong, i), (), 1)
    except ValueError as error:
        assert "old, input 0: needs a plain tensor of float32" in str(error), error
    else:
        raise AssertionError(wrong)
"""


def test_a_pytorch_without_the_exchange() -> None:
    """Before 2.10: its tensors are asked by their methods."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("every other test is this one")
    python(WITHOUT_EXCHANGE)


def test_threads_call_one_program_at_once() -> None:
    p = Program()
    x = p.input(3)
    (y,) = p.linear(p.norm(x, None, None, 1e-5, "layer"), [LAYER.native], ["gelu"])
    p.output(p.softmax(y))
    run = p.finish("shared")
    given = [tensor(2, rows, 32, seed=rows) for rows in (1, 40, 700)] * 8
    alone = [run((one,), (), 1)[0] for one in given]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda one: run((one,), (), 1)[0], given)]
    assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))
