"""What octavo.torch.save writes, and that load gives the same model back."""

from __future__ import annotations

import copy
import errno
import io
import json
import os
import pickle
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import octavo.torch
from octavo.errors import ModelError, OutputError
from octavo.recipe import Scheme
from octavo.torch import load, quantize_dynamic, report, save
from octavo.torch.files.safetensors import read
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.registry import layer_classes
from octavo.torch.model_tensors import module_names, tensors_of
from tests import fresh
from tests.models import Twice, assert_bits, mlp
from tests.torch.saving import CASES, Stateful, Tied, net


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor that a model holds, by all its names."""
    return {item.name: item.tensor for item in tensors_of(module_names(model).modules)}


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture(scope="module", params=CASES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A case, its quantized model and the file of it."""
    case = CASES[request.param]
    model, path = case.quantized(), tmp_path_factory.mktemp("saved") / "m.safetensors"
    save(model, path)
    return case, model, path


def test_a_loaded_model_is_the_saved_one(saved: Any, tmp_path: Path) -> None:
    case, model, path = saved
    loaded = load(path, case.factory)
    assert not any(m.training for m in loaded.modules())
    assert report(loaded) == report(model)
    assert [type(m) for m in loaded.modules()] == [type(m) for m in model.modules()]
    assert loaded.state_dict().keys() == model.state_dict().keys()
    before, after = state_of(model), state_of(loaded)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert_bits(after[name], tensor)
        assert after[name].requires_grad == tensor.requires_grad, name
        assert after[name].stride() == tensor.stride(), name
        assert isinstance(after[name], nn.Parameter) == isinstance(tensor, nn.Parameter), name
    assert_bits(loaded(*case.inputs), model(*case.inputs))
    again = tmp_path / "m.safetensors"
    again.write_bytes(path.read_bytes())
    loaded = load(again, case.factory)
    save(loaded, again)  # over the file that it is mapped from
    assert again.read_bytes() == path.read_bytes()
    with torch.inference_mode():
        assert_bits(loaded(*case.inputs), model(*case.inputs))
    assert names(tmp_path) == ["m.safetensors"]


def test_any_safetensors_reader_reads_it_and_weights_are_aligned(saved: Any) -> None:
    case, model, path = saved
    stored = state_of(model)
    with safe_open(path, "pt") as file:
        said = json.loads(file.metadata()["octavo"])
        assert file.metadata()["format"] == "pt"
        assert set(file.keys()) | set(said["tensors"]) == set(stored)
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            assert_bits(file.get_tensor(name), stored[name].detach())
    assert said["report"] is not None
    assert said["recipe"] == report(model).recipe
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert (8 + length) % 64 == 0
    header = json.loads(raw[8 : 8 + length])
    del header["__metadata__"]
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert first % 64 == 0 or (last - first) % 64, name
    packed = [n for n in header if n.rpartition(".")[2].startswith("packed")]
    assert all(at % 64 == 0 for n in packed for at in header[n]["data_offsets"])
    loaded = load(path, case.factory)
    for item in tensors_of(module_names(loaded).modules):
        assert item.name not in packed or item.tensor.data_ptr() % 64 == 0


