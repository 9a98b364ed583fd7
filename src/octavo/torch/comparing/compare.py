"""`octavo.torch.compare`: a quantized module beside the float one, output by output and layer by
layer."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from octavo.core.masked_rows import Padding
from octavo.core.progress import Progress, quiet, shown
from octavo.errors import InputDataError, ModelError, typed
from octavo.results.accumulate import LayerErrors, Output
from octavo.results.comparison import (
    Comparison,
    LayerDifference,
    OutputDifference,
    worst_first,
)
from octavo.torch.comparing.pairing import (
    ModulePair,
    ModulePairing,
    check_models,
    float_weights,
    pair_up,
)
from octavo.torch.replace.convert import twin
from octavo.torch.run.watched import Returned, named_arrays

Call = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments of one run."""


def compare(
    float_module: nn.Module, quantized_module: nn.Module, *inputs: Any, **keywords: Any
) -> Comparison:
    """Run both modules on the same inputs and say how far apart they are, and where.

    `inputs` and `keywords` are forward's arguments; one mapping by the names of its parameters,
    such as a tokenizer's batch, stands for keywords. Layers are those of `octavo.torch.inspect`;
    each quantized one is fed what the float model feeds it, and its numbers are those of
    `quantized_module` as it is: nothing is quantized here. A float model in training mode is run
    in eval mode; neither module is changed.

    Raises ModelError where the two do not belong together, nothing is quantized or the quantized
    model fails, AlreadyQuantizedError for a quantized float_module, InputDataError where the float
    model does not take the inputs.
    """
    call: Call = (inputs, keywords)
    if len(inputs) == 1 and not keywords and _holds_arguments(float_module, inputs[0]):
        call = ((), dict(inputs[0]))
    with shown("comparing") as progress:
        return compare_calls(float_module, quantized_module, [call], progress=progress)


