"""A quantized file beside the float model that it was made from: outputs, and layer by layer.

probes   ->  values that both graphs share, sessions that show them, layers run alone
pairing  ->  which layers are quantized, and the values that show them
compare  ->  errors of outputs and layers
"""
