"""What tuning asks of ONNX models (`octavo.recipe.target.Target`): see `octavo.onnx.OnnxTarget`."""