def _holds_arguments(model: nn.Module, given: Any) -> bool:
    """Tell whether `given` maps parameters of forward, and is not one that forward takes itself."""
    if not isinstance(given, Mapping):
        return False
    known = inspect.signature(model.forward).parameters.values()
    single = [p for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [p for p in single if p.default is p.empty and p.name not in given]
    return not missing and any(p.name in given for p in single)


def compare_calls(
    floating: nn.Module,
    quantized: nn.Module,
    calls: Sequence[Call],
    inputs: str = "given",
    progress: Progress = quiet,
) -> Comparison:
    """Compare two models as `compare` does, over several runs.

    `inputs` is what the result says of where the inputs are from.
    """
    check_models(floating, quantized)
    paddings = [padding_of(floating, call) for call in calls]
    floating = twin(floating)
    pairing = pair_up(floating, quantized)
    with torch.inference_mode(), _slow_attention():
        outputs = _outputs(floating, quantized, calls, paddings)
        left_out = sum(padding.rows for padding in paddings)
        errors = _Errors(pairing)
        for i, (call, padding) in enumerate(zip(calls, paddings, strict=True)):
            progress("comparing layers", i, len(calls))
            errors.run(floating, quantized, call, padding)
    return Comparison(
        float_model=type(floating).__name__,
        quantized_model=type(quantized).__name__,
        target="torch",
        inputs=inputs,
        runs=len(calls),
        outputs=outputs,
        layers=worst_first(errors.found(floating)),
        left_float=pairing.left_float,
        padding=left_out,
    )


def padding_of(model: nn.Module, call: Call) -> Padding:
    """Return the padding that masks among the arguments of `call` hide."""
    try:
        given = inspect.signature(model.forward).bind_partial(*call[0], **call[1]).arguments
    except TypeError:  # forward says what it does not take
        given = dict(call[1])
    return Padding.of(_masks(given))


def _masks(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among arguments by name, as arrays; mappings stay mappings."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            found[name] = _masks({str(key): item for key, item in value.items()})
        elif isinstance(value, torch.Tensor) and not value.is_complex():
            found[name] = (value.float() if value.is_floating_point() else value).cpu().numpy()
    return found


def _outputs(
    floating: nn.Module, quantized: nn.Module, calls: Sequence[Call], paddings: Sequence[Padding]
) -> tuple[OutputDifference, ...]:
    """Measure how the outputs of the models differ when the models run as users run them."""
    columns: dict[str, Output] = {}
    for call, padding in zip(calls, paddings, strict=True):
        expected = named_arrays(_called(floating, call, InputDataError, "the float model"))
        got = named_arrays(_called(quantized, call, ModelError, "the quantized model"))
        if not expected:
            raise ModelError(f"{type(floating).__name__} returned no tensor")
        for name, array in expected.items():
            column = columns.setdefault(name, Output(name))
            column.add(array, got.get(name), padding)
    return tuple(column.found() for column in columns.values())


def _called(model: nn.Module, call: Call, kind: type[Exception], what: str) -> Any:
    """Call the model with copies of the inputs, as a forward may write into them. Raises `kind`."""
    args, keywords = tree_map(_copied, (tuple(call[0]), dict(call[1])))
    try:
        return model(*args, **keywords)
    except Exception as error:
        said = typed(error)
        raise kind(
            f"{what} ({type(model).__name__}) fails on these inputs: {said}; give inputs that its "
            "forward takes"
        ) from error


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


class _Errors:
    """Errors of all layers, over all runs."""

    def __init__(self, pairing: ModulePairing) -> None:
        self._pairs = pairing.pairs
        self._errors = [[LayerErrors() for _ in pair.layers] for pair in pairing.pairs]
        self._padding = Padding({})

    def run(self, floating: nn.Module, quantized: nn.Module, call: Call, padding: Padding) -> None:
        """Run both models once and add up the errors of their layers."""
        self._padding = padding
        expected: dict[int, list[list[Returned]]] = defaultdict(list)
        got: dict[int, list[list[Returned]]] = defaultdict(list)
        with _watching(floating, self._pairs, partial(self._alone, expected)):
            _called(floating, call, InputDataError, "the float model")
        with _watching(quantized, self._pairs, partial(self._running, got)):
            _called(quantized, call, ModelError, "the quantized model")
        for i in range(len(self._pairs)):
            self._accumulate(i, expected[i], got[i])

    def _alone(self, expected: Any, index: int, args: Any, keywords: Any, output: Any) -> None:
        results = self._pairs[index].watched.alone(args, keywords, output)
        for error, result in zip(self._errors[index], results, strict=True):
            for name, array in result.given.items():
                error.multiplied(name, array, self._padding)
            for a, b in zip(result.reference, result.other, strict=True):
                error.alone(a, b, self._padding)
        expected[index].append([result.reference for result in results])

    def _running(self, got: Any, index: int, args: Any, keywords: Any, output: Any) -> None:
        got[index].append(self._pairs[index].watched.outputs_in_model(args, keywords, output))

    def _accumulate(
        self, index: int, expected: list[list[Returned]], got: list[list[Returned]]
    ) -> None:
        for i, error in enumerate(self._errors[index]):
            if not expected:
                error.note("the float model does not call it on these inputs")
            elif len(expected) != len(got):
                error.note(
                    f"called {len(expected)} times in the float model, {len(got)} times here"
                )
            for theirs, ours in zip(expected, got, strict=False):
                for a, b in zip(theirs[i], ours[i], strict=True):
                    error.accumulated(a, b, self._padding)

    def found(self, floating: nn.Module) -> list[LayerDifference]:
        """Return the difference of each quantized layer, in the model's order."""
        found = []
        for pair, errors in zip(self._pairs, self._errors, strict=True):
            for layer, error in zip(pair.layers, errors, strict=True):
                if layer is None:
                    continue
                for weight in float_weights(floating, layer):
                    error.weights(weight)
                found.append(error.found(layer.name, layer.kind.value, layer.op, (layer.name,)))
        return found


@contextmanager
def _watching(
    model: nn.Module, pairs: Sequence[ModulePair], seen: Callable[[int, Any, Any, Any], None]
) -> Iterator[None]:
    """Call `seen` with a pair's index, arguments and output whenever its module is called.

    A layer with a hook is called by itself: activations are not computed in its pass meanwhile.
    """
    modules, handles = dict(model.named_modules()), []
    try:
        for index, pair in enumerate(pairs):

            def hook(_: Any, args: Any, keywords: Any, output: Any, index: int = index) -> None:
                seen(index, args, keywords, output)

            module = modules[pair.name]
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _slow_attention() -> Iterator[None]:
    """Without PyTorch's fused transformer layers.

    They call no layer inside them, and their outputs at padding are zeros, the quantized model's
    are not.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
