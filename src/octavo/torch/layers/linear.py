"""nn.Linear with int8 weights: rows of the input become uint8 as they come."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from octavo.core.kernels import GroupedWeight, PackedWeight, WeightFormat, packed_bytes, unpack
from octavo.core.kernels.packing import checked_group
from octavo.core.linear import Linear as Kernel
from octavo.core.linear import call_linear, use_torch
from octavo.core.live_buffers import Read
from octavo.errors import ModelError
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.grouped import GroupedModule
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.inputs import as_leaf, autocasted, is_autocasting, is_proxy, of_each
from octavo.torch.layers.naming import named
from octavo.torch.layers.registry import Shapes, quantized
from octavo.torch.layers.rows import Call, LinearModule, caller
from octavo.torch.memory import LARGE, array, optional
from octavo.torch.quantizer import Buffers
from octavo.torch.weight_choice import WeightChoice


def _rows(module: Any, is_deep: bool) -> Shapes:
    return [(4, module.in_features), (4, 16, module.in_features)]


@quantized(
    replaces=(nn.Linear, NonDynamicallyQuantizableLinear),
    kind=Kind.LINEAR,
    dtypes=("int8", "float16"),
    inputs=_rows,
    onnx=("linear",),
)
class QuantizedLinear(LinearModule, GroupedModule):
    """`y = x w^T + bias` for x [..., in_features] of any float dtype, y in the same dtype.

    Buffers: `packed` uint8 (the kernels' layout of `format`, a name of `WeightFormat`), `scale`
    float32 [out_features], `zero_point` int32 [out_features] with `affine` weights, `bias` float32
    [out_features]. Formats in groups have the groups' scales and zero points in `packed`; what
    `scale` holds is then a factor of each output, mostly 1. `group` 128, or that of the format,
    quantizes inputs with one scale for each so many of a row, 0 with one a row.
    """

    CONFIG = ("in_features", "out_features", "has_bias", "affine", "group", "format")
    _HALF = QuantizedHalfLinear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        affine: bool = False,
        group: int = 0,
        format: str = WeightFormat.INT8.value,  # noqa: A002  # as files call it
    ) -> None:
        super().__init__(in_features, out_features, has_bias)
        self.affine = affine
        self.format = WeightFormat.parse(format).value
        self.group = checked_group(group, self._format)
        n = out_features
        self._hold(
            packed=self._blank(packed_bytes(n, in_features, self._format), torch.uint8),
            scale=self._blank(n, torch.float32, 1),
            zero_point=self._blank(n, torch.int32) if affine else None,
            bias=self._blank(n, torch.float32) if has_bias else None,
        )

    @staticmethod
    def _storage(choice: WeightChoice, held: Buffers) -> tuple[Any, ...]:
        return held["zero_point"] is not None, choice.group, choice.format.value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # What follows and nn.Module's own call take longer than the kernel of a small layer: the
        # plain case is decided in C++, which answers None in every other.
        if not ops.is_dynamo_compiling():
            made = call_linear(self, args, kwargs)
            if made is not None:
                return made
        return super().__call__(*args, **kwargs)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """Return the outputs [..., out_features]; nested for a nested tensor."""
        if not torch.jit.is_scripting():
            return self._run(input, "none")
        return torch.ops.octavo.linear(
            input,
            self.packed,
            self.scale,
            self.zero_point,
            self.bias,
            self.out_features,
            self.in_features,
            self.group,
            "none",
            self.format,
        )

    def activated(self, x: Tensor, activation: str) -> Tensor:
        """Return `activation(self(x))`, computed in one pass.

        `activation` is a name of `octavo.core.kernels.Activation`.
        """
        try:
            return self._run(x, activation)
        except Exception as error:  # noqa: BLE001 - raised again
            raise named(error, self, x) from error.__cause__

    def _run(self, x: Tensor, activation: str) -> Tensor:
        x = autocasted(x)
        if ops.direct(x):
            return self._ready(activation)(x)
        if is_proxy(x) and activation == "none":
            return as_leaf(self, x)
        if x.is_nested:
            return of_each(lambda part: self._run(part, activation), x)
        return linear(x, *self._arguments(), activation, *self._other_format())

    def _keep(self, bound: dict[Any, Any], how: tuple[Any, ...]) -> None:
        if how == ("none",):
            loads, sources, call = bound[how]
            bound["direct"] = loads, sources, call.core.native  # for `call_linear`

    def _reads(self, name: str) -> Read:
        if name in ("scale", "bias") and Kernel.reads_live(self.out_features):
            return Read.LIVE
        return super()._reads(name)

    def _kernel(self, activation: str) -> Call:
        return kernel(*self._arguments(), activation, *self._other_format())

    @property
    def quantizes(self) -> tuple[int, int]:
        """Groups of inputs and of weights: with the same, one input is quantized once for all."""
        return self.group, self._format.group

    def _arguments(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int, int, int]:
        """Return the arguments that the operator and the kernel both take, in their order."""
        vectors = self.scale, self.zero_point, self.bias
        return self.packed, *vectors, *self.sizes, self.group

    def integers(self) -> Tensor:
        """Return the integers [out_features, in_features]: int8, or in groups uint8 from 0 on."""
        if self._format.group:
            return torch.from_numpy(self.groups().q)
        return torch.from_numpy(unpack(array(self.packed), self.out_features, self.in_features))

    def groups(self) -> GroupedWeight:
        """Return the weight in groups: its integers, scales and zero points.

        Raises ModelError for a format without groups.
        """
        if not self._format.group:
            raise ModelError(f"the layer's format is {self.format}: it has no groups")
        packed, scale = array(self.packed), array(self.scale)
        return GroupedWeight.unpack(packed, *self.sizes, scale, self._format)

    def _dequantize(self) -> Tensor:
        if self._format.group:
            return torch.from_numpy(self.groups().dequantize())
        q = self.integers().to(torch.int32)
        if self.zero_point is not None:
            q = q - self.zero_point[:, None]
        return q.to(torch.float32) * self.scale[:, None]

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.has_bias}, {self.format}{' affine' if self.affine else ''}"
            + (f", activation groups of {self.group}" if self.group else "")
        )


def kernel(
    packed: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    bias: Tensor | None,
    n: int,
    k: int,
    group: int,
    activation: str,
    format: str = WeightFormat.INT8.value,  # noqa: A002
) -> Call:
    """Build the linear layer over these tensors, which it keeps alive."""
    held = WeightFormat.parse(format)
    weight = PackedWeight(array(packed), n, k, array(scale), optional(zero_point), group, held)
    core = Kernel(weight, optional(bias), activation, live=True)
    call = caller(core.run, n, k)
    call.core = core  # type: ignore[attr-defined]  # for `together`
    return call


def _fake(x: Tensor, packed: Tensor, scale: Tensor, *others: Any) -> Tensor:
    _, _, n, k, *_ = others
    torch._check(x.dim() > 0 and x.shape[-1] == k, lambda: f"x: needs shape [..., {k}]")
    return x.new_empty((*x.shape[:-1], n))


linear = ops.define(
    "linear",
    "(Tensor x, Tensor packed, Tensor scale, Tensor? zero_point, Tensor? bias, int n, int k, "
    "int group, str activation, str format='int8') -> Tensor",
    ops.over_weights(kernel),
    _fake,
)


use_torch(
    tensor=Tensor,
    parameter=nn.Parameter,
    module=nn.Module,
    module_call=nn.Module._wrapped_call_impl,  # as it is before anybody replaces `__call__`
    module_call_impl=nn.Module._call_impl,
    layer=QuantizedLinear,
    layer_forward=QuantizedLinear.forward,
    dispatch_modes=ops.dispatch_modes,
    is_tracing=ops.is_tracing,
    functorch_level=ops.functorch_level,
    is_grad_enabled=torch.is_grad_enabled,
    is_profiling=torch._C._autograd._profiler_enabled,
    is_autocasting=is_autocasting,
    num_threads=torch.get_num_threads,
    state=vars(ops),
    forward_ad=vars(forward_ad),
    global_hooks=tuple(
        vars(torch.nn.modules.module)[f"_global_{kind}_hooks"]
        for kind in ("forward", "forward_pre", "backward", "backward_pre")
    ),
    large=LARGE // 4,
    exchange=getattr(Tensor, "__dlpack_c_exchange_api__", None),  # since PyTorch 2.10
)
