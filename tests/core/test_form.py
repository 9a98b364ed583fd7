"""The form of a file: words at the edges, members of enumerations inside."""

import json
import pickle

import pytest

from octavo.core.form import Cpu, Form, QuantFormat, Target
from octavo.errors import OptionError


def test_words_become_members_and_words_again() -> None:
    form = Form.of("native", "any", "qoperator")
    assert form == Form(Target.NATIVE, Cpu.ANY, QuantFormat.QOPERATOR)
    assert form.native and not form.qdq
    assert form.words == {"target": "native", "cpu": "any", "quant_format": "qoperator"}
    assert pickle.loads(pickle.dumps(form.at(17))).opset == 17


def test_a_member_prints_as_its_word_and_is_equal_to_it() -> None:
    assert f"{Target.NATIVE} {Target.NATIVE!s} {Target.NATIVE:>7}" == "native native  native"
    assert Target.NATIVE == "native"
    assert f"{Target.NATIVE!r}" == "'native'"
    assert json.dumps(Target.NATIVE) == '"native"'


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("nativ", "vnni", "qoperator"), r"target='nativ'\. Did you mean 'native'\?"),
        (("native", None, "qoperator"), "cpu=None"),
        (("native", "vnni", "qdq"), "quant_format='qdq'"),
    ],
)
def test_another_word_is_refused(words: tuple[str, str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        Form.of(*words)