def test_tied_tensors_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model = CASES["tied"].quantized()
    save(model, tmp_path / "m.safetensors")
    _, stored = read(tmp_path / "m.safetensors")
    assert sum("packed" in name for name in stored) == 1
    loaded: Any = load(tmp_path / "m.safetensors", Tied)
    assert loaded.head.packed is loaded.other.packed

    class Untied(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.other = nn.Linear(64, 40, bias=False), nn.Linear(64, 40)

    loaded = load(tmp_path / "m.safetensors", Untied)
    assert loaded.head.packed is loaded.other.packed

    floats: Any = quantize_dynamic(nn.Sequential(Tied(), nn.Linear(40, 8)), {"1": Scheme()})
    save(floats, tmp_path / "f.safetensors")
    again: Any = load(tmp_path / "f.safetensors", lambda: nn.Sequential(Untied(), nn.Linear(40, 8)))
    assert again[0].head.weight is again[0].embed.weight is again[0].other.weight
    assert isinstance(again[0].head.weight, nn.Parameter)


def test_modules_in_several_places_stay_one(tmp_path: Path) -> None:
    save(CASES["twice"].quantized(), tmp_path / "m.safetensors")
    loaded: Any = load(tmp_path / "m.safetensors", Twice)
    assert loaded.first is loaded.again
    assert loaded.block is loaded.blocks[0] is loaded.blocks[2]
    assert isinstance(loaded.first, QuantizedLinear)

    def apart() -> nn.Module:
        model: Any = Twice()
        model.again, model.blocks[2] = nn.Linear(32, 32), copy.deepcopy(model.block)
        return model  # type: ignore[no-any-return]

    loaded = load(tmp_path / "m.safetensors", apart)
    assert loaded.first is loaded.again
    assert loaded.block is loaded.blocks[0] is loaded.blocks[2]


def test_attributes_and_non_persistent_buffers_are_included(tmp_path: Path) -> None:
    model: Any = CASES["stateful"].quantized()
    model.positions.mul_(3)
    model.frequencies.mul_(5)
    model.listed[2][1].mul_(7)
    model.by_name["a"].mul_(9)
    model.later = torch.arange(3)  # the factory's model has no such attribute
    model.listed.append(torch.ones(1))  # nor place: as a cache would grow
    save(model, tmp_path / "m.safetensors")
    loaded: Any = load(tmp_path / "m.safetensors", Stateful)
    assert_bits(loaded.positions, model.positions)
    assert "positions" not in loaded.state_dict()
    assert_bits(loaded.frequencies, model.frequencies)
    assert_bits(loaded.listed[2][1], model.listed[2][1])
    assert_bits(loaded.later, torch.arange(3))
    assert len(loaded.listed) == 3
    assert loaded.nothing is None
    x = CASES["stateful"].inputs[0]
    assert_bits(loaded(x), model(x))


def test_views_are_stored_by_their_values(tmp_path: Path) -> None:
    model: Any = CASES["mlp"].quantized()
    base, square = torch.arange(24.0).view(4, 6), torch.arange(9.0).view(3, 3)
    views = {
        "square": square,
        "square_across": square.t(),
        "wide": torch.ones(2, 1).expand(2, 5),
        "every_other": base[:, ::2],
        "last": base[3],
        "across": base.permute(1, 0),
        "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "negative": torch.randn(3, dtype=torch.complex64).conj(),
        "scalar": torch.tensor(3.5),
        "one": torch.ones(1, 1)[:, ::1],
    }
    vars(model[0]).update(views)
    save(model, tmp_path / "m.safetensors")
    loaded: Any = load(tmp_path / "m.safetensors", net)
    for name, view in views.items():
        assert torch.equal(getattr(loaded[0], name), view), name
    for name in ("across", "channels_last"):
        assert getattr(loaded[0], name).stride() == views[name].stride()


def test_a_report_keeps_what_json_has_no_number_for(tmp_path: Path) -> None:
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[127.0, 1, 2, 3], [0, 0, 0, 127]]))
    model = quantize_dynamic(layer)
    assert report(model).layers[0].sqnr_db == float("inf")
    save(model, tmp_path / "m.safetensors")
    assert report(load(tmp_path / "m.safetensors", lambda: nn.Linear(4, 2))) == report(model)


def test_a_wrapped_model_is_saved_without_a_report(tmp_path: Path) -> None:
    model = nn.Sequential(quantize_dynamic(net()), nn.Tanh())
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", lambda: nn.Sequential(net(), nn.Tanh()))
    x = CASES["mlp"].inputs[0]
    assert_bits(loaded(x), model(x))
    with pytest.raises(ModelError, match="Sequential has no report"):
        report(loaded)


