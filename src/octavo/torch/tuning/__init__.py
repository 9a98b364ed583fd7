"""What tuning asks of a PyTorch model (`octavo.results.target.Target`): `TorchTarget`.

target  ->  calls        inputs by name, outputs as arrays
        ->  made_up      inputs in the place of real ones, of what `drawing` draws
        ->  sensitivity  what quantizing some layers does to the outputs
        ->  memory       bytes in a fresh process
"""
