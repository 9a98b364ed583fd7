"""`module:object`, for factories and `evaluate` callables alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.errors import InputDataError, ModelError, OctavoError, OptionError
from octavo.files.lookup import load_object


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_any_object_of_a_module_in_the_current_folder(folder: Path) -> None:
    (folder / "measuring_a.py").write_text("class A:\n    b = 7\ndef score(model): return 0.5\n")
    assert load_object("measuring_a:A.b", OptionError) == 7
    assert load_object("measuring_a:score", OptionError)(None) == 0.5


def test_an_installed_one() -> None:
    assert load_object("octavo.errors:OctavoError", ModelError) is OctavoError


@pytest.mark.parametrize("error", [OptionError, InputDataError])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("measuring_b:scroe", "measuring_b has no 'scroe'. Did you mean 'score'? Known: score."),
        ("measuring_c:score", "there is no module 'measuring_c', neither in the current folder"),
        ("measuring_b.py:score", "nor installed. Leave .py out."),
        ("score", "'score' names nothing; needs module:object"),
        (":score", "':score' names nothing"),
        ("measuring_b:", "'measuring_b:' names nothing"),
    ],
)
def test_what_does_not_exist(
    text: str, message: str, error: type[OctavoError], folder: Path
) -> None:
    (folder / "measuring_b.py").write_text("def score(model): return 0.5\n")
    with pytest.raises(error) as caught:
        load_object(text, error)
    assert message in str(caught.value)


def test_a_failure_inside_a_library_is_shown_where_the_module_calls_it(folder: Path) -> None:
    (folder / "measuring_d.py").write_text("import numpy\n\nx = numpy.zeros(-1).reshape(3)\n")
    with pytest.raises(OptionError, match=rf"ValueError: .* \({folder}/measuring_d.py:3, in <mod"):
        load_object("measuring_d:score", OptionError)
    (folder / "measuring_e.py").write_text("import json\n\njson.loads('')\n")
    with pytest.raises(OptionError, match=r"measuring_e fails: json\.decoder\.JSONDecodeErr"):
        load_object("measuring_e:score", OptionError)
