"""The module computes what the package's own numpy code does, and its float figures hold."""

from __future__ import annotations

import ast
import os
import re
import types
import warnings
from typing import Any

import numpy as np
import pytest

from benchmarks.zoo import g2p
from benchmarks.zoo.fetch import fetch

pytestmark = pytest.mark.slow


def package() -> Any:
    """An instance of the package's own class; its module needs nltk and what nltk downloads."""
    folder = fetch("g2p-en") / "g2p_en"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an escape sequence that Python no longer likes
        tree = ast.parse((folder / "g2p.py").read_text())
        (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "G2p")
        code = compile(ast.Module([found], []), "g2p.py", "exec")

    names: dict[str, Any] = {"np": np, "os": os, "re": re, "dirname": str(folder)}
    names["cmudict"] = types.SimpleNamespace(dict=dict)
    names["construct_homograph_dictionary"] = dict
    exec(code, names)
    return names["G2p"]()


@pytest.mark.models
def test_the_module_is_the_packages_network() -> None:
    theirs, ours = package(), g2p.torch_model()
    assert tuple(theirs.graphemes) == g2p.GRAPHEMES
    assert tuple(theirs.phonemes) == g2p.PHONEMES
    others = ("o'clock", "pneumonoultramicroscopicsilicovolcanoconiosis")
    of = (*g2p.words()[:200], *(g2p.Word(letters, ()) for letters in others))
    wanted = [tuple(theirs.predict(word.letters)) for word in of]
    assert g2p.decode(ours, of) == wanted
    assert max(map(len, wanted)) == 20  # where the package stops


@pytest.mark.models
def test_float_figures() -> None:
    found = g2p.decode(g2p.torch_model())
    assert len(found) == g2p.COUNT
    assert g2p.phoneme_error_rate(found) == pytest.approx(0.09666, abs=2e-4)
    assert g2p.changed_words(found, found) == 0


def test_edits_are_counted() -> None:
    assert g2p.distance("kitten", "sitting") == 3
    assert g2p.distance("", "abc") == g2p.distance("abc", "") == 3
    assert g2p.distance(("AH0", "B"), ("AH1", "B")) == 1
    words = (g2p.Word("ab", ("AH0", "B")), g2p.Word("c", ("S", "IY1")))
    assert g2p.phoneme_error_rate([("AH0",), ("S", "IY1", "Z")], words) == 0.5
    assert g2p.changed_words([("AH0",), ("S",)], [("AH0",), ("Z",)]) == 1
