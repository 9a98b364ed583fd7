"""Every key of the schema: with values that it takes, and with those that it does not."""

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ConfigError, OctavoError, listed
from octavo.tune import Config, load_config
from octavo.tune.inc.sections import dotted
from tests.tune.inc.config_cases import (
    MAPPING,
    NAME,
    REFUSED,
    Keys,
    Place,
    case,
    document,
    leaves,
    required,
    sections,
    unread,
    yaml_of,
)

SECTIONS = list(sections())
IDS = [dotted(place) or "root" for place, _ in SECTIONS]


def each_section(test: Any) -> Any:
    """A test of `place` and `kind`, for all sections; every fourth in `make test`."""
    return pytest.mark.sweep(4)(pytest.mark.parametrize(("place", "kind"), SECTIONS, ids=IDS)(test))


# Sections whose keys depend on each other: the values of one key at a time, and what goes with it.
WEIGHTS = ["0.25 0.75", "1, 0", [1, 2]]
PAIR = {"weight": WEIGHTS, "higher_is_better": ["True, False", [True, True]]}
TOGETHER: dict[Place, list[dict[str, Any]]] = {
    ("tuning", "accuracy_criterion"): [
        *({key: value} for key in ("relative", "absolute") for value in case(("", key))[0]),
        *({"relative": 0, "higher_is_better": value} for value in (True, False, "no")),
    ],
    **{
        ("tuning", key): [
            {"objective": "performance, modelsize", "weight": value} for value in WEIGHTS
        ]
        for key in ("multi_objectives", "multi_objective")
    },
    ("evaluation", "accuracy", "multi_metrics"): [
        {"topk": 5, "F1": {}, key: value} for key in PAIR for value in PAIR[key]
    ],
}


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "conf.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def error_of(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "")


def rows(place: Place, keys: list[str], which: int) -> list[dict[str, Any]]:
    """Each key with its first value that is valid (`which` 0) or not (1), with its second, ..."""
    lists = {key: list(case((*place, key))[which]) for key in keys}
    found = []
    while row := {key: values.pop(0) for key, values in lists.items() if values}:
        found.append(row)
    return found


@each_section
def test_every_key_takes_what_it_may(tmp_path: Path, place: Place, kind: Keys) -> None:
    for values in TOGETHER.get(place) or rows(place, leaves(kind), 0):
        text, _ = yaml_of(document(place, values))
        assert load(tmp_path, text).model_name


@each_section
def test_a_key_without_effect_takes_anything(tmp_path: Path, place: Place, kind: Keys) -> None:
    for value in (None, 3, "text", ["a"], {"a": {"b": 1}}):
        text, _ = yaml_of(document(place, dict.fromkeys(unread(kind), value)))
        if place not in TOGETHER:
            assert load(tmp_path, text).model_name


@each_section
def test_every_key_refuses_what_it_may_not(tmp_path: Path, place: Place, kind: Keys) -> None:
    keys = leaves(kind)
    wrong_value = rows(place, keys, 1)
    for key in keys:
        for extra in ((None, "value (nothing)"), (MAPPING, "value {'a': 1}")):
            row = next((row for row in wrong_value if key not in row), None)
            if row is None:
                wrong_value.append(row := {})
            row[key] = extra
    for row in wrong_value:
        text, lines = yaml_of(document(place, {key: value for key, (value, _) in row.items()}))
        messages = error_of(tmp_path, text).splitlines()
        assert len(messages) == len(row)
        in_order = sorted(row, key=lambda key: lines[(*place, key)])
        for key, message in zip(in_order, messages, strict=True):
            here = (*place, key)
            assert message.startswith(f"conf.yaml:{lines[here]}: {dotted(here)}: value "), text
            assert " is not " in message and "; allowed: " in message
            assert row[key][1] in message


@each_section
def test_an_unknown_key_is_refused_at_every_level(tmp_path: Path, place: Place, kind: Keys) -> None:
    known = list(kind)
    unknown = {"qqqq": 1, **({f"{known[0]}z": 1} if known else {})}
    text, lines = yaml_of(document(place, unknown))
    messages = error_of(tmp_path, text).splitlines()
    for key, message in zip(unknown, messages, strict=True):
        here = (*place, key)
        start = f"conf.yaml:{lines[here]}: {dotted(here)}: unknown key {key!r}; allowed: "
        assert message.startswith(start + (listed(known) or "none"))
        assert ("Did you mean" in message) == (key != "qqqq")
        assert key == "qqqq" or repr(known[0]) in message.partition("Did you mean")[2]


