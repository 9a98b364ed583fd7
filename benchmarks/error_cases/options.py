"""Wrong words on the command line."""

from __future__ import annotations

from benchmarks.error_cases.case import Case

TITLE = "Commands and options"

_NEAR = "Possible options: "
CASES = (
    Case("octavo quantise m.onnx", 2, "command", "'quantise'", "'quantize'", "Did you mean"),
    Case("octavo quantize", 2, "argument 'IN'", "Missing", "IN", "Try 'octavo quantize -h'"),
    Case("octavo tune", 2, "argument 'CONF'", "Missing", "CONF", "Try 'octavo tune -h'"),
    Case(
        "octavo compare m.onnx", 2, "'INT8'", "Missing", "{FLOAT} {INT8}", "Try 'octavo compare -h'"
    ),
    Case("octavo bench", 2, "'FILE'", "Missing", "{FILE}...", "Try 'octavo bench -h'"),
    Case(
        *("octavo convert-target portable.onnx", 2),
        *("'--to'", "Missing option", "portable, native", "Choose from"),
    ),
    Case("octavo quantize m.onnx --recipie int8", 2, "option", "--recipie", "--recipe", _NEAR),
    Case(
        *("octavo quantize m.onnx --cpu sse", 2),
        *("'--cpu'", "'sse'", "'vnni', 'any'", "Try 'octavo quantize -h'"),
    ),
    Case(
        *("octavo quantize m.onnx --target nativ", 2),
        *("'--target'", "'nativ'", "'portable', 'native'", "Try 'octavo quantize -h'"),
    ),
    Case(
        *("octavo quantize m.onnx --format qlinear", 2),
        *("'--format'", "'qlinear'", "'qoperator', 'qdq'", "Try 'octavo quantize -h'"),
    ),
    Case(
        *("octavo quantize m.onnx --format qdq --target native", 2),
        *("--format", "'qdq'", "target 'native'", "leave one of them out"),
    ),
    Case(
        *("octavo quantize m.onnx --inputs data.npz --no-verify", 2),
        *("--inputs", "--no-verify", "one of them", "leave"),
    ),
    Case(
        *("octavo quantize m.onnx --report page.txt", 2),
        *("--report", "page.txt", ".html or .htm", "end the name with"),
    ),
    Case(
        *("octavo quantize m.onnx -o page.html --report page.html", 2),
        *("--report", "page.html is named twice", "a name of its own", "give"),
    ),
    Case(
        *("octavo quantize models:make --ops Conv", 2),
        *("--ops", "models:make is a PyTorch model", "for ONNX models", "leave it out"),
    ),
    Case(
        *("octavo convert-target portable.onnx --to native --cpu any", 2),
        *("--cpu", "native", "portable files", "leave it out"),
    ),
    Case("octavo bench m.onnx --shape xx=1x8", 2, "m.onnx", "'xx'", "Known: x", "Did you mean 'x'"),
    Case(
        *("octavo bench m.onnx --shape x=1x9", 2),
        *("m.onnx: the shape", "[1, 9]", "[m,32]", "give sizes that do"),
    ),
    Case(
        *("octavo bench m.onnx --shape x:1", 2),
        *("--shape", "'x:1'", "NAME=SIZExSIZE", "such as input_ids=1x128,attention_mask=1x128"),
    ),
    Case(
        *("octavo bench m.onnx --shape x=1x32,x=2x32", 2),
        *("--shape", "'x' is there twice", "each input once", "repeat --shape"),
    ),
    Case(
        *("octavo bench m.onnx --threads '1;2'", 2),
        *("--threads", "'1;2'", "numbers above 0 with commas", "such as 1,2"),
    ),
    Case("octavo bench m.onnx --seconds 0", 2, "--seconds", "0", "a number above 0", "give"),
    Case(
        *("octavo bench m.onnx --against openvino", 2),
        *("'--against'", "'openvino'", "'ort'", "Try 'octavo bench -h'"),
    ),
    Case(
        *("octavo bench models:make", 2),
        *("'models:make'", "a PyTorch model", "ONNX files", "octavo.measure.bench("),
    ),
)
