"""What tuning asks of an ONNX model (`octavo.results.target.Target`): `OnnxTarget`.

target  ->  writing      the layers under a recipe; quantized files, nothing compared
        ->  static       ONNX Runtime's own static quantizer
        ->  sensitivity  what quantizing some layers does to the outputs
        ->  inputs       made-up inputs that the model has run on
        ->  sessions     models opened and run, and the memory that they take
"""
