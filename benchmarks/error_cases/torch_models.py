"""`module:factory`: names and factories that make no model."""

from __future__ import annotations

from benchmarks.error_cases.case import Case

TITLE = "PyTorch models by name"

_CALLABLE = "a callable without arguments"
_QUANTIZE = "octavo quantize -o out.safetensors"
CASES = (
    Case(
        *(f"{_QUANTIZE} modles:make", 3),
        *(
            "modles:make",
            "no module 'modles'",
            "the current folder FOLDER",
            "Did you mean 'models'?",
        ),
    ),
    Case(
        *(f"{_QUANTIZE} models.py:make", 3),
        *("models.py:make", "no module 'models.py'", "the current folder", "Leave .py out"),
    ),
    Case(
        *(f"{_QUANTIZE} models:mkae", 3),
        *("models:mkae", "'mkae'", "Known: Net, ", "Did you mean 'make'"),
    ),
    Case(
        *(f"{_QUANTIZE} models:number", 3),
        *("models:number", "of type int", _CALLABLE, "needs"),
    ),
    Case(
        *(f"{_QUANTIZE} models:ready", 3),
        *("models:ready", "of type Net", _CALLABLE, "write a function that returns it"),
    ),
    Case(
        *(f"{_QUANTIZE} models:three", 3),
        *("models:three", "returned int", "a torch.nn.Module", "needs the float model"),
    ),
    Case(
        *(f"{_QUANTIZE} models:broken", 3),
        *(
            "models:broken fails",
            "RuntimeError: no weights here",
            "returns the float model",
            "mend it",
        ),
    ),
    Case(
        *(f"{_QUANTIZE} models:nan", 3),
        *(
            "models:nan: query",
            "weight",
            "holds NaN or infinity",
            "leave the layer float",
        ),
    ),
    Case(
        *(f"{_QUANTIZE} models:bare", 4),
        *("Sequential", "holds no weights", "--allow-nothing", "nothing to quantize"),
    ),
    Case(
        *(f"{_QUANTIZE} other:make", 3),
        *("importing other fails", "ZeroDivisionError", "other.py:1", "mend the module"),
        files={"other.py": "x = 1 / 0\n"},
    ),
    Case(
        *("octavo inspect modles:make", 3),
        *(
            "modles:make",
            "no module 'modles'",
            "the current folder FOLDER",
            "Did you mean 'models'?",
        ),
    ),
)