def test_every_tensor_has_its_own_storage(tmp_path: Path) -> None:
    save(CASES["mlp"].quantized(), tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", net)
    for tensor in state_of(loaded).values():
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    x = CASES["mlp"].inputs[0]
    for again in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert_bits(again(x), loaded(x))
    buffer = io.BytesIO()
    torch.save(loaded[2].state_dict(), buffer)
    assert buffer.tell() < (tmp_path / "m.safetensors").stat().st_size


def test_writing_to_a_tensor_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save(CASES["stateful"].quantized(), path)
    before = path.read_bytes()
    loaded: Any = load(path, Stateful)
    with torch.no_grad():
        loaded.gain.fill_(7)
    loaded.norm.reset_running_stats()
    assert path.read_bytes() == before
    path.chmod(0o444)
    assert load(path, Stateful) is not loaded


def test_the_file_holds_no_float_weights_and_the_factory_makes_none(tmp_path: Path) -> None:
    devices = []

    def factory() -> nn.Module:
        model = nn.Sequential(nn.Linear(256, 1024), nn.Linear(1024, 64))
        devices.extend(p.device.type for p in model.parameters())
        return model

    save(quantize_dynamic(factory()), tmp_path / "m.safetensors")
    floats = 4 * (256 * 1024 + 1024 * 64)
    assert (tmp_path / "m.safetensors").stat().st_size < floats / 3
    devices.clear()
    load(tmp_path / "m.safetensors", factory)
    assert devices == ["meta"] * 4
    load(tmp_path / "m.safetensors", factory, skeleton="cpu")
    assert devices[4:] == ["cpu"] * 4


def test_hooks_of_the_factorys_layers_stay(tmp_path: Path) -> None:
    save(CASES["mlp"].quantized(), tmp_path / "m.safetensors")
    seen = []

    def factory() -> nn.Module:
        model = net()
        model[0].register_forward_hook(lambda *_: seen.append("first"))
        return model

    load(tmp_path / "m.safetensors", factory)(*CASES["mlp"].inputs)
    assert seen == ["first"]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    save(CASES["mlp"].quantized(), tmp_path / "m", progress=lambda *given: told.append(given))
    assert {stage for stage, _, _ in told} == {"writing"}
    assert [done for _, done, _ in told] == list(range(told[0][2]))


def large() -> Any:
    return mlp(1024, 1024, 1024)


def pages(path: str) -> dict[str, int]:
    """Kilobytes of this process's pages of a file, by what /proc says of them."""
    found: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()
        if "-" in head[0] and not head[0].endswith(":"):
            inside = line.rstrip().endswith(path)
        elif inside and head[1].isdigit():
            found[head[0]] = found.get(head[0], 0) + int(head[1])
    return found


def test_processes_share_the_pages(tmp_path: Path) -> None:
    path = str((tmp_path / "m.safetensors").resolve())
    save(quantize_dynamic(large()), path)
    loaded = load(path, large)
    loaded(torch.ones(3, 1024))
    code = f"""
        import json
        import torch
        from octavo.torch import load
        from tests.torch.files.test_torch_save import large, pages
        loaded = load({path!r}, large)
        loaded(torch.ones(3, 1024))
        print(json.dumps(pages({path!r})))
    """
    kilobytes = Path(path).stat().st_size // 1024
    second = json.loads(fresh.python(code).stdout)
    for found in (pages(path), second):
        assert found["Rss:"] > 0.9 * kilobytes
        assert found["Private_Dirty:"] == found["Shared_Dirty:"] == 0
        assert found["Private_Clean:"] + found["Shared_Clean:"] == found["Rss:"]
    assert second["Shared_Clean:"] > 0.9 * kilobytes, "the second process shares them"


class OwnLinear(nn.Linear):
    """A layer of a user's mapping that knows nothing of Octavo."""

    @classmethod
    def from_float(cls, module: nn.Linear) -> OwnLinear:
        return cls(module.in_features, module.out_features)


class OwnQuantized(QuantizedLinear):
    """One that does."""


@pytest.mark.parametrize("kind", [OwnLinear, OwnQuantized])
def test_a_layer_of_the_users_own_is_refused_by_name(kind: type, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 4))
    own = quantize_dynamic(model, mapping={**octavo.torch.default_mapping(), nn.Linear: kind})
    with pytest.raises(ModelError, match=rf"^0 is a .*{kind.__name__}, a layer of your own"):
        save(own, tmp_path / "m.safetensors")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("held_by", "name"),
    [
        ({"a.b": torch.ones(2)}, "0.table.a.b"),
        ({0: torch.ones(2), "0": torch.zeros(2)}, "0.table.0"),
        (dict.fromkeys((0, "0"), torch.ones(2)), "0.table.0"),
        ([1, {"x": {"y.": torch.ones(2)}}], "0.table.1.x.y."),
        ({"a": torch.empty(2, device="meta")}, "0.table.a"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "0.table.a.*complex128"),
        ({"a": torch.eye(2).to_sparse()}, "0.table.a.*sparse_coo"),
    ],
    ids=["dot", "equal as text", "one tensor twice", "deep", "meta", "complex", "sparse"],
)
def test_tensors_that_cannot_be_stored_are_named(held_by: Any, name: str, tmp_path: Path) -> None:
    model = CASES["mlp"].quantized()
    model[0].table = held_by
    with pytest.raises(ModelError, match=f"^{name}"):
        save(model, tmp_path / "m.safetensors")
    assert names(tmp_path) == []


