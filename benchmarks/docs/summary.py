"""README's table and the points of its picture: what Octavo gains, a model a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from benchmarks.docs.drawing import Point
from benchmarks.docs.figures import value

BOTH = ("1x8", "1x32", "1x128", "8x128")  # batch x length: those that both targets were timed at
SHAPES = (*BOTH, "16x32")  # those of target native and the peers beside it, as on every page
SUMMARY_RESULT = "models_vnni"  # of the picture

_MINILM = "all-MiniLM-L6"
_ORT, _OPENVINO = "quantize_dynamic per channel", "OpenVINO"


def small(number: float) -> str:
    """Two digits that count: 0.0012, 0.053."""
    return f"{number:.{1 - math.floor(math.log10(number))}f}"


def summary() -> Iterator[str]:
    """The table, in Markdown."""
    yield "| what | model | Octavo | fastest peer | what it costs |"
    yield "|---|---|--:|--:|---|"
    yield from (*_texts(), *_ocr(), *_sound(), *_decoders())


def _line(kind: str, model: str, ours: float, over: dict[str, float], loss: str) -> str:
    """`over` has Octavo's speed over that of each peer."""
    best = min(over, key=lambda name: over[name], default=None)
    peer = "" if best is None else f"{ours / over[best]:.1f}, {best}"
    return f"| {kind} | {model} | **{ours:.1f}** | {peer} | {loss} |"


def _texts() -> Iterator[str]:
    native, _, _, openvino, per_channel, per_tensor = points()
    peers = {
        "OpenVINO": native.x / openvino.x,
        "ONNX Runtime": native.x / max(per_channel.x, per_tensor.x),
    }
    loss = f"error {small(native.y)}"
    yield _line("Embeddings, ONNX", _MINILM, native.x, peers, loss)

    name, section = "models_torch_vnni", f"{_MINILM}: speed, 1 thread"
    what = "octavo int8: speed over {}, geometric mean"
    error = value(name, f"{_MINILM}: accuracy", "octavo int8: 1 - cosine of hidden states")
    peers = {"torch.ao": value(name, section, what.format("torch.ao per channel"))}
    ours = value(name, section, what.format("float"))
    yield _line("Embeddings, PyTorch", _MINILM, ours, peers, f"error {small(error)}")


def _family(section: str, kind: str, model: str) -> str:
    """A family of transformers as a PyTorch module."""
    what = "octavo int8: speed over {}"
    peers = {"torch.ao": value("families_vnni", section, what.format("torch.ao per channel"))}
    ours = value("families_vnni", section, what.format("float"))
    error = value("families_vnni", section, "octavo int8: 1 - cosine with float")
    return _line(kind, model, ours, peers, f"error {small(error)}")


def _ocr() -> Iterator[str]:
    section = "nano-ocr, target native"
    read_words = [
        value(SUMMARY_RESULT, section, f"{who}: accuracy, words read")
        for who in ("octavo native int8", "float")
    ]
    ours = value(
        SUMMARY_RESULT,
        f"{section}: speed, 1 thread",
        "octavo native int8: speed over float, geometric mean",
    )
    loss = f"reads {read_words[0]:.3f} of the words, float {read_words[1]:.3f}"
    yield _line("OCR, ONNX", "nano-ocr", ours, {}, loss)


def _sound() -> Iterator[str]:
    yield _family(
        "Whisper decoder: one token after a cache, 1 thread",
        "Speech, PyTorch",
        "Whisper's decoder, one token",
    )
    for kind, peer in (("LSTM", "quantize_dynamic"), ("GRU", None)):
        section = f"{kind}, 2 layers, bidirectional, H 256, 50 steps, target native"
        what = "octavo native int8: speed over {}, geometric mean"
        speeds = f"{section}: speed, 1 thread"
        error = value(
            SUMMARY_RESULT, f"{section}: error", "octavo native int8, batch 1: relative to float"
        )
        over = {"ONNX Runtime": value(SUMMARY_RESULT, speeds, what.format(peer))} if peer else {}
        ours = value(SUMMARY_RESULT, speeds, what.format("float"))
        yield _line(f"{kind}, ONNX", "two layers", ours, over, f"error {small(error)}")


def _decoders() -> Iterator[str]:
    """4 bits over float: over 8 bits, times what those are over float, each timed in turns."""
    name = "SmolLM2-135M"
    decoding = f"{name}, Q4_1: decoding, 1 thread"

    def speed(over: str, where: str = "") -> float:
        return value("decoders_vnni", decoding + where, f"octavo int4: speed over {over}")

    ours = speed("octavo int8", ", in PyTorch") * value(
        "families_vnni", f"{name}: decoding, 1 thread", "octavo int8: speed over float"
    )
    loss = value(
        "decoders_vnni",
        f"{name}: perplexity",
        "octavo int4: perplexity over that of float32 arithmetic on the same integers",
    )
    peers = {"llama.cpp": speed("llama.cpp")}
    yield _line("Language model, 4 bits", name, ours, peers, f"{loss:.3f} times the perplexity")


def points() -> list[Point]:
    """all-MiniLM-L6 in ONNX Runtime and OpenVINO: speed over float, and error.

    A speed is the geometric mean over SHAPES of float's time over that one's, each within the
    section in which both were timed in turns. What was timed in target portable's section alone has
    the speed of ONNX Runtime's int8 per channel times its own over that one's, the mean over BOTH.
    """
    native, portable = (f"{_MINILM}{target}: speed, 1 thread" for target in (", target native", ""))
    error = f"{_MINILM}, target native: error, 1 - cosine of hidden states"
    accuracy, cosine = f"{_MINILM}: accuracy", "1 - cosine of hidden states"

    def mean(section: str, speed: str, shapes: Sequence[str]) -> float:
        values = [value(SUMMARY_RESULT, section, speed.format(shape)) for shape in shapes]
        return math.prod(values) ** (1 / len(values))

    def found(section: str, what: str) -> float:
        return value(SUMMARY_RESULT, section, what)

    def over(peer: str, ours: str = "octavo native int8") -> float:
        return mean(native, f"{ours}: speed over {peer}, {{}}", SHAPES)

    fast = over("float")
    accurate = fast * over("octavo native int8", "octavo native int8-accurate")
    per_channel = fast / over(_ORT)
    plain = per_channel * mean(portable, f"{{}}: speed over {_ORT}", BOTH)
    return [
        Point(
            "Octavo, native",
            fast,
            found(error, "octavo native int8"),
            ours=True,
            place="below",
        ),
        Point(
            "Octavo, native, int8-accurate",
            accurate,
            found(error, "octavo native int8-accurate"),
            ours=True,
            place="above",
        ),
        Point(
            "Octavo, portable",
            plain,
            found(accuracy, f"octavo int8: {cosine}"),
            ours=True,
            place="left",
        ),
        Point(
            "OpenVINO, groups of 128",
            fast / over(_OPENVINO),
            found(error, "OpenVINO, groups of 128"),
            place="left",
        ),
        Point(
            "ONNX Runtime, per channel",
            per_channel,
            found(error, _ORT),
        ),
        Point(
            "ONNX Runtime, per tensor",
            plain / mean(portable, "{}: speed over quantize_dynamic", BOTH),
            found(accuracy, f"quantize_dynamic: {cosine}"),
        ),
    ]
