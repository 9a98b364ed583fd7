"""The end of each command's help: examples, and the exit codes."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "octavo inspect model.onnx",
        "octavo quantize model.onnx",
        "octavo compare model.onnx model.int8.onnx",
        "octavo bench model.onnx model.int8.onnx --threads 1",
        "octavo quantize --help",
    ),
    "quantize": (
        "octavo quantize model.onnx",
        "octavo quantize model.onnx --inputs data.npz -o small.onnx",
        "octavo quantize model.onnx --exclude '/bert/pooler/*' --report page.html",
        "octavo quantize model.onnx --target native --recipe int8-accurate",
        "octavo quantize mypackage.models:build -o model.safetensors",
    ),
    "inspect": (
        "octavo inspect model.onnx",
        "octavo inspect model.onnx --recipe my.yaml --target native",
        "octavo inspect mypackage.models:build --json",
    ),
    "tune": (
        "octavo tune conf.yaml --model model.onnx",
        "octavo tune conf.yaml --model model.onnx --evaluate mymodule:evaluate",
        "octavo tune conf.yaml --model model.onnx --data labelled.npz -o best.onnx",
        "octavo tune conf.yaml --model model.onnx --resume --report page.html",
    ),
    "convert-target": (
        "octavo convert-target model.int8.onnx --to native",
        "octavo convert-target model.native.onnx --to portable --cpu any -o m.onnx",
    ),
    "compare": (
        "octavo compare model.onnx model.int8.onnx",
        "octavo compare model.onnx model.int8.onnx --inputs data.npz --verbose",
        "octavo compare mypackage.models:build model.safetensors",
    ),
    "bench": (
        "octavo bench model.onnx model.int8.onnx",
        "octavo bench model.onnx model.int8.onnx --threads 1,2 --shape ids=1x128",
        "octavo bench model.onnx --against ort --json",
    ),
    "report": (
        "octavo report model.onnx model.int8.onnx --html page.html",
        "octavo report model.onnx model.int8.onnx --html page.html --inputs data.npz",
        "octavo report mypackage.models:build model.safetensors --html page.html",
        "octavo report tune.json --html page.html",
    ),
    "doctor": (
        "octavo doctor",
        "octavo doctor model.int8.onnx",
    ),
}
"""By the command's name; "" is the program itself."""

EXIT_CODES = """
\b
Exit codes:
  0    done
  1    an unexpected error (with a traceback: please report it)
  2    a wrong option, recipe, layer name, operator type or input data
  3    the model cannot be read or handled, or is quantized already
  4    nothing would be quantized
  5    the quantized model does not load or is too far from the float one
  6    the output cannot be written
  7    doctor: something that is needed is missing or too old
  8    tune: no recipe that meets the criterion was found
  9    tune: the float model cannot be evaluated
  10   the file is written, but could not be checked: pass --inputs
  130  interrupted (Ctrl-C)
"""


def epilog(command: str) -> str:
    """Examples of `command`, then the exit codes."""
    examples = "\n".join(f"  {line}" for line in EXAMPLES[command])
    return f"\b\nExamples:\n{examples}\n{EXIT_CODES}"
