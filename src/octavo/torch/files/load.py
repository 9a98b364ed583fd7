"""Builds a saved model again, over the mapped file."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.attention_type import AttentionType
from octavo.errors import ModelError, listed
from octavo.files.lookup import refuse_no_path
from octavo.torch.blocks.fast_path import leave_fast_paths
from octavo.torch.blocks.find import fused
from octavo.torch.files.factories import skeleton as make_skeleton
from octavo.torch.files.manifest import Manifest, check_tensors, make_layer, parse, report_of
from octavo.torch.files.safetensors import read
from octavo.torch.layers.base import REPORT, QuantizedModule
from octavo.torch.layers.other_savers import refuse_other_savers
from octavo.torch.layers.registry import layer_classes
from octavo.torch.model_tensors import (
    ModelTensor,
    module_names,
    set_tensor,
    tensors_of,
    unreached_tensors,
)
from octavo.torch.replace.user_attributes import carry_hooks, keep_own, settle_weight

_SHOWN = 5  # names in a message

Modules = dict[str, nn.Module]  # by name


def load(
    path: str | Path, model_factory: Callable[[], nn.Module], *, skeleton: str = "meta"
) -> nn.Module:
    """Load the model that `octavo.torch.save` wrote to `path`: the same bits, in eval mode.

    `model_factory()` makes a float model of the same structure, as `lambda: BertModel(config)`. It
    runs under `torch.device("meta")`, so that no float weight takes time or memory; with
    `skeleton="cpu"` it makes a real one, where it cannot do without. One that calls
    `from_pretrained` makes a real one too, whose float weights are read and let go again:
    `AutoModel.from_config(config)` spares that. Its layers are then replaced by the saved ones and
    all tensors refer to the file, which is mapped: processes on one host share the memory. Replace
    the file as `save` does, by another; never write into it.

    "The same bits" are those of parameters, buffers, and tensors that are attributes of modules or
    lie in lists, tuples and dicts that are. All else is as the factory makes it: numbers, other
    objects, tensors inside of those (these need `skeleton="cpu"`). What a list or dict had more
    than the factory's has, as a cache that has grown, is left out.

    On device meta the garbage collector of the process is off meanwhile.

    Nothing in the file is unpickled, imported or run. Raises ModelError for a file that is not
    whole or not from `save`, for a model that does not fit it, naming what differs, and for a
    factory that returns a model which was there before.
    """
    refuse_no_path(path, "path")
    path = Path(path)
    # Of tensors made in inference mode nobody can tell cheaply whether they were written to.
    quiet = _no_collection() if skeleton == "meta" else nullcontext()
    with torch.inference_mode(False), quiet:
        metadata, stored = read(path)
        manifest = parse(path, metadata)
        check_tensors(path, manifest, stored)
        report = report_of(path, manifest)
        model = make_skeleton(model_factory, skeleton)
        model, modules = _with_layers(path, model, manifest)
        _fill(path, modules, manifest, stored)
        _refuse_without_values(modules)
        leave_fast_paths(model)
        fused(model, AttentionType.stated(manifest.recipe or {}))
        refuse_other_savers(model, QuantizedModule)
    if report is not None:
        model.__dict__[REPORT] = report
    return model


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector: it would look through the new model several times, in vain."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _with_layers(path: Path, model: nn.Module, manifest: Manifest) -> tuple[nn.Module, Modules]:
    """Return `model` with the saved quantized layers in place, empty, and its modules by name.

    The model is another object where it is itself one of those layers.
    """
    known = layer_classes()
    lacking = []
    with torch.device("meta"):
        made = {n: make_layer(path, n, entry, known) for n, entry in manifest.layers.items()}
    for name, new in made.items():
        old = _child(model, name)
        if old is not None:
            _refuse_other_sizes(path, name, old, manifest.layers[name]["config"])
            settle_weight(old)
            keep_own(old, new)
            carry_hooks(old, new)
        elif not _has_attribute(model, name):
            lacking.append(name)
            continue
        model = _placed(model, name, new)
    for name, first in manifest.modules.items():
        module = _child(model, first)
        if module is None or _child(model, name.rpartition(".")[0]) is None:
            lacking.append(name)
        else:
            _placed(model, name, module)
    if lacking:
        raise _misfit(path, _lacks("module", lacking, _names(model)))
    model.eval()  # before modules are listed: one may exchange some of its own then
    found = module_names(model)
    if found.again != manifest.modules:
        name = next(iter(found.again.items() ^ manifest.modules.items()))[0]
        here, there = found.again.get(name, name), manifest.modules.get(name, name)
        raise _misfit(path, f"{name} is the module {here} there, {there} in the file")
    return model, found.modules


def _misfit(path: Path, what: str) -> ModelError:
    return ModelError(
        f"{path} does not fit the model: {what}. Give the factory of the model that was saved, "
        "of the same sizes"
    )


def _child(model: nn.Module, name: str) -> nn.Module | None:
    module: nn.Module | None = model
    for part in filter(None, name.split(".")):
        module = None if module is None else module._modules.get(part)
    return module


def _has_attribute(model: nn.Module, name: str) -> bool:
    """Tell whether something stands there that is no module, as the function of an activation."""
    parent_name, _, key = name.rpartition(".")
    return key in getattr(_child(model, parent_name), "__dict__", ())


def _placed(model: nn.Module, name: str, new: nn.Module) -> nn.Module:
    parent_name, _, key = name.rpartition(".")
    if not name:
        return new
    parent = _child(model, parent_name)
    assert parent is not None
    setattr(parent, key, new)
    return model


def _names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_modules(remove_duplicate=False)]


def _refuse_other_sizes(path: Path, name: str, old: nn.Module, config: Mapping[str, Any]) -> None:
    """Float layer and quantized one call the same sizes by the same names."""
    for key, value in config.items():
        here = getattr(old, key, value)
        if type(here) is int and type(value) is int and here != value:
            raise _misfit(
                path, f"{name or 'the model'} has {key} {here} there, {value} in the file"
            )


def _fill(path: Path, modules: Modules, manifest: Manifest, stored: dict[str, Tensor]) -> None:
    names = {name: name for name in stored} | manifest.tensors
    values = _StoredTensors(stored, manifest)
    in_excess, other_shapes, without_place = [], [], []
    for item in list(tensors_of(modules)):
        source = names.pop(item.name, None)
        if source is None or source not in stored:
            in_excess.append(item.name)
            continue
        tensor = values.get(source, item.name, item.role == "parameter")
        if item.role != "attribute" and not _alike(item, tensor):
            other_shapes.append(
                f"{item.name} {_form(item, item.tensor)}, {_form(item, tensor)} in the file"
            )
        if not set_tensor(item.module, item.key, tensor):
            without_place.append(item.name)
    lacking = []
    attributes = set(manifest.attributes)
    for name, source in names.items():
        if not _put_further(modules, name, values, source, name in attributes):
            lacking.append(name)
    problems = []
    if lacking:
        problems.append(_lacks("tensor", lacking, [item.name for item in tensors_of(modules)]))
    if in_excess:
        problems.append(f"it has {listed(in_excess, _SHOWN)}, which the file lacks")
    if other_shapes:
        problems.append(f"shapes differ: {listed(other_shapes, _SHOWN)}")
    if without_place:
        problems.append(f"a key of a dict holds a dot: {listed(without_place, _SHOWN)}; rename it")
    if problems:
        raise _misfit(path, "; ".join(problems))


def _refuse_without_values(modules: Modules) -> None:
    """Raise ModelError for tensors on device meta that no tensor of a file can replace."""
    names = [name for name, tensor in unreached_tensors(modules) if tensor.is_meta]
    if names:
        raise ModelError(
            f"model_factory makes {listed(names, _SHOWN)}, inside of an object that is no module, "
            "or under a key that is neither text nor integer: files do not hold such tensors, and "
            "on device meta they have no values. Pass skeleton='cpu', which keeps those of the "
            "factory, or register them as buffers of a module"
        )


def _alike(item: ModelTensor, tensor: Tensor) -> bool:
    """Quantized layers have one dtype, float ones that of the file."""
    if item.tensor.shape != tensor.shape:
        return False
    return item.tensor.dtype == tensor.dtype or not isinstance(item.module, QuantizedModule)


def _form(item: ModelTensor, tensor: Tensor) -> str:
    fixed = isinstance(item.module, QuantizedModule)
    return f"{tensor.dtype} {list(tensor.shape)}" if fixed else f"{list(tensor.shape)}"


def _put_further(
    modules: Mapping[str, nn.Module],
    name: str,
    values: _StoredTensors,
    source: str,
    attribute: bool,
) -> bool:
    """Put a tensor where the model has None, or as an attribute that the model makes later.

    Returns whether the model has a place for the tensor.
    """
    if attribute:
        owner = max((m for m in modules if name.startswith(f"{m}." if m else "")), key=len)
        key = name.removeprefix(owner).removeprefix(".")
        set_tensor(modules[owner], key, values.get(source, name, False))
        return True  # what a list has grown by since is a cache
    owner, _, key = name.rpartition(".")
    module = modules.get(owner)
    if module is None or key not in {*module._parameters, *module._buffers}:
        return False
    return set_tensor(module, key, values.get(source, name, key in module._parameters))


class _StoredTensors:
    """The file's tensors as a model takes them: one object for all the names of one tensor."""

    def __init__(self, stored: Mapping[str, Tensor], manifest: Manifest) -> None:
        self._stored, self._frozen = stored, set(manifest.frozen)
        self._strides = manifest.strides
        self._made: dict[tuple[str, bool, bool], Tensor] = {}

    def get(self, source: str, name: str, parameter: bool) -> Tensor:
        """Return the stored tensor `source` for the model's `name`, shared where `source` is."""
        trains = parameter and name not in self._frozen
        key = (source, parameter, trains)
        if key not in self._made:
            tensor = self._stored[source]
            if source in self._strides:
                tensor = torch.empty_strided(
                    tensor.shape, self._strides[source], dtype=tensor.dtype
                ).copy_(tensor)
            self._made[key] = nn.Parameter(tensor, requires_grad=trains) if parameter else tensor
        return self._made[key]


def _lacks(what: str, names: list[str], known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(names[0], known, n=3, cutoff=0.6)
    hint = f" (near {names[0]}: {', '.join(near)})" if near else ""
    return f"it lacks {what}{'' if len(names) == 1 else 's'} {listed(names, _SHOWN)}{hint}"