@each_section
def test_a_section_is_a_mapping_or_empty(tmp_path: Path, place: Place, kind: Keys) -> None:
    if not place:
        return
    *outer, last = place
    for value in ("text", ["a", "b"]):
        text, lines = yaml_of(document(tuple(outer), {last: value}))
        message = error_of(tmp_path, text)
        assert message.startswith(f"conf.yaml:{lines[place]}: {dotted(place)}: value ")
        assert "is not a section; allowed: a mapping with " in message
        assert listed(kind) in message
    needed = required(kind)
    text, lines = yaml_of(document(tuple(outer), {last: None}))
    if needed:
        message = error_of(tmp_path, text)
        for key in needed:
            start = f"conf.yaml:{lines[place]}: {dotted((*place, key))}: "
            assert f"{start}`{dotted(place)}` needs the key {key!r}; add it" in message
    elif place not in TOGETHER:
        assert load(tmp_path, text).model_name == "m"


@pytest.mark.parametrize("key", ["op_wise", "optype_wise"])
def test_names_of_operators_are_a_mapping_or_empty(tmp_path: Path, key: str) -> None:
    empty, _ = yaml_of(document(("quantization",), {key: None}))
    assert load(tmp_path, empty).entries == ()
    for value in (["conv"], "conv"):
        text, lines = yaml_of(document(("quantization",), {key: value}))
        message = error_of(tmp_path, text)
        line = lines["quantization", key]
        assert message.startswith(f"conf.yaml:{line}: quantization.{key}: value ")
        assert "is not a mapping; allowed: a mapping" in message


def test_a_name_in_op_wise_is_a_regular_expression(tmp_path: Path) -> None:
    place = ("quantization", "op_wise", "conv(")
    text, lines = yaml_of(document(place, {}))
    message = error_of(tmp_path, text)
    start = f"conf.yaml:{lines[place]}: quantization.op_wise['conv(']: value 'conv(' is not "
    assert message.startswith(start)
    assert "missing )" in message
    place = ("quantization", "optype_wise", "conv(")
    assert load(tmp_path, yaml_of(document(place, {}))[0])


@pytest.mark.parametrize("value", [None, {"train": {}}, "x"], ids=str)
@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.sweep(4)
def test_what_octavo_does_not_do_is_refused_by_name(tmp_path: Path, key: str, value: Any) -> None:
    text, lines = yaml_of(document((), {key: value}))
    message = error_of(tmp_path, text)
    line = lines[key,]
    assert message.startswith(f"conf.yaml:{line}: {key}: ")
    assert "take the section out" in message


def test_a_tagged_pruner_is_refused_as_pruning(tmp_path: Path) -> None:
    text = (
        "model: {name: m, framework: pytorch}\npruning:\n  approach:\n    weight_compression:\n"
        "      pruners:\n        - !Pruner\n            start_epoch: 0\n"
    )
    assert error_of(tmp_path, text).startswith("conf.yaml:2: pruning: ")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("model", "framework"), "engine", "give the model as ONNX"),
        (("model", "framework"), "NA", "say which framework"),
        (("model", "framework"), "onnxrt_qlinear", "'onnxrt_qlinearops'"),
        (("device",), "gpu", "for CPUs"),
        (("tuning", "strategy", "name"), "sigopt", "bayesian and tpe"),
        (("tuning", "strategy", "name"), "hawq_v2", "mse ranks layers"),
        (("tuning", "strategy", "name"), "automixedprecision", "no bfloat16 kernels"),
        (("tuning", "strategy", "name"), "basics", "'basic'"),
        (("quantization", "model_wise", "activation", "granularity"), "per_channel", "summed ov"),
        (("quantization", "optype_wise", NAME, "weight", "dtype"), "fp23", "'fp32'"),
        (("tuning", "objective"), "model_size", "'modelsize'"),
    ],
    ids=lambda value: dotted(value) if isinstance(value, tuple) else str(value)[:20],
)
def test_the_message_says_the_reason_and_the_way_out(
    tmp_path: Path, place: Place, value: str, words: str
) -> None:
    text, lines = yaml_of(document(place[:-1], {place[-1]: value}))
    message = error_of(tmp_path, text)
    assert message.startswith(f"conf.yaml:{lines[place]}: {dotted(place)}: value {value!r} is not ")
    assert "allowed: " in message and words in message


def test_the_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, OctavoError) and issubclass(ConfigError, ValueError)
    assert ConfigError.exit_code == 2
