"""Talks with a language model of 4 bits in the terminal; words appear as they are made.

    python chat.py                                        # a sample: SmolLM2-135M-Instruct, GGUF
    python chat.py HuggingFaceTB/SmolLM2-360M-Instruct    # a folder or a name on the hub
    python chat.py model.gguf --prompt "Name three rivers." > answer.txt

Ctrl-C ends it, or an empty line. A model without a chat template goes on with your text.
"""

import argparse
import sys
import time
from pathlib import Path

from octavo import OctavoError


def arguments() -> argparse.Namespace:
    """Return what the command line says, and the sample where it names no model."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("model", nargs="?", help="GGUF file, folder, or name on the hub")
    parser.add_argument("--prompt", help="one question; without it, a talk")
    parser.add_argument("--recipe", default="int4", help="for float weights (default: int4)")
    parser.add_argument("--tokens", type=int, default=200, help="of an answer (default: 200)")
    given = parser.parse_args()
    if not given.model:
        from samples import sample

        given.model = sample("language_model")
    return given


def load(path: str, recipe: str):
    """Model and tokenizer. Integers of a GGUF file are kept; float weights become `recipe`'s."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from octavo.torch.hub import OctavoConfig, load_gguf

    if path.endswith(".gguf"):
        model, file = load_gguf(path), Path(path)
        return model, AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    is_quantized = hasattr(AutoConfig.from_pretrained(path), "quantization_config")
    config = {} if is_quantized else {"quantization_config": OctavoConfig(recipe=recipe)}
    model = AutoModelForCausalLM.from_pretrained(path, **config)
    return model, AutoTokenizer.from_pretrained(path)


def main(given: argparse.Namespace) -> None:
    """One answer with --prompt, else a question and an answer until an empty line."""
    print(f"loading {given.model}", file=sys.stderr)
    import torch
    from transformers import TextStreamer

    model, tokenizer = load(given.model, given.recipe)
    screen, talk = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True), []
    while text := given.prompt or input("> "):
        talk.append({"role": "user", "content": text})
        if as_chat := bool(tokenizer.chat_template):
            text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=not as_chat)
        start = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(**ids, streamer=screen, max_new_tokens=given.tokens)
        answer = made[0, ids["input_ids"].shape[1] :]
        speed = len(answer) / (time.perf_counter() - start)
        print(f"    {len(answer)} tokens, {speed:.0f} a second", file=sys.stderr)
        talk.append({"role": "assistant", "content": tokenizer.decode(answer, True)})
        if given.prompt:
            return


if __name__ == "__main__":
    try:
        main(arguments())
    except (EOFError, KeyboardInterrupt):  # Ctrl-D, Ctrl-C
        sys.exit(130)
    except (ImportError, OSError, OctavoError) as error:
        sys.exit(f"error: {error}")