def test_keys_with_dots_are_no_matter_where_no_tensor_is(tmp_path: Path) -> None:
    model = CASES["mlp"].quantized()
    model[0].table = {"a.b": "words", 0: torch.ones(2), "0": None}
    save(model, tmp_path / "m.safetensors")
    assert "0.table.0" in read(tmp_path / "m.safetensors")[1]


class Counting(nn.Module):
    """A module with state that is no tensor."""

    def get_extra_state(self) -> int:
        return 0


def test_state_beside_tensors_is_refused(tmp_path: Path) -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(4, 4), nn.Sequential(Counting())))
    with pytest.raises(ModelError, match=r"^1\.0 is a .*Counting, whose get_extra_state"):
        save(model, tmp_path / "m.safetensors")
    assert names(tmp_path) == []


class Interrupting:
    """A file that fails after so many bytes."""

    def __init__(self, file: BinaryIO, error: BaseException, left: int) -> None:
        self.file, self.error, self.left = file, error, left

    def __enter__(self) -> Interrupting:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: Any) -> int:
        self.left -= len(data)
        if self.left < 0:
            raise self.error
        return self.file.write(data)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    yield path
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["m.safetensors"]


@pytest.mark.parametrize("after", [0, 3000])
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), OutputError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
    ids=["no space", "ctrl-c", "no memory"],
)
def test_nothing_is_left_of_a_file_that_was_not_finished(
    error: BaseException, seen: type, after: int, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CASES["mlp"].quantized()
    open_file = Path.open

    def failing(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = open_file(path, mode, *args, **kwargs)
        return Interrupting(file, error, after) if mode == "wb" else file  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(seen):
        save(model, old)


def test_a_file_that_grows_too_large(old: Path) -> None:
    model = CASES["mlp"].quantized()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OutputError, match="raise the limit on file sizes"):
            save(model, old)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    model = CASES["mlp"].quantized()
    with pytest.raises(OutputError, match="is a directory; give a file name"):
        save(model, tmp_path)
    with pytest.raises(OutputError, match="does not exist; give one that is there"):
        save(model, tmp_path / "no" / "m.safetensors")


def test_an_existing_file_is_replaced_as_one(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save(CASES["mlp"].quantized(), path)
    loaded = load(path, net)
    save(CASES["accurate"].quantized(), path)
    x = CASES["mlp"].inputs[0]
    assert_bits(loaded(x), CASES["mlp"].quantized()(x))  # the old pages live on
    assert report(load(path, net)).recipe["name"] == "int8-accurate"


def test_quantized_modules_are_a_closed_set() -> None:
    found = layer_classes()
    assert {"QuantizedLinear", "QuantizedLSTM", "QuantizedEmbedding"} <= set(found)
    assert all(issubclass(kind, QuantizedModule) for kind in found.values())
    assert OwnQuantized not in found.values()


def test_default_devices_are_what_they_were_after_loading(tmp_path: Path) -> None:
    model = CASES["mlp"].quantized()
    save(model, tmp_path / "m")
    torch.set_default_device("cpu")
    try:
        with torch.device("cpu"):
            loaded, x = load(tmp_path / "m", net), CASES["mlp"].inputs[0]
            assert torch.equal(loaded(x), model(x))
            assert torch.empty(1).device.type == "cpu"
    finally:
        torch.set_default_device(None)
