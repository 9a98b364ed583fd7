"""Writes down what is said in sound files, with a Whisper model in 8 bits.

python transcribe.py                                  # a sample: Whisper tiny.en, three prompts
python transcribe.py --model openai/whisper-base talk.flac
python transcribe.py --model openai/whisper-base --save whisper-int8 talk.flac
python transcribe.py --model whisper-int8 talk.flac   # opened by mapping
"""

import argparse
import sys
import time
from pathlib import Path

from octavo import OctavoError

RATE, SECONDS = 16_000, 30  # what Whisper hears at once; words at a border may be cut


def arguments() -> argparse.Namespace:
    """Return what the command line says, and samples for what it does not."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("sounds", nargs="*", metavar="SOUND", help="WAV, FLAC, OGG, MP3")
    parser.add_argument("--model", help="a Whisper checkpoint: folder, or name on the hub")
    parser.add_argument("--save", metavar="FOLDER", help="keep the quantized model there")
    parser.add_argument("--float", action="store_true", help="do not quantize, to compare")
    given = parser.parse_args()
    if missing := [name for name in given.sounds if not Path(name).is_file()]:
        parser.error(f"there is no file {missing[0]}")
    if not (given.model and given.sounds):
        from samples import sample

        given.model = given.model or sample("whisper")
        given.sounds = given.sounds or sample("speech")
    return given


def main(given: argparse.Namespace) -> None:
    """Load the model, then hear one file after the other."""
    print(f"loading {given.model}", file=sys.stderr)
    import soundfile
    import torch
    from scipy.signal import resample_poly
    from transformers import AutoConfig, AutoProcessor, WhisperForConditionalGeneration
    from transformers.utils import logging

    from octavo.torch.hub import OctavoConfig

    logging.set_verbosity_error()
    is_quantized = hasattr(AutoConfig.from_pretrained(given.model), "quantization_config")
    config = {} if given.float or is_quantized else {"quantization_config": OctavoConfig()}
    model = WhisperForConditionalGeneration.from_pretrained(given.model, **config)
    processor = AutoProcessor.from_pretrained(given.model)
    if given.save:
        model.save_pretrained(given.save)
        processor.save_pretrained(given.save)
    for name in given.sounds:
        sound, rate = soundfile.read(name, dtype="float32", always_2d=True)
        sound = resample_poly(sound.mean(axis=1), RATE, rate)
        start = time.perf_counter()
        for at in range(0, len(sound), SECONDS * RATE):
            part = sound[at : at + SECONDS * RATE]
            heard = processor(part, sampling_rate=RATE, return_tensors="pt").input_features
            with torch.inference_mode():
                ids = model.generate(heard)
            print(processor.batch_decode(ids, skip_special_tokens=True)[0].strip(), flush=True)
        took, seconds = time.perf_counter() - start, len(sound) / RATE
        print(f"    {seconds:.1f} s of {Path(name).name} took {took:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(arguments())
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImportError, OSError, OctavoError) as error:
        sys.exit(f"error: {error}")
