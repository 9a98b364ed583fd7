"""Names in tables: series as one row, long ones cut where they say least."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.results.names import WIDTH, by_reason, counted_reasons, in_series, shortened

BLOCKS = [f"/enc/layer.{i}/attention/self/{n}/MatMul" for i in range(6) for n in ("query", "key")]


def test_layers_of_blocks_are_one_row_each() -> None:
    found = in_series(BLOCKS, ["384x384"] * len(BLOCKS))
    assert [s.name for s in found] == [
        "/enc/layer.*/attention/self/query/MatMul",
        "/enc/layer.*/attention/self/key/MatMul",
    ]
    assert found[0].places == (0, 2, 4, 6, 8, 10)


def test_what_is_not_alike_is_another_row_and_two_are_named() -> None:
    names = ["/fc1", "/fc2", "/fc3", "/fc4", "/fc5"]
    found = in_series(names, ["a", "a", "a", "b", "b"])
    assert [s.name for s in found] == ["/fc*", "/fc4", "/fc5"]
    assert [s.name for s in in_series(["/l.1/fc1", "/l.2/fc1", "/l.3/fc1"], [0] * 3)] == [
        "/l.*/fc1"
    ]


def test_long_names_keep_their_end_from_a_boundary_on() -> None:
    name = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/Dense_0/einsum/Einsum"
    assert shortened([name], 40) == ["*/MagikaV2/Dense_0/einsum/Einsum"]
    assert shortened(["/short", name]) == [
        "/short",
        "*/pjit_get_logits_/MagikaV2/Dense_0/einsum/Einsum",
    ]


def test_names_of_one_end_keep_what_tells_them_apart() -> None:
    end = "/" + "x" * 30 + "/encoder/0/reparam_conv/Conv"
    names = [f"If_0_{branch}_branch" + "_in" * 20 + end for branch in ("then", "else")]
    assert shortened(names, 40) == [
        "If_0_t*/encoder/0/reparam_conv/Conv",
        "If_0_e*/encoder/0/reparam_conv/Conv",
    ]


@given(st.lists(st.text("ab/.1", min_size=1, max_size=90), min_size=1, max_size=12, unique=True))
def test_a_short_name_is_a_glob_of_its_name_alone(names: list[str]) -> None:
    for name, short in zip(names, shortened(names, 12), strict=True):
        assert [n for n in names if fnmatchcase(n, short)] == [name]
        assert len(short) <= max(12, len(name))


@given(st.lists(st.text("ab/.12", min_size=1, max_size=20), min_size=1, max_size=12, unique=True))
def test_every_layer_is_in_one_series_whose_glob_fits_it(names: list[str]) -> None:
    found = in_series(names, [0] * len(names))
    assert sorted(place for s in found for place in s.places) == list(range(len(names)))
    assert all(fnmatchcase(names[place], s.name) for s in found for place in s.places)


def test_reasons_that_differ_in_numbers_are_one() -> None:
    reasons = ["its table has 3072 bytes: below 16384", "a", "its table has 512 bytes: below 16384"]
    assert by_reason(reasons) == [
        ("its table has 512 to 3072 bytes: below 16384", [0, 2]),
        ("a", [1]),
    ]


@pytest.mark.parametrize("count", [1, 30])
def test_reasons_of_many_layers_are_a_line(count: int) -> None:
    said = counted_reasons(["Conv"] * count + ["Gemm"], ["slow"] * count + ["slow"])
    assert said == f"\n  {count} Conv, 1 Gemm: slow"


def test_the_width_is_one_that_fits_a_terminal_beside_figures() -> None:
    assert WIDTH < 60
