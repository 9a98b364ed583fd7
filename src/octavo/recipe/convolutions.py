"""Which convolutions a preset quantizes, in PyTorch and in ONNX files of target native.

Two questions. Do integers win, as far as filters and strides tell? Sizes of images are data, and no
plan knows them; what counts is how many products there are for each number that is read, quantized
and written:

    products       outputs * inputs * taps                  of one group and one pixel of the output
    numbers moved  inputs * strides + outputs               inputs up to a multiple of 16, as they
                                                            are quantized

The bounds were set on one thread of a Zen 4 (AVX512-VNNI) while developing, over the faster of
PyTorch's and ONNX Runtime's float convolution at batch 1: from 20 products a number on integers
won in every layer that was tried, below it only in some. Pointwise ones need 64 inputs and outputs
beside: ONNX Runtime keeps a chain of them in blocks of channels, over which integers win with 64
and not with 48.

And does the network bear the error there? `Place` has the places that do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

AXES = (1, 2)
"""How many a quantized convolution has."""

LEAST_INPUTS, LEAST_OUTPUTS, LEAST_POINTWISE = 64, 16, 64
LEAST_PRODUCTS = 20  # for each number that is moved
QUANTIZED_CHANNELS = 16  # at a time
SIGNAL_TAPS = 64  # of a filter over one channel, from which on it is no picture that it sees
LINEAR_LAYERS = (
    2  # for each convolution, from which on the convolutions are the stem of the network
)


@dataclass(frozen=True)
class Filters:
    """`shape` [M, C / group, *kernel]; `strides`, one for each axis of the kernel."""

    shape: tuple[int, ...]
    group: int = 1
    strides: tuple[int, ...] = ()

    @property
    def outputs(self) -> int:
        """Return the number of outputs of a group."""
        return self.shape[0] // self.group

    @property
    def taps(self) -> int:
        """Pixels that a filter sees."""
        return prod(self.shape[2:])

    @property
    def inputs(self) -> int:
        """Products in each sum."""
        return self.shape[1] * self.taps

    @property
    def products_a_number(self) -> float:
        """Products for each number that is read or written."""
        channels = -(-self.shape[1] // QUANTIZED_CHANNELS) * QUANTIZED_CHANNELS
        return self.outputs * self.inputs / (channels * prod(self.strides) + self.outputs)


class Place(Enum):
    """Where in its network a convolution is float by default, and why."""

    FIRST = "the first convolution: what it gets wrong is in everything after it, so that"
    LAST = "the last convolution: nothing after it evens out what it gets wrong, so that"
    SEPARABLE = (
        "a 1x1 convolution behind a depthwise one, whose channels differ too much in range for one "
        "scale an image:"
    )
    GATE = (
        "a convolution over the mean of an image, as in squeeze-and-excitation: one product an "
        "image, whose error scales whole channels, so that"
    )
    SIGNAL = (
        "a convolution of a network that makes a raw signal, with one transposed over time: its "
        "error is heard as noise, so that"
    )

    def reason(self, ask: str) -> str:
        """Say in a report why the convolution is float.

        `ask` says how to get it quantized all the same.
        """
        return f"{self.value} it is float by default; {ask}"


def gains_nothing(filters: Filters, ask: str) -> str | None:
    """Say why integers are not faster by a margin with these filters, or None where they are.

    `ask` says in the reason how to get integers all the same.
    """
    outputs, inputs = filters.outputs, filters.inputs
    ask = f"is float by default, as integers gain it nothing; {ask}"
    if 0 in filters.shape:
        return "its weight has no elements"
    if len(filters.shape) - 2 not in AXES:
        return f"a convolution over {len(filters.shape) - 2} axes {ask}"
    if filters.shape[1] == 1 and filters.group == 1 and filters.taps >= SIGNAL_TAPS:
        return (
            f"a convolution over one raw signal ({filters.taps} taps, as of a Fourier transform) "
            f"{ask}"
        )
    if filters.shape[1] == 1:
        return f"a convolution whose filters see one channel each {ask}"
    least = LEAST_POINTWISE if filters.taps == 1 else LEAST_OUTPUTS
    if inputs < LEAST_INPUTS or outputs < least:
        plural = "" if outputs == 1 else "s"
        return f"a convolution of {outputs} output{plural}, each a sum of {inputs} products, {ask}"
    if filters.products_a_number < LEAST_PRODUCTS:
        return (
            f"a convolution of {filters.products_a_number:.0f} products for each number that it "
            f"reads or writes (fewer than {LEAST_PRODUCTS}) {ask}"
        )
    return None


def are_stem(convolutions: int, linear_layers: int) -> bool:
    """Tell whether a network with so many layers is one of linear layers, such as a transformer.

    Its convolutions are what makes its tokens: patches of an image, frames of a sound. Norms and
    the many layers after them even out what the last gets wrong, as they do with each other's
    errors. The first stays float there too: patch embeddings over pixels in int8 made the error of
    four layers of ViT, DeiT, DINOv2 and CLIP 1.4 times as large, and those layers 5% faster.
    """
    return linear_layers >= LINEAR_LAYERS * max(convolutions, 1)
