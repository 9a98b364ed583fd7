"""A PyTorch model as tuning sees it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import octavo
from octavo.core.progress import quiet
from octavo.errors import OptionError
from octavo.recipe import PRESETS, Decision, Recipe, Scheme
from octavo.results.report import Report
from octavo.results.target import Built, Feed
from octavo.torch.model_tensors import module_names, tensors_of
from octavo.torch.quantize import check_float, quantize_dynamic, report
from octavo.torch.replace.convert import twin
from octavo.torch.replace.plan import Planner
from octavo.torch.reports import model_bytes
from octavo.torch.run.calls import Caller

_PLAIN = (bool, int, float, str, type(None))


class TorchTarget:
    """A float `nn.Module` (or `module:factory`, what a callable makes) and quantized forms of it.

    It is for `octavo.tune`, and all that tuning knows of PyTorch (`octavo.results.target.Target`).
    `example_inputs` are a tuple of forward's arguments, or a dict by their names, after which
    inputs are made up where there are no others.

    The model must not change while it is tuned. A module is never changed itself, nor put into eval
    mode: where it is in training mode, what runs are modules of our own over its parameters. It is
    pickled as it is, a factory as its name.

    Raises OptionError for what is no module, ModelError for a factory or a model that cannot be
    used, AlreadyQuantizedError; of a factory's model the first time that it is needed.
    """

    output_suffix = ".safetensors"
    threads: int | None = None

    def __init__(
        self,
        model: nn.Module | str,
        *,
        example_inputs: tuple[Any, ...] | dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(model, str):
            check_float(model)
        given = () if example_inputs is None else example_inputs
        if not isinstance(given, (tuple, list, Mapping)):
            raise OptionError(
                f"example_inputs is a {type(given).__name__}; needs a tuple of forward's "
                "arguments, or a dict by their names"
            )
        by_name = given if isinstance(given, Mapping) else {str(i): v for i, v in enumerate(given)}
        self._given = model
        self._example: dict[str, Any] = dict(by_name)
        self._found: _Found | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None}

    @property
    def label(self) -> str:
        """The factory's name, or the module's type."""
        return self._given if isinstance(self._given, str) else type(self._given).__name__

    def fingerprint(self) -> str:
        """Return a digest of the model's types, settings and tensors, our version and PyTorch's."""
        return _fingerprint(self._model.module)

    def decisions(self, recipe: Recipe) -> Sequence[Decision]:
        """Return what `build(recipe)` would hold, layer by layer; as `octavo.torch.inspect` has it.

        Raises RecipeError for a rule whose name matches no layer.
        """
        return self._model.layers.decisions(recipe)

    def raised(self) -> Sequence[Scheme]:
        """int8 with zero points and a scale for each 128 inputs, then float16 weights."""
        return (PRESETS["int8-accurate"].default, PRESETS["float16"].default)

    def native(self) -> None:
        """Quantized modules compute in Octavo's kernels already."""

    def float_model(self) -> Built:
        """Return the model in eval mode: itself, or over its parameters where it is training."""
        return self._model.built

    def build(self, recipe: Recipe, calibration: Sequence[Feed] | None = None) -> Built:
        """Build the quantized model, a copy in eval mode; the float one if no layer is quantized.

        Raises OptionError for calibration data, and what `octavo.torch.quantize_dynamic` raises.
        """
        refuse_static(calibration)
        if all(decision.scheme.is_float for decision in self.decisions(recipe)):
            return self.float_model()
        made = self._quantized(recipe)
        run = partial(self._model.caller.run, made)
        return Built(made, run, model_bytes(made), replace(report(made), source=self.label))

    @contextmanager
    def opener(
        self, recipe: Recipe | None, calibration: Sequence[Feed] | None = None
    ) -> Iterator[Callable[[], Built]]:
        """Yield a function that copies the model of `recipe` (None: float) to other memory."""
        made = self.float_model() if recipe is None else self.build(recipe, calibration)

        def opened() -> Built:
            model = copy.deepcopy(made.model)
            return replace(made, model=model, run=partial(self._model.caller.run, model))

        yield opened

    def save(
        self, recipe: Recipe, out: Path, calibration: Sequence[Feed] | None = None
    ) -> Report | None:
        """Write the quantized model to `out`, for `octavo.torch.load`, and report what is in it.

        Raises as `build`, and OutputError.
        """
        from octavo.torch.files.save import save

        refuse_static(calibration)
        made = self._quantized(recipe)
        save(made, out, progress=quiet)
        return replace(report(made), source=self.label, output=str(out))

    def made_up(
        self, shapes: Mapping[str, Sequence[int]], seed: int, give: str | None = None
    ) -> Sequence[Feed]:
        """Make up inputs that the model runs on: like the example, of `shapes`, or guessed.

        Names are those of forward's parameters, or "0", "1", ... Raises InputDataError for an
        unknown one, and where the model runs on none; it says what to `give`.
        """
        from octavo.torch.run.made_up import GIVE, made_up

        found, run = self._model, self._model.built.run
        return made_up(found.module, run, found.caller, self._example, shapes, seed, give or GIVE)

    def errors(
        self, recipe: Recipe, sets: Sequence[Collection[str]], feeds: Sequence[Feed]
    ) -> Sequence[float]:
        """Return, for each set of layer names, the worst output's error with those alone quantized.

        Infinite where that fails. The same numbers as from building each, a run of the model a set
        and feed. Raises RecipeError for an unknown layer, InputDataError where the float model
        fails on a feed.
        """
        from octavo.torch.tuning.sensitivity import output_errors

        found = self._model
        return output_errors(
            found.built, found.layers, recipe, sets, feeds, found.caller, self.build
        )

    def peak_memory(
        self, recipe: Recipe | None, feed: Feed, calibration: Sequence[Feed] | None = None
    ) -> int:
        """Bytes that opening and running the model add to a fresh process, at their peak.

        Weights and activations; not PyTorch, nor the modules that define the model. Raises
        ModelError where a process cannot be had or given the model.
        """
        from octavo.torch.tuning.memory import peak_memory

        refuse_static(calibration)
        found = self._model
        model = found.built.model if recipe is None else self._quantized(recipe)
        factory = self._given if isinstance(self._given, str) else ""
        return peak_memory(model, factory, recipe is not None, found.caller, feed)

    def _quantized(self, recipe: Recipe) -> nn.Module:
        return quantize_dynamic(
            self._model.module, recipe=recipe, allow_nothing=True, progress=quiet
        )

    @property
    def _model(self) -> _Found:
        if self._found is None:
            self._found = _Found(self._given)
        return self._found


