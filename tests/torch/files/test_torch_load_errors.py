"""What octavo.torch.load says of files and models that tests/errors has no texts of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from octavo.errors import ModelError, OptionError
from octavo.torch import load, quantize_dynamic, save
from octavo.torch.files.safetensors import read
from tests.models import assert_bits


class Net(nn.Module):
    """A model of two quantized layers, a normalization and a buffer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(8, width), nn.Linear(width, 4)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("steps", torch.arange(3), persistent=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    save(quantize_dynamic(Net()), path)
    return path


def error_of(path: Path, factory: Callable[[], Any] = Net, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(path, factory, **options)
    message = str(caught.value)
    assert message.startswith((str(path), "model_factory"))
    return message.removeprefix(str(path))


def misfit_of(path: Path, factory: Callable[[], Any] = Net) -> str:
    """What does not fit, of a message that says so and what to do."""
    message = error_of(path, factory)
    assert message.startswith(" does not fit the model: ") and "Give the factory" in message
    return message.removeprefix(" does not fit the model: ").partition(". Give")[0]


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the file's header."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    new = path.with_suffix(".new")  # what is mapped must not change
    new.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    new.replace(path)


def rewrite_said(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes what the metadata say of the model."""

    def within(header: dict[str, Any]) -> None:
        said = json.loads(header["__metadata__"]["octavo"])
        change(said)
        header["__metadata__"]["octavo"] = json.dumps(said)

    rewrite(path, within)


def test_a_directory(tmp_path: Path) -> None:
    assert "from_pretrained" in error_of(tmp_path)


@pytest.mark.parametrize("kept", [0, 8, 2000, -1])
def test_a_file_that_is_cut_short(kept: int, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    said = "no safetensors file" if kept in (0, 8) else "cut short"
    assert said in error_of(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x08\x00\x00\x00\x00\x00\x00\x00{nojson}", "no JSON"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "is no safetensors file"),
    ],
)
def test_a_file_that_is_something_else(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    assert message in error_of(tmp_path / "m")


def test_a_file_that_another_writer_has_copied_is_read(path: Path) -> None:
    """Its data need not begin at multiples of 64, nor elements at multiples of their size."""
    metadata, tensors = read(path)
    expected = load(path, Net)
    rewrite(path, lambda header: header["__metadata__"].update(longer="."))
    x = torch.randn(2, 8)
    assert_bits(load(path, Net).query(x), expected.query(x))
    save_file({name: t.clone() for name, t in tensors.items()}, path, metadata)
    assert_bits(load(path, Net).query(x), expected.query(x))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said.pop("format"), "KeyError: 'format'"),
        (lambda said: said.pop("layers"), "'layers'"),
        (lambda said: said.update(version=None), "version: needs text, not None"),
        (lambda said: said.update(unknown=1), "'unknown'"),
        (lambda said: said["report"].pop("layers"), "report: KeyError('layers')"),
        (
            lambda said: said["report"]["layers"][0].update(sqnr_db=10**400),
            "report: TypeError('sqnr_db: needs a number",
        ),
        (lambda said: said.update(tensors={"norm.bias": "no.where"}), "no tensor 'no.where'"),
        (lambda said: said.update(strides={"norm.bias": [2]}), "'norm.bias' has strides [2]"),
        (
            lambda said: said.update(strides={"norm.bias": "ab"}),
            "strides.norm.bias: needs a list, not 'ab'",
        ),
        (lambda said: said.update(strides={"norm.bias": [0]}), "'norm.bias' has strides [0]"),
        (lambda said: said.update(strides={"norm.bias": [1, 1]}), "has strides [1, 1]"),
        (lambda said: said.update(frozen=[["x"]]), "frozen[0]: needs text, not ['x']"),
        (lambda said: said["layers"].update(query=3), "layers.query: needs a mapping, not 3"),
        (lambda said: said["layers"]["query"].update({"class": []}), "layers: 'query' is {'class'"),
        (lambda said: said["layers"]["query"].pop("class"), "layers: 'query' is {'config'"),
    ],
)
def test_damaged_metadata(
    change: Callable[[dict[str, Any]], object], message: str, path: Path
) -> None:
    rewrite_said(path, change)
    said = error_of(path)
    assert said.startswith(" is damaged") and message in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "F4"}, ": 'query.bias' has dtype 'F4'; known are BOOL, U8"),
        ({"shape": [17]}, " is damaged: 'query.bias' has 64 bytes for F32 [17]"),
        ({"shape": [-1]}, " is damaged: the header's entry for 'query.bias' is {"),
        ({"shape": "ab"}, " is damaged: the header's entry for 'query.bias' is {"),
        ({"data_offsets": [0, 64]}, " is damaged: "),
        ({"data_offsets": [10**12, 10**12 + 64]}, " is damaged: "),
    ],
)
def test_damaged_entries(change: dict[str, Any], message: str, path: Path) -> None:
    rewrite(path, lambda header: header["query.bias"].update(change))
    assert error_of(path).startswith(message)


@pytest.mark.parametrize("name", ["os.system", "torch.nn.Linear", "OSError", "Recorded"])
def test_a_file_names_layers_of_octavo_only(name: str, path: Path) -> None:
    called = []

    class Recorded(type(load(path, Net).query)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            called.append(args)

    rewrite_said(path, lambda said: said["layers"]["query"].update({"class": name}))
    assert f"query is a {name!r}, a layer that this Octavo" in error_of(path)
    assert called == []


def test_a_config_that_makes_no_layer(path: Path) -> None:
    rewrite_said(path, lambda said: said["layers"]["query"]["config"].update(colour="red"))
    assert error_of(path).startswith(" is damaged: query cannot be a QuantizedLinear of {")


def having(**parts: Any) -> Callable[[], Any]:
    """Net with other parts, or without those that are None."""

    def make() -> Any:
        model = Net()
        for name, part in parts.items():
            delattr(model, name) if part is None else setattr(model, name, part())
        return model

    return make


MISFITS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a module that it lacks": (
        having(query=None, queries=lambda: nn.Linear(8, 16)),
        ("lacks module query (near query: queries)",),
    ),
    "tensors that it lacks, or has": (
        having(norm=None, normal=lambda: nn.LayerNorm(16), steps=None),
        ("steps (near norm.weight: normal.weight", "it has normal.weight, normal.bias, which"),
    ),
    "many more": (
        having(more=lambda: nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))),
        ("it has more.0.weight, more.0.bias, more.1.weight", "and 3 more, which the file lacks"),
    ),
    "another shape": (having(norm=lambda: nn.LayerNorm(12)), ("norm.bias [12], [16] in the file",)),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_models_that_do_not_fit(misfit: str, path: Path) -> None:
    factory, said = MISFITS[misfit]
    message = misfit_of(path, factory)
    assert all(part in message for part in said)
    assert torch.get_default_device().type == "cpu"
    load(path, Net)  # an error leaves nothing behind


def test_a_quantized_layer_with_another_dtype(path: Path) -> None:
    rewrite(path, lambda header: header["query.scale"].update(dtype="I32"))
    assert "query.scale torch.float32 [16], torch.int32 [16] in the file" in misfit_of(path)


def test_a_bias_that_the_file_has_not(path: Path) -> None:
    make = having(norm=lambda: nn.LayerNorm(16, bias=False))
    plain = path.with_name("plain.safetensors")
    save(quantize_dynamic(make()), plain)
    assert misfit_of(plain) == "it has norm.bias, which the file lacks"
    filled = load(path, make)  # a parameter that is None has a place
    assert_bits(filled.norm.bias, torch.zeros(16))


def test_modules_that_are_one_there_and_two_in_the_file(path: Path) -> None:
    def twin(shared: bool) -> nn.Module:
        first = nn.Sequential(nn.Linear(4, 4))
        return nn.ModuleDict({"a": first, "b": first if shared else nn.Sequential(nn.Linear(4, 4))})

    save(quantize_dynamic(twin(shared=False)), path)
    assert "b is the module a there" in misfit_of(path, lambda: twin(shared=True))


def test_a_factory_that_needs_values(path: Path) -> None:
    def factory() -> nn.Module:
        model = Net()
        model.first = model.query.weight[0, 0].item()
        return model

    message = error_of(path, factory)
    assert f"RuntimeError: Tensor.item() cannot be called on meta tensors ({__file__}:" in message
    assert "skeleton='cpu'" in message
    expected, x = load(path, Net), torch.randn(2, 8)
    assert_bits(load(path, factory, skeleton="cpu").query(x), expected.query(x))


def test_a_factory_that_fails_everywhere(path: Path) -> None:
    def factory() -> nn.Module:
        raise LookupError("no config")

    assert "fails: LookupError: no config (" in error_of(path, factory, skeleton="cpu")


def test_an_open_file_in_place_of_a_path(path: Path) -> None:
    model = quantize_dynamic(Net())
    for call in (lambda file: load(file, Net), lambda file: save(model, file)):
        with path.open("rb") as file, pytest.raises(OptionError, match=r"^path is a .*; give a"):
            call(file)


def test_a_factory_that_is_none(path: Path) -> None:
    with pytest.raises(OptionError, match=r"model_factory: .*, not str"):
        load(path, "Net")  # type: ignore[arg-type]


def test_a_factory_that_asks_for_the_cpu_by_itself(path: Path) -> None:
    def factory() -> nn.Module:
        with torch.device("cpu"):
            return Net()

    assert "pass skeleton='cpu'" in error_of(path, factory)
    found, expected = load(path, factory, skeleton="cpu"), load(path, Net)
    x = torch.randn(2, 8)
    assert_bits(found.value(found.query(x)), expected.value(expected.query(x)))


@pytest.mark.parametrize("quantized", [False, True], ids=["float", "quantized"])
def test_a_factory_that_returns_a_model_which_was_there(quantized: bool, path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    ready = quantize_dynamic(model)
    save(ready, path)
    there = ready if quantized else model
    before = list(there)
    assert "a Sequential whose weights have values" in error_of(path, lambda: there)
    assert list(there) == before


class Settings:
    """No module, but with tensors."""

    def __init__(self) -> None:
        self.scale = torch.full((4,), 2.0)
        self.name = "settings"
        self.more = [torch.ones(2), {"deep": torch.ones(3)}]


class Configured(nn.Module):
    """A model that holds one."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 4))
        self.block.settings = Settings()  # type: ignore[assignment]
        self.torch, self.kind, self.call = torch, Settings, self.forward
        self.pairs = {(0, 1): torch.full((2, 4), 3.0)}

    def forward(self, x: torch.Tensor) -> Any:
        return self.block(x) * self.block.settings.scale + self.pairs[0, 1]


def test_tensors_in_objects_that_are_no_modules(path: Path) -> None:
    model = quantize_dynamic(Configured(), inplace=True)
    save(model, path)
    message = error_of(path, Configured)
    inside = "block.settings.scale, block.settings.more.0, block.settings.more.1.deep"
    assert message.startswith(f"model_factory makes pairs.(0, 1), {inside}, inside of an object")
    assert "skeleton='cpu'" in message
    x = torch.randn(2, 8)
    assert_bits(load(path, Configured, skeleton="cpu")(x), model(x))


def test_a_dict_of_the_factory_whose_key_holds_a_dot(path: Path) -> None:
    """As files have them that were made by other means."""
    dashed, dotted = (having(table=lambda key=k: {key: torch.ones(2)}) for k in ("a-b", "a.b"))
    save(quantize_dynamic(dashed()), path)
    rewrite(path, lambda header: header.update({"table.a.b": header.pop("table.a-b")}))
    rewrite_said(path, lambda said: said.update(attributes=["table.a.b"]))
    assert "holds a dot: table.a.b" in misfit_of(path, dotted)
