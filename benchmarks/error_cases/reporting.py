"""Pages that cannot be written, and what they cannot be made of."""

from __future__ import annotations

from benchmarks.error_cases.case import AS_ALLOWED, Case

TITLE = "Reports"
_PAIR = "octavo report m.onnx portable.onnx --html"
_PRINTED = "octavo quantize --json or octavo tune --json"
CASES = (
    Case(
        *("octavo report m.onnx --html page.html", 2),
        *("m.onnx alone", "gives no page", _PRINTED, "name the quantized model behind it"),
    ),
    Case(
        *("octavo report m.onnx gone.onnx --html page.html", 3),
        *("gone.onnx", "does not exist", ".onnx", "give the path of an .onnx file"),
    ),
    Case(
        *(f"{_PAIR} page.txt", 2),
        *("--html", "page.txt", ".html or .htm", "end the name with"),
    ),
    Case(
        *(f"{_PAIR} portable.html --inputs portable.html", 2),
        *("--html", "portable.html is named twice", "a name of its own", "give each file"),
        files={"portable.html": "<p>"},
    ),
    Case(
        *(f"{_PAIR} page.html --shape x=1by4", 2),
        *("--shape", "x=1by4", "1x128", AS_ALLOWED),
    ),
    Case(
        *(f"{_PAIR} page.html --threads 0", 2),
        *("--threads", "0", "a whole number above 0", "give"),
    ),
    Case(
        *(f"{_PAIR} page.html --seconds 0", 2),
        *("--seconds", "0", "a number above 0", "give"),
    ),
    Case(
        *(f"{_PAIR} page.html --inputs gone.npz", 2),
        *("inputs gone.npz", "no such file", ".npz or .jsonl", "give"),
    ),
    Case(
        *("octavo report run.json --html page.html", 2),
        *("run.json", "is not what", _PRINTED, AS_ALLOWED),
        files={"run.json": '{"layers": 3}'},
    ),
    Case(
        *("octavo report run.json --html page.html --threads 1", 2),
        *("--threads", "run.json", "was measured", "leave it out"),
        files={"run.json": "{}"},
    ),
    Case(
        *("octavo report models:make q.safetensors --html page.html --threads 1", 2),
        *("--threads", "models:make", "for ONNX models", "leave it out"),
    ),
)
