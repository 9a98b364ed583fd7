"""nn.LSTM, nn.GRU and nn.RNN with int8 weights.

Rows of x and h are quantized apart, each batch item at each step with its own scale, so that an
item's results do not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from octavo.core.recurrent_weights import Kind
from octavo.recipe import Kind as LayerKind
from octavo.torch import ops
from octavo.torch.layers.inputs import (
    as_leaf,
    autocasted_step,
    is_autocasting,
    is_proxy,
    refuse_nested,
)
from octavo.torch.layers.recurrent_buffers import RecurrentBuffers, float_names, pair
from octavo.torch.layers.recurrent_ops import (
    STATES,
    Call,
    Results,
    arguments,
    caller,
    plain,
    recurrent,
)
from octavo.torch.layers.recurrent_weights import RecurrentStack, storage_of
from octavo.torch.layers.registry import Shapes, quantized
from octavo.torch.quantizer import Quantizer

_CONFIG = (
    *("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"),
    *("bidirectional", "storage"),
)


class QuantizedRecurrent(RecurrentBuffers):
    """Layers of one kind. `storage` says of each "int8", "float32", "float16" or "bfloat16".

    Weights of 16 bits are rounded to them, and widened to float32 when the layer is first called.
    In train() mode `dropout` acts between the layers, as in PyTorch.
    """

    AUTOCAST: ClassVar[bool] = False
    """Whether torch.autocast casts what the float layer gets; GRU's own operations it does not."""

    CONFIG: ClassVar[tuple[str, ...]] = _CONFIG
    _KIND: ClassVar[Kind]

    proj_size = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        storage: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        """Make layers without weights; `options` are those that only one of the classes has."""
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional = bidirectional
        self._set_options(options)
        self.storage = list(storage or ["int8"] * num_layers)
        if len(self.storage) != num_layers:
            raise ValueError(f"storage: has {len(self.storage)} entries, num_layers={num_layers}")
        self._stack = stack = RecurrentStack(
            self._kind(),
            input_size,
            hidden_size,
            self.proj_size or hidden_size,
            bidirectional,
            bias,
            tuple(self.storage),
        )
        self._state_names = STATES[stack.kind is Kind.LSTM]
        self._hold_directions(stack.directions())
        self._arguments = arguments(stack)

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        """Layers whose choice is None are kept as float32."""
        layers = module.num_layers
        choices = list(choice) if isinstance(choice, Sequence) else [choice] * layers
        options = {key: getattr(module, key) for key in cls.CONFIG if key != "storage"}
        with torch.device("meta"):
            made = cls(**options, storage=[storage_of(c) for c in choices])
        found: dict[str, Tensor] = {}
        for i, one in enumerate(made._directions):
            layer = i * layers // len(made._directions)
            called = f"{name}.l{layer}".removeprefix(".") if layers > 1 else name
            weights = {part: getattr(module, part + one.suffix) for part in float_names(one)}
            held = one.quantized(weights, choices[layer], quantizer, called)
            found |= {key + one.suffix: tensor for key, tensor in held.items()}
        made._fill(**found)
        return made

    def _kernel(self) -> Call:
        return caller(self._stack.network(self._tensors()))

    def _run(self, x: Any, h0: Tensor | None, c0: Tensor | None) -> tuple[Any, Tensor, Any]:
        """Any form of input that PyTorch takes."""
        if is_autocasting():
            x, h0, c0 = autocasted_step(x, h0, c0, self.AUTOCAST)
        if isinstance(x, PackedSequence):
            return self._packed(x, h0, c0)
        if x.dim() == 3:
            return self._call(x, h0, c0, None, self.batch_first)
        if x.dim() != 2:
            raise ValueError(
                f"input: needs 3 axes, or 2 for a sequence without a batch; has {tuple(x.shape)}"
            )
        for name, state in zip(self._state_names, (h0, c0), strict=True):
            if state is not None and state.dim() != 2:
                raise ValueError(
                    f"{name}: needs 2 axes, as the input has no batch; has {tuple(state.shape)}"
                )
        h0, c0 = (None if state is None else state.unsqueeze(1) for state in (h0, c0))
        y, h, c = self._call(x.unsqueeze(1), h0, c0, None, False)
        return y.squeeze(1), h.squeeze(1), None if c is None else c.squeeze(1)

    @ops.uncompiled
    def _packed(
        self, packed: PackedSequence, h0: Tensor | None, c0: Tensor | None
    ) -> tuple[PackedSequence, Tensor, Any]:
        """Run the layers over packed sequences, outside torch.compile.

        How sequences are packed is in numbers, which torch.compile has not.
        """
        data, sizes, order, back = packed
        steps, batch, lengths = len(sizes), int(sizes[0]), None
        for name, state in zip(self._state_names, (h0, c0), strict=True):
            if state is not None and (state.dim() != 3 or state.shape[1] != batch):
                raise ValueError(
                    f"{name}: needs 3 axes, the second of {batch} items; has {tuple(state.shape)}"
                )
        if order is not None:
            h0, c0 = (None if s is None else s.index_select(1, order) for s in (h0, c0))
        if int(sizes[-1]) == batch:
            x = data.reshape(steps, batch, -1)
        else:
            x, lengths = torch._VF._pad_packed_sequence(data, sizes, False, 0.0, steps)
        y, h, c = self._call(x, h0, c0, lengths, False)
        if lengths is None:
            y = y.flatten(0, 1)
        else:
            y, _ = torch._VF._pack_padded_sequence(y, lengths, False)
        if back is not None:
            h = h.index_select(1, back)
            c = None if c is None else c.index_select(1, back)
        return PackedSequence(y, sizes, order, back), h, c

    def _call(
        self,
        x: Tensor,
        h0: Tensor | None,
        c0: Tensor | None,
        lengths: Tensor | None,
        batch_first: bool,
    ) -> Results:
        if self.training and self.dropout and self.num_layers > 1:
            return self._with_dropout(x, h0, c0, lengths, batch_first)
        if ops.direct(x) and plain(h0) and plain(c0):
            return self._ready()(x, h0, c0, lengths, batch_first)  # type: ignore[no-any-return]
        refuse_nested(x, "a PackedSequence, as torch.nn.utils.rnn.pack_sequence makes")
        y, h, c = recurrent(x, h0, c0, lengths, self._tensors(), *self._arguments, batch_first)
        return y, h, c if self._stack.kind is Kind.LSTM else None

    def _with_dropout(
        self, x: Tensor, h0: Any, c0: Any, lengths: Tensor | None, batch_first: bool
    ) -> Results:
        """Layer by layer."""
        count = len(self._directions) // self.num_layers
        for name, state in zip(self._state_names, (h0, c0), strict=True):
            if state is not None and len(state) != len(self._directions):
                raise ValueError(f"{name}: needs {len(self._directions)} states, not {len(state)}")
        ends = []
        for layer in range(self.num_layers):
            part = slice(layer * count, (layer + 1) * count)
            directions = self._directions[part]
            tensors = [t for one in directions for t in self._held(one).values()]
            stack = RecurrentStack(
                self._stack.kind,
                directions[0].inputs,
                self.hidden_size,
                self._stack.output,
                self.bidirectional,
                self.bias,
                (directions[0].storage,),
            )
            before = (None if state is None else state[part] for state in (h0, c0))
            x, *end = recurrent(x, *before, lengths, tensors, *arguments(stack), batch_first)
            ends.append(end)
            if layer + 1 < self.num_layers:
                x = dropout(x, self.dropout, True)
        h, c = (torch.cat(states) for states in zip(*ends, strict=True))
        return x, h, c if self._stack.kind is Kind.LSTM else None

    def flatten_parameters(self) -> None:
        """Do nothing: the weights lie together already."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """Return the weights and biases of each direction of each layer, as nn.LSTM has them."""
        return [[getattr(self, n + d.suffix) for n in float_names(d)] for d in self._directions]


def _sequences(module: Any, is_deep: bool) -> Shapes:
    shape = (4, 16) if module.batch_first else (16, 4)
    return [(*shape, module.input_size)]


_declared = partial(quantized, dtypes=("int8", "float16"), inputs=_sequences, onnx=("recurrent",))


@_declared(replaces=nn.LSTM, kind=LayerKind.LSTM)
class QuantizedLSTM(QuantizedRecurrent):
    """nn.LSTM's function, options and shapes, for inputs of any float dtype.

    Buffers of layer k, and with `_reverse` of its other direction: `packed_ih_l{k}` uint8 and
    `scale_ih_l{k}` float32 [4 * hidden_size], the same with `hh` and (with `proj_size`) `hr`,
    `bias_ih_l{k}` and `bias_hh_l{k}` float32 [4 * hidden_size]; gates in PyTorch's order, i, f, g,
    o. A layer that is not int8 has `blocks_ih_l{k}` in place of the first two.
    """

    AUTOCAST = True
    CONFIG = (*_CONFIG[:-1], "proj_size", "storage")
    _KIND = Kind.LSTM

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:  # noqa: A002
        """Return (output, (h, c)) of `input` [T, B, input_size], or whatever else nn.LSTM takes.

        `hx` is (h0, c0), in the input's dtype. Raises TypeError or ValueError, which name the
        argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)  # type: ignore[no-any-return]
        h0, c0 = (None, None) if hx is None else pair(hx)
        y, h, c = self._run(input, h0, c0)
        return y, (h, c)


class _WithoutCells(QuantizedRecurrent):
    """Layers whose state is h alone."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:  # noqa: A002
        """Return (output, h) of `input` [T, B, input_size], or whatever else torch's layer takes.

        `hx` is the initial state, in the input's dtype. Raises TypeError or ValueError, which name
        the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)  # type: ignore[no-any-return]
        return self._run(input, hx, None)[:2]


@_declared(replaces=nn.GRU, kind=LayerKind.GRU)
class QuantizedGRU(_WithoutCells):
    """nn.GRU's function, options and shapes, for inputs of any float dtype.

    Buffers as those of `QuantizedLSTM`, with three gates: r, z, n.
    """

    _KIND = Kind.GRU


@_declared(replaces=nn.RNN, kind=LayerKind.RNN)
class QuantizedRNN(_WithoutCells):
    """nn.RNN's function, options and shapes, for inputs of any float dtype.

    Buffers as those of `QuantizedLSTM`, with a single gate.
    """

    AUTOCAST = True
    CONFIG = (*_CONFIG[:3], "nonlinearity", *_CONFIG[3:])
    nonlinearity = "tanh"
