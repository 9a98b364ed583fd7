"""What nn.LSTM, nn.GRU and nn.RNN share with int8 weights, and the operator behind them.

Rows of x and h are quantized apart, each batch item at each step with its own scale, so that an
item's results do not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from octavo.core.recurrent_weights import Kind
from octavo.torch import ops
from octavo.torch.choice import DEFAULT, Choice
from octavo.torch.modules._autocast import autocasted_step, is_autocasting
from octavo.torch.modules._nested import refuse_nested
from octavo.torch.modules._recurrent_ops import (
    STATES,
    Call,
    Results,
    arguments,
    caller,
    plain,
    recurrent,
)
from octavo.torch.modules._recurrent_state import HoldsWays, float_names, refusal
from octavo.torch.modules._recurrent_weights import Stack, storage_of
from octavo.torch.quantizer import Quantizer


class QuantizedRecurrent(HoldsWays):
    """Layers of one kind. `storage` says of each "int8", "float32", "float16" or "bfloat16".

    Weights of 16 bits are rounded to them, and widened to float32 when the layer is first called.
    In train() mode `dropout` acts between the layers, as in PyTorch.
    """

    AUTOCAST: ClassVar[bool] = False
    """Whether torch.autocast casts what the float layer gets; GRU's own operations it does not."""

    proj_size = 0

    def _set_up(self, kind: Kind, storage: Sequence[str] | None, **options: Any) -> None:
        """What constructors do with their arguments."""
        for name, value in options.items():
            setattr(self, name, value)
        self.storage = list(storage or ["int8"] * self.num_layers)
        if len(self.storage) != self.num_layers:
            raise ValueError(
                f"storage: has {len(self.storage)} entries, num_layers={self.num_layers}"
            )
        self._stack = stack = Stack(
            kind,
            self.input_size,
            self.hidden_size,
            self.proj_size or self.hidden_size,
            self.bidirectional,
            self.bias,
            tuple(self.storage),
        )
        self._state_names = STATES[kind is Kind.LSTM]
        self._hold_ways(stack.ways())
        self._arguments = arguments(stack)

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        return refusal(module, choice)

    @classmethod
    def from_float(
        cls,
        module: nn.Module,
        choice: Choice | Sequence[Choice | None] = DEFAULT,
        quantizer: Quantizer | None = None,
        name: str = "",
    ) -> QuantizedRecurrent:
        """From nn.LSTM, nn.GRU or nn.RNN, with one choice for all layers or one for each.

        Layers whose choice is None are kept as float32.
        """
        layers = module.num_layers
        choices = list(choice) if isinstance(choice, Sequence) else [choice] * layers
        options = {key: getattr(module, key) for key in cls.CONFIG if key != "storage"}
        make: Any = cls
        with torch.device("meta"):
            made = make(**options, storage=[storage_of(c) for c in choices])
        quantizer = quantizer or Quantizer()
        found: dict[str, Tensor] = {}
        for i, way in enumerate(made._ways):
            layer = i * layers // len(made._ways)
            called = f"{name}.l{layer}".removeprefix(".") if layers > 1 else name
            weights = {part: getattr(module, part + way.suffix) for part in float_names(way)}
            held = way.quantized(weights, choices[layer], quantizer, called)
            found |= {key + way.suffix: tensor for key, tensor in held.items()}
        made._fill(**found)
        return made  # type: ignore[no-any-return]

    def _kernel(self) -> Call:
        return caller(self._stack.network(self._tensors()))

    def _run(self, x: Any, h0: Tensor | None, c0: Tensor | None) -> tuple[Any, Tensor, Any]:
        """Any form of input that PyTorch takes."""
        if is_autocasting():
            x, h0, c0 = autocasted_step(x, h0, c0, self.AUTOCAST)
        if isinstance(x, PackedSequence):
            packed = _uncompiled if ops.is_dynamo_compiling() else QuantizedRecurrent._packed
            return packed(self, x, h0, c0)
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

    def _packed(
        self, packed: PackedSequence, h0: Tensor | None, c0: Tensor | None
    ) -> tuple[PackedSequence, Tensor, Any]:
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
        count = len(self._ways) // self.num_layers
        for name, state in zip(self._state_names, (h0, c0), strict=True):
            if state is not None and len(state) != len(self._ways):
                raise ValueError(f"{name}: needs {len(self._ways)} states, not {len(state)}")
        ends = []
        for layer in range(self.num_layers):
            part = slice(layer * count, (layer + 1) * count)
            ways = self._ways[part]
            tensors = [t for way in ways for t in self._held(way).values()]
            stack = Stack(
                self._stack.kind,
                ways[0].inputs,
                self.hidden_size,
                self._stack.output,
                self.bidirectional,
                self.bias,
                (ways[0].storage,),
            )
            before = (None if state is None else state[part] for state in (h0, c0))
            x, *end = recurrent(x, *before, lengths, tensors, *arguments(stack), batch_first)
            ends.append(end)
            if layer + 1 < self.num_layers:
                x = dropout(x, self.dropout, True)
        h, c = (torch.cat(states) for states in zip(*ends, strict=True))
        return x, h, c if self._stack.kind is Kind.LSTM else None

    def flatten_parameters(self) -> None:
        """Does nothing: the weights lie together already."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """For each direction of each layer its weights and biases, as nn.LSTM has them."""
        return [[getattr(self, n + way.suffix) for n in float_names(way)] for way in self._ways]

    def extra_repr(self) -> str:
        """What `print(model)` shows of the layer."""
        said = [f"{self.input_size}, {self.hidden_size}"]
        usual = {"num_layers": 1, "bias": True, "nonlinearity": "tanh", "proj_size": 0}
        usual |= {"batch_first": False, "dropout": 0.0, "bidirectional": False}
        said += [
            f"{name}={getattr(self, name)}"
            for name in self.CONFIG
            if name in usual and getattr(self, name) != usual[name]
        ]
        return ", ".join([*said, " + ".join(dict.fromkeys(self.storage))])


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _uncompiled(
    layer: QuantizedRecurrent, packed: PackedSequence, h0: Tensor | None, c0: Tensor | None
) -> tuple[PackedSequence, Tensor, Any]:
    """How sequences are packed is in numbers, which torch.compile has not: it goes on behind."""
    return layer._packed(packed, h0, c0)
