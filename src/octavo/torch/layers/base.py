"""What all quantized layers share: state in plain buffers, the bound kernel beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from octavo.core.live_buffers import Read
from octavo.errors import ModelError
from octavo.torch import ops
from octavo.torch.layers.dequantized import Dequantized
from octavo.torch.layers.naming import named
from octavo.torch.layers.other_savers import check_savers
from octavo.torch.layers.requantize import prepare
from octavo.torch.model_tensors import PLAIN
from octavo.torch.quantizer import Quantizer
from octavo.torch.weight_choice import DEFAULT, HALVES, rounded

_CALL = nn.Module.__call__


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the dtype of the float weights of `module`; float32 where it has none."""
    weights = (*module.parameters(), *module.buffers())
    return next((w.dtype for w in weights if w.is_floating_point()), torch.float32)


REPORT = "_octavo_report"
"""Where a quantized model keeps its report: an attribute of the module's own `__dict__`.

Or what returns it: a report that was saved is made when somebody asks (`held_report`).
"""


def held_report(module: nn.Module) -> Any:
    """Return the report that `module` itself keeps; None where there is none."""
    found = module.__dict__.get(REPORT)
    if callable(found):
        found = module.__dict__[REPORT] = found()
    return found


# docs/notes/torch.md: "State is buffers of plain dtypes"
class QuantizedModule(nn.Module):
    """A layer whose weights are integers (or 16-bit floats) in buffers of plain dtypes.

    The buffers are the whole state: `state_dict`, deepcopy and pickle hold nothing else, and a new
    layer of the same `config()` with these buffers is the same layer. What runs it is bound on the
    first call, and again when buffers are replaced, loaded, written to or moved in memory (as what
    is sent to another process is).
    """

    CONFIG: ClassVar[tuple[str, ...]]
    """The constructor's arguments; each is an attribute too, and plain data for JSON."""

    INNER: ClassVar[tuple[str, ...]] = ()
    """Names of children that hold weights of this layer, and are no layers of their own."""

    SYMMETRIC: ClassVar[bool] = False
    """Whether its weights have no zero points."""

    GROUPED: ClassVar[bool] = False
    """Whether weights in groups are among what it holds."""

    _own: tuple[str, ...] = ()
    """Names of the buffers, which come first: a user's own may follow."""
    _output_dtype = torch.float32
    """What the float layer's weights would be, after all casts: `weight.dtype`, and the dtype of
    outputs where no input is a float."""
    _bound: Mapping[Any, Any] = MappingProxyType({})
    _computed: ClassVar[frozenset[str]] = frozenset()  # names of properties
    __jit_ignored_attributes__: ClassVar[list[str]] = []
    __jit_unused_properties__: ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = {name: value for c in reversed(cls.__mro__) for name, value in vars(c).items()}
        cls._computed = frozenset(n for n, value in known.items() if isinstance(value, property))
        # What torch.jit.script would look into though no forward uses it.
        cls.__jit_unused_properties__ = list(cls._computed)
        annotated = [name for c in cls.__mro__ for name in vars(c).get("__annotations__", ())]
        cls.__jit_ignored_attributes__ = [name for name in annotated if name.startswith("_")]

    _CHANNELS: ClassVar[int] = 0
    """The axis of `weight` along which its scales lie."""

    SCRIPTED: ClassVar[bool] = False
    """Whether torch.jit.script can compile forward."""

    def __prepare_scriptable__(self) -> QuantizedModule:
        """Asked by torch.jit.script. Raises ModelError where forward cannot be compiled."""
        if not self.SCRIPTED:
            raise ModelError(
                f"torch.jit.script cannot compile a {type(self).__name__}; record the model with "
                "torch.jit.trace(model, example_inputs), which keeps the quantized layers"
            )
        return self

    def __init__(self) -> None:
        super().__init__()
        self.training = False  # nothing here trains; dropout follows train() and eval() as usual

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:  # past a frame of nn.Module's own, unless torch.fx or torch.compile stands there
            if nn.Module.__call__ is _CALL and self._compiled_call_impl is None:
                return self._call_impl(*args, **kwargs)
            return super().__call__(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - raised again
            raise named(error, self, *args, **kwargs) from error.__cause__

    @classmethod
    def from_float(
        cls, module: Any, choice: Any = DEFAULT, quantizer: Quantizer | None = None, name: str = ""
    ) -> Any:
        """Return the quantized layer of the float `module`.

        A stack of RNN layers may have a list of choices, None for each layer that stays float.
        `name` is what messages call the layer.

        Raises ValueError for NaN, infinity and values beyond a 16-bit type.
        """
        made = cls._quantized(module, choice, quantizer or Quantizer(), name)
        made.cast(dtype_of(module))
        return made

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        """Return the quantized layer that `from_float` then casts."""
        raise NotImplementedError

    @classmethod
    def adapt(cls, choice: Any) -> tuple[Any, str]:
        """Return the nearest choice that these layers hold, and what differs ("" if nothing)."""
        return choice.adapted(symmetric=cls.SYMMETRIC, grouped=cls.GROUPED)  # type: ignore[no-any-return]

    @classmethod
    def try_choice(cls, choice: Any, weight: Any, name: str) -> None:
        """Quantizes a float32 weight as the layer would; raises where that cannot be."""
        if choice.format.group:
            rounded(choice, weight.reshape(len(weight), -1), name)
        else:
            choice.integers(weight, name, symmetric=cls.SYMMETRIC)

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        """Return why `module` cannot be held as `choice` says and stays float; "" where it can."""
        return ""

    @staticmethod
    def _refuses_but_int8(choice: Any, halves: str, weights: str) -> str:
        """Return why a layer cannot be held as `choice` says; "" where it can.

        The layer is of a kind that has symmetric int8 weights alone.
        """
        if choice.storage in HALVES:
            return f"Octavo has no {halves.format(choice.storage)} int8"
        if choice.affine:
            return (
                f"the qconfig asks for affine weights, and {weights} have no zero points: use "
                "qscheme per_tensor_symmetric or per_channel_symmetric"
            )
        return ""

    def config(self) -> dict[str, Any]:
        """Arguments that make an empty layer of the same shape."""
        return {name: getattr(self, name) for name in self.CONFIG}

    @staticmethod
    def _blank(n: int, dtype: torch.dtype, value: int = 0) -> Tensor:
        """Return a tensor [n] of `value`; on device meta it is left unfilled.

        There torch would make zeros in Python.
        """
        made = torch.empty(n, dtype=dtype)
        return made if made.is_meta else made.fill_(value)

    def _hold(self, **buffers: Tensor | None) -> None:
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)
        self._own = (*self._own, *buffers)

    def _fill(self, **buffers: Tensor | None) -> None:
        """Set buffers made by `_hold`."""
        for name, tensor in buffers.items():
            self._buffers[name] = tensor
        self._release()

    def _ready(self, *how: Any) -> Any:
        """Return the callable over the buffers as they are now; `how` goes to `_kernel`."""
        found = self._bound.get(how)
        if found is not None and found[0] == ops.loads() and found[1].current(self._buffers):
            return found[2]
        return self._bind(*how)

    def _own_buffers(self) -> dict[str, Tensor | None]:
        """Return the layer's own buffers.

        Raises ModelError where one was deleted, or is computed by others now.
        """
        try:
            return {name: self._buffers[name] for name in self._own or self._buffers}
        except KeyError as gone:
            raise ModelError(
                f"{type(self).__name__}.{gone.args[0]} is no buffer of the layer any more "
                "(deleted, or replaced by a parametrization); to take a bias away, write "
                "layer.bias.zero_(), or change the float model and quantize it again"
            ) from None

    # docs/notes/torch.md: "A write is seen or raises"
    def _reads(self, name: str) -> Read:
        """Return how kernels use the buffer `name`."""
        return Read.SUMMED if name.startswith(("packed", "blocks")) else Read.COPIED

    def _bind(self, *how: Any) -> Any:
        """Make the callable that `_ready` returns."""
        own = self._own_buffers()
        for name, tensor in own.items():
            if tensor is not None and not tensor.is_cpu:
                empty = "holds no weights yet (device meta): load them first"
                elsewhere = f"is on {tensor.device}; quantized layers run on the CPU: call .cpu()"
                raise ModelError(
                    f"{type(self).__name__}.{name} "
                    + (empty if tensor.device.type == "meta" else elsewhere)
                )
            if name.startswith(("bias", "scale")) and tensor is not None:
                self._check_vector(name, tensor)
        # Before the kernel: what another thread writes meanwhile is seen in the next call.
        reads = [self._reads(name) for name in own]
        held = ops.loads(), ops.sources(list(own.values()), reads)
        made = self._kernel(*how)
        bound = self.__dict__.setdefault("_bound", {})
        bound[how] = (*held, made)
        self._keep(bound, how)
        return made

    def _computed_weight(
        self, shape: tuple[int, ...], make: Callable[[], Tensor], name: str = "weight"
    ) -> Tensor:
        """Return the weight `name`, whose values `make` returns, in the float layer's dtype."""
        dtype = self._output_dtype
        return Dequantized.of(
            shape, lambda: make().to(dtype), lambda values: self._write_weight(name, values), dtype
        )

    def _write_weight(self, name: str, values: Tensor) -> None:
        """Quantize float `values` and hold them as the layer's weight `name`."""
        prepare(self, name, values)()

    def _parts(self, name: str) -> list[str]:
        """Names of the buffers that hold the weight `name`."""
        return [key for key in self._own if key != "bias"]

    def _check_vector(self, name: str, tensor: Tensor) -> None:
        if tensor.dtype is not torch.float32:
            raise ModelError(
                f"{type(self).__name__}.{name} is {str(tensor.dtype).removeprefix('torch.')} now; "
                "needs float32, whatever the inputs are: write tensor.float()"
            )

    def _keep(self, bound: dict[Any, Any], how: tuple[Any, ...]) -> None:
        """Add to `bound` what a layer keeps beside its callable `bound[how][2]`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._computed:
            raise AttributeError(
                f"{type(self).__name__}.{name} is computed from the quantized weights and cannot "
                "be set; change the float model and quantize it again"
            )
        own = self.__dict__
        if isinstance(value, nn.Parameter) and name in own.get("_buffers", ()):
            value = value.detach()  # the same memory; nothing here trains
        held = any(name in own.get(kind, ()) for kind in ("_buffers", "_modules", "_parameters"))
        if type(value) in PLAIN and not held:
            # What nn.Module's own comes to here, which looks for much else first.
            object.__setattr__(self, name, value)
        else:
            nn.Module.__setattr__(self, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)
        if not self._own:  # pickled by an Octavo that had no others
            self._own = tuple(self._buffers)

    def _kernel(self, *how: Any) -> Any:
        """Build the callable over the layer's buffers."""
        raise NotImplementedError

    def _release(self) -> None:
        self.__dict__.pop("_bound", None)

    # docs/notes/torch.md: "A layer follows the dtype of its model"
    def cast(self, dtype: torch.dtype) -> None:
        """Take `dtype` for the float layer's, as a cast does; the buffers stay as they are."""
        self._output_dtype = dtype
        for child in self.children():
            if isinstance(child, QuantizedModule):
                child.cast(dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Move buffers as `fn` says, but keep their dtypes: half() is about the float layer."""
        self._release()
        wanted = fn(torch.empty(0, dtype=self._output_dtype)).dtype
        if wanted.is_floating_point and wanted is not self._output_dtype:
            self.cast(wanted)
        own = self._own_buffers()
        try:
            self._buffers.update(dict.fromkeys(own))
            nn.Module._apply(self, fn, recurse)  # what a user's subclass has besides
            for name, tensor in own.items():
                if tensor is not None:
                    made = fn(tensor)
                    own[name] = made if made.dtype == tensor.dtype else tensor.to(made.device)
        finally:
            self._buffers.update(own)
        return self

    def _save_to_state_dict(self, destination: Any, *args: Any, **kwargs: Any) -> None:
        check_savers(destination)
        super()._save_to_state_dict(destination, *args, **kwargs)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        given = self._float_weights(state_dict, prefix)
        if given:
            args[-1].append(  # error_msgs, which raise with strict=False too
                f"{', '.join(prefix + name for name in given)}: the state is that of a float "
                f"{type(self).__name__.removeprefix('Quantized')}, and the layer is quantized; "
                "load it into the float model and quantize that"
            )
            return
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        ops.count_load()  # other layers may share the tensors that were written

    def _float_weights(self, state: Mapping[str, Any], prefix: str) -> list[str]:
        """Names of its weights that the state has as floats, and not as the layer holds them."""
        held = {name for name, _ in self.named_buffers() if "bias" not in name}
        if all(prefix + name in state for name in held):
            return []
        tails = [key[len(prefix) :] for key in state if key.startswith(prefix)]
        return [
            name
            for name in tails
            if name not in held
            and "." not in name
            and isinstance(getattr(self, name, None), Dequantized)
        ]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_bound", None)
        return state
