"""The C++ core, as native/python/ defines it. `octavo.core.kernels` checks and documents."""

from typing import Any

import numpy as np
import numpy.typing as npt

_Float32 = npt.NDArray[np.float32]
_Int32 = npt.NDArray[np.int32]
_Int8 = npt.NDArray[np.int8]
_Bytes = npt.NDArray[np.uint8]
_Bits = npt.NDArray[np.uint16]

# bind_weights.cpp
def checksum(data: _Bytes) -> int: ...
def channel_ranges(w: _Float32, lo: _Float32, hi: _Float32) -> int: ...
def channel_qparams(
    lo: _Float32,
    hi: _Float32,
    qmin: int,
    qmax: int,
    symmetric: bool,
    zero_point: int,
    scale: _Float32,
    zero: _Int32,
) -> None: ...
def quantize_channels(
    w: _Float32, qmin: int, qmax: int, scale: _Float32, zero: _Int32, q: npt.NDArray[Any]
) -> tuple[float, float]: ...
def quantize_packed(
    w: _Float32, qmin: int, qmax: int, scale: _Float32, zero_points: _Int32, packed: _Bytes
) -> tuple[float, float]: ...

# bind_round_groups.cpp
def round_groups(
    w: int,
    dtype: int,
    n: int,
    k: int,
    stride: int,
    importance: _Float32,
    bits: int,
    group: int,
    affine: bool,
    search: bool,
    q: _Bytes,
    scale: npt.NDArray[np.uint16],
    zero: _Bytes | None,
    channel_scale: _Float32,
) -> tuple[float, float, int]: ...

# bind_machine.cpp
def cpu_features() -> list[str]: ...
def isas() -> list[str]: ...
def isa() -> str: ...
def has_bfloat16_products() -> bool: ...
def use_isa(name: str) -> None: ...
def num_threads() -> int: ...
def set_num_threads(threads: int) -> None: ...
def thread_backend() -> str: ...
def peak_gops(isa: str, seconds: float, threads: int) -> float: ...
def read_gbps(data: _Bytes, threads: int) -> float: ...
def part_seconds(part: int, rows: int, columns: int) -> float: ...

# bind_linear.cpp
def packed_bytes(n: int, k: int, weight_format: str = "int8") -> int: ...
def pack(q: _Int8, packed: _Bytes, weight_format: str = "int8") -> None: ...
def unpack(packed: _Bytes, q: _Int8, weight_format: str = "int8") -> None: ...
def quantize_rows(
    x: int,
    x_type: int,
    rows: int,
    k: int,
    x_stride: int,
    group: int,
    q: _Bytes,
    scale: _Float32,
    zero_point: _Int32,
) -> None: ...
def attention(
    addresses: tuple[int, ...],
    sizes: tuple[int, ...],
    steps: tuple[int, ...],
    scale: float,
    bias: int,
    bias_strides: tuple[int, ...],
    mask: int,
    mask_strides: tuple[int, ...],
    causal: bool,
    offset: int,
    window: int,
    softcap: float,
    sinks: int,
    bfloat16: bool,
    threads: int,
) -> None: ...
def layer_norm(
    x: int,
    rows: int,
    columns: int,
    stride: int,
    weight: int,
    bias: int,
    eps: float,
    out: int,
    out_stride: int,
    threads: int,
) -> None: ...
def norm_rows(
    kind: int,
    x: int,
    rows: int,
    columns: int,
    residual: int,
    weight: int,
    bias: int,
    eps: float,
    total: int,
    out: int,
    threads: int,
) -> None: ...
def rotary(
    x: int,
    cos: int,
    sin: int,
    positions: int,
    out: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    interleaved: bool,
    each: bool,
    threads: int,
) -> None: ...
def run_gated(
    first: Linear,
    activation: int,
    second: Linear,
    x: int,
    rows: int,
    x_stride: int,
    out: int,
    out_stride: int,
    threads: int,
) -> None: ...
def run_together(
    layers: list[Linear],
    x: int,
    x_type: int,
    rows: int,
    x_stride: int,
    outs: list[int],
    out_type: int,
    out_strides: list[int],
    threads: int,
) -> None: ...

class Linear:
    def __init__(
        self,
        packed: _Bytes,
        n: int,
        k: int,
        group: int,
        scale: _Float32,
        zero: _Int32 | None,
        bias: _Float32 | None,
        activation: int,
        live: bool = False,
        weight_format: str = "int8",
    ) -> None: ...
    @staticmethod
    def reads_live(n: int) -> bool: ...
    def run(
        self,
        x: int,
        rows: int,
        x_stride: int,
        out: int,
        out_stride: int,
        dtype: int = 0,
        residual: int = 0,
        residual_stride: int = 0,
        threads: int = 0,
    ) -> None: ...
    def run_quantized(
        self,
        q: int,
        rows: int,
        q_stride: int,
        scale: int,
        zero_point: int,
        out: int,
        out_type: int,
        out_stride: int,
        residual: int,
        residual_stride: int,
        threads: int,
    ) -> None: ...

# bind_half.cpp
def widen(dtype: int, x: _Bits, y: _Float32) -> None: ...
def narrow(dtype: int, x: _Float32, y: _Bits) -> None: ...
def half_packed_size(n: int, k: int) -> int: ...
def half_pack(w: _Bits, packed: _Bits) -> None: ...
def half_unpack(packed: _Bits, w: _Bits) -> None: ...

class HalfLinear:
    def __init__(
        self, packed: _Bits, dtype: int, n: int, k: int, bias: _Float32 | None, activation: int
    ) -> None: ...
    def run(
        self,
        x: int,
        rows: int,
        x_stride: int,
        out: int,
        out_stride: int,
        dtype: int = 0,
        residual: int = 0,
        residual_stride: int = 0,
        threads: int = 0,
    ) -> None: ...