class _Found:
    """The float model, and what is found out about it once."""

    def __init__(self, given: nn.Module | str) -> None:
        from octavo.torch.named_models import named_model

        self.module = named_model(given).eval() if isinstance(given, str) else given
        check_float(self.module)
        self.layers = Planner(self.module)
        self.caller = Caller(self.module)
        training = any(module.training for module in self.module.modules())
        model = twin(self.module) if training else self.module
        self.built = Built(model, partial(self.caller.run, model), model_bytes(model))


def refuse_static(calibration: Sequence[Feed] | None) -> None:
    """Raise OptionError where calibration data is given."""
    if calibration is not None:
        raise OptionError(
            "calibration data is for static quantization, which PyTorch models have none of here; "
            "use approach dynamic"
        )


def _fingerprint(model: nn.Module) -> str:
    """SHA-256 over the types of the modules, their plain settings and all tensors, in hexadecimal.

    Beside them over the versions of Octavo and PyTorch, whose kernels compute. Reads the weights
    once, at the speed of the digest.
    """
    digest = hashlib.sha256(f"octavo {octavo.__version__}, torch {torch.__version__}\n".encode())
    found = module_names(model)
    for line in _structure(found.modules):
        digest.update(f"{line}\n".encode())
    digest.update(repr(sorted(found.again.items())).encode())
    first: dict[int, str] = {}
    for item in tensors_of(found.modules):
        tensor, name = item.tensor, item.name
        known = first.setdefault(id(tensor), name)
        digest.update(f"{name} {known} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if known == name:
            digest.update(_bytes(tensor))
    return digest.hexdigest()


def _structure(modules: dict[str, nn.Module]) -> Iterator[str]:
    for name, module in modules.items():
        kind = type(module)
        settings = {
            key: value
            for key, value in module.__dict__.items()
            if not key.startswith("_") and key != "training" and _is_plain(value)
        }
        yield f"{name}: {kind.__module__}.{kind.__qualname__} {sorted(settings.items())}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return isinstance(value, _PLAIN)


def _bytes(tensor: Tensor) -> Any:
    """Return the tensor's memory, row by row."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data