# bind_embedding.cpp
class _Embedding:
    def __init__(self, q: npt.NDArray[Any], scale: _Float32, zero: _Int32 | None) -> None: ...
    def lookup(
        self, indices: int, wide: bool, count: int, out: int, out_stride: int, threads: int
    ) -> None: ...
    def bag(
        self,
        indices: int,
        wide: bool,
        count: int,
        offsets: int,
        wide_offsets: bool,
        bags: int,
        last: bool,
        length: int,
        weights: int,
        padding: int,
        mode: int,
        out: int,
        out_stride: int,
        threads: int,
    ) -> None: ...

class EmbeddingInt8(_Embedding): ...
class EmbeddingUint8(_Embedding): ...

class PackedEmbedding:
    def __init__(
        self,
        packed: npt.NDArray[np.uint8],
        rows: int,
        dim: int,
        scale: npt.NDArray[np.float32],
        zero: npt.NDArray[np.int32] | None,
        weight_format: str,
    ) -> None: ...
    def lookup(self, indices: int, wide: bool, count: int, out: int, threads: int) -> None: ...

def __getattr__(name: str) -> Any: ...

# bind_sources.cpp
class Sources:
    def __init__(
        self,
        tensors: tuple[Any, ...],
        addresses: list[int],
        sizes: list[int],
        reads: list[int],
    ) -> None: ...
    def current(self, buffers: dict[str, Any]) -> bool: ...
    def current_of(self, tensors: tuple[Any, ...]) -> bool: ...

# bind_torch.cpp
def call_linear(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
def use_torch(
    *,
    tensor: type,
    parameter: type,
    module: type,
    module_call: Any,
    module_call_impl: Any,
    layer: type,
    layer_forward: Any,
    dispatch_modes: Any,
    is_tracing: Any,
    functorch_level: Any,
    is_grad_enabled: Any,
    is_profiling: Any,
    is_autocasting: Any,
    num_threads: Any,
    state: dict[str, Any],
    forward_ad: dict[str, Any],
    global_hooks: tuple[dict[Any, Any], ...],
    large: int,
    exchange: Any,
) -> None: ...

# bind_program.cpp: values and sizes are numbers, types and functions the core's codes
class Program:
    def __init__(self) -> None: ...
    def __call__(
        self, tensors: tuple[Any, ...], ints: tuple[int, ...], threads: int
    ) -> tuple[Any, ...]: ...
    def input(self, dtype: int, axes: int) -> int: ...
    def input_integer(self) -> int: ...
    def literal(self, size: int) -> int: ...
    def scalar(self, value: float) -> int: ...
    def constant(self, dtype: int, address: int, sizes: list[int]) -> int: ...
    def output(self, value: int) -> None: ...
    def finish(self, name: str) -> None: ...
    def size(self, value: int, axis: int) -> int: ...
    def compute(self, op: int, a: int, b: int) -> int: ...
    def reshape(self, dtype: int, source: int, sizes: list[int]) -> int: ...
    def contiguous(self, dtype: int, source: int) -> int: ...
    def permute(self, dtype: int, source: int, axes: list[int]) -> int: ...
    def slice(
        self, dtype: int, source: int, axis: int, start: int, stop: int, step: int
    ) -> int: ...
    def expand(self, dtype: int, source: int, sizes: list[int]) -> int: ...
    def unsqueeze(self, dtype: int, source: int, axis: int) -> int: ...
    def squeeze(self, dtype: int, source: int, axis: int) -> int: ...
    def unary(self, op: int, x: int) -> int: ...
    def slow_unary(self, op: int, x: int) -> int: ...
    def binary(self, op: int, a: int, b: int) -> int: ...
    def compare(self, op: int, a: int, b: int) -> int: ...
    def logic(self, op: int, a: int, b: int) -> int: ...
    def integers(self, op: int, a: int, b: int) -> int: ...
    def logical_not(self, x: int) -> int: ...
    def power(self, x: int, exponent: float) -> int: ...
    def cast(self, dtype: int, x: int) -> int: ...
    def where(self, dtype: int, condition: int, a: int, b: int) -> int: ...
    def linear(
        self,
        x: int,
        layers: list[Any],
        activations: list[int],
        residual: int,
        gated: bool,
        span: list[int],
        norm: list[int],
        eps: float,
    ) -> list[int]: ...
    def norm(
        self, kind: int, x: int, residual: int, weight: int, bias: int, eps: float
    ) -> list[int]: ...
    def attention(
        self,
        q: int,
        k: int,
        v: int,
        scale: float,
        bias: int,
        mask: int,
        causal: bool,
        offset: int,
        window: int,
        softcap: float,
        bfloat16: bool,
    ) -> int: ...
    def rotary(self, x: int, cos: int, sin: int, interleaved: bool) -> int: ...
    def softmax(self, x: int) -> int: ...
    def sum(self, x: int, mean: bool, keepdim: bool) -> int: ...
    def matmul(self, a: int, b: int) -> int: ...
    def cat(self, dtype: int, values: list[int], axis: int) -> int: ...
    def copy_to(self, source: int, into: int) -> None: ...
    def index_copy(self, x: int, into: int, axis: int, index: int) -> None: ...
    def take(self, dtype: int, x: int, axis: int, index: int) -> int: ...
    def gather(self, dtype: int, x: int, axis: int, index: int) -> int: ...
    def gathered_product(self, a: int, table: int, index: int, transposed: bool) -> int: ...
    def embedding(self, dtype: int, table: int, index: int) -> int: ...
    def arange(self, stop: int) -> int: ...
    def integer(self, size: int) -> int: ...
