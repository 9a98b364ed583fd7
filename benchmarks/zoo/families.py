"""Families of transformers by name: random weights, published widths cut to a few layers.

A row of the table says which class of `transformers` (or of `family_blocks`) it is, how wide it is
as published and how wide for tests, and what it is called with. `family_models` makes models and
what they are called with, `family_exports` their ONNX files.
"""

from __future__ import annotations

from benchmarks.zoo.family import Family, Inputs

TOKENS = 512
"""Of the vocabulary: only tables and heads, which are not measured, would be larger."""
_TEXT = {"vocab_size": TOKENS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_DECODER = {**_TEXT, "tie_word_embeddings": False}
_BASE = (768, 4, 12, 3072)
_DISTILBERT = ("dim", "n_layers", "n_heads", "hidden_dim")
_GPT2 = ("n_embd", "n_layer", "n_head", "n_inner")
_T5 = ("d_model", "num_layers num_decoder_layers", "num_heads", "d_ff")
_BART = (
    "d_model",
    "encoder_layers decoder_layers",
    "encoder_attention_heads decoder_attention_heads",
    "encoder_ffn_dim decoder_ffn_dim",
)
_SEQUENCES = {**_TEXT, "decoder_start_token_id": 1, "max_position_embeddings": 256}
_GATED_T5 = {
    **_TEXT,
    "feed_forward_proj": "gated-gelu",
    "decoder_start_token_id": 1,
    "is_encoder_decoder": True,
}
_WHISPER = {**_TEXT, "decoder_start_token_id": 1, "max_target_positions": 256}
_SMALL_WHISPER = {"num_mel_bins": 8, "max_source_positions": 40}
_SMALL_IMAGE = {"image_size": 32, "patch_size": 8}
_SMALL_KV = {"num_key_value_heads": 2}
_SMALL_HEADS = {**_SMALL_KV, "head_dim": 16}

_ENCODERS = (
    Family("BERT", "BertModel", _BASE, also=_TEXT),
    Family("RoBERTa", "RobertaModel", _BASE, also={**_TEXT, "max_position_embeddings": 514}),
    Family("DistilBERT", "DistilBertModel", _BASE, sizes=_DISTILBERT, also=_TEXT),
    Family(
        *("ELECTRA", "ElectraModel", _BASE),
        also=_TEXT,
        also_published={"embedding_size": 768},
        also_small={"embedding_size": 32},
    ),
    Family("MPNet", "MPNetModel", _BASE, also=_TEXT, spellings=("eager",)),
    Family(
        *("DeBERTa-v2", "DebertaV2Model", _BASE),
        also={
            **_TEXT,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 256,
            "max_relative_positions": -1,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
        also_small={"position_buckets": 8},
        spellings=("eager",),
    ),
    Family("NomicBERT", "NomicBertModel", _BASE, also=_TEXT, also_small={"head_dim": 16}),
    Family(
        *("ModernBERT", "ModernBertModel", (768, 4, 12, 1152)),
        also={**_TEXT, "cls_token_id": 1, "sep_token_id": 2},
        also_small={"local_attention": 8},
    ),
    Family(
        *("CLIP text", "CLIPTextModel", (512, 4, 8, 2048)),
        also={**_TEXT, "max_position_embeddings": 128},
    ),
)
_IMAGES = (
    Family("ViT", "ViTModel", _BASE, Inputs.IMAGE, also_small=_SMALL_IMAGE),
    Family("DeiT", "DeiTModel", _BASE, Inputs.IMAGE, also_small=_SMALL_IMAGE),
    Family(
        *("DINOv2", "Dinov2Model", _BASE, Inputs.IMAGE),
        sizes=("hidden_size", "num_hidden_layers", "num_attention_heads", ""),
        also_published={"image_size": 224, "patch_size": 14},
        also_small={**_SMALL_IMAGE, "mlp_ratio": 2},
    ),
    Family(
        *("Swin", "SwinModel", (96, 4, 3, 384), Inputs.IMAGE),
        small=(16, 4, 2, 64),
        sizes=("embed_dim", "", "", ""),
        also_published={"depths": [1, 1, 2], "num_heads": [3, 6, 12]},
        also_small={
            **{"depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
            **{"image_size": 32, "patch_size": 2},
        },
    ),
    Family(
        *("CLIP vision", "CLIPVisionModel", _BASE, Inputs.IMAGE),
        also_published={"patch_size": 16},
        also_small=_SMALL_IMAGE,
    ),
)
_SOUND = (
    Family(
        *("Whisper encoder", "WhisperModel", (512, 4, 8, 2048), Inputs.MEL),
        sizes=_BART,
        also=_WHISPER,
        also_small=_SMALL_WHISPER,
        part="encoder",
    ),
    Family(
        *("wav2vec2", "Wav2Vec2Model", _BASE, Inputs.WAVE),
        also={"vocab_size": 32},
        also_small={
            **{"conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 2), "conv_stride": (5, 2, 2)},
            **{"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
        },
    ),
)
_PAIRS = (
    Family(
        *("T5 encoder", "T5Model", (768, 4, 12, 2048)),
        sizes=_T5,
        also=_GATED_T5,
        also_small={"d_kv": 16},
        part="encoder",
    ),
    Family(
        *("T5 decoder", "T5Model", (768, 4, 12, 2048), Inputs.CROSS_TEXT),
        sizes=_T5,
        also=_GATED_T5,
        also_small={"d_kv": 16},
        part="decoder",
        attentions=2,
        cached=True,
        head="T5ForConditionalGeneration",
    ),
    Family("BART encoder", "BartModel", _BASE, sizes=_BART, also=_SEQUENCES, part="encoder"),
    Family(
        *("BART decoder", "BartModel", _BASE, Inputs.CROSS_TEXT),
        sizes=_BART,
        also=_SEQUENCES,
        part="decoder",
        attentions=2,
        cached=True,
        head="BartForConditionalGeneration",
    ),
    Family(
        *("Whisper decoder", "WhisperModel", (512, 4, 8, 2048), Inputs.CROSS_TEXT),
        sizes=_BART,
        also=_WHISPER,
        also_small=_SMALL_WHISPER,
        part="decoder",
        attentions=2,
        cached=True,
        head="WhisperForConditionalGeneration",
    ),
    Family(
        *("Marian", "MarianModel", (512, 4, 8, 2048), Inputs.TRANSLATION),
        sizes=_BART,
        also=_SEQUENCES,
        attentions=3,
        head="MarianMTModel",
    ),
)
_DECODERS = (
    Family(
        *("Llama", "LlamaModel", (2048, 4, 32, 8192)),
        also=_DECODER,
        also_published={"num_key_value_heads": 8, "head_dim": 64},
        also_small=_SMALL_HEADS,
        cached=True,
        head="LlamaForCausalLM",
    ),
    Family(
        *("Qwen2", "Qwen2Model", (896, 4, 14, 4864)),
        also=_DECODER,
        also_published={"num_key_value_heads": 2},
        also_small=_SMALL_KV,
        cached=True,
        head="Qwen2ForCausalLM",
    ),
    Family(
        *("Qwen3", "Qwen3Model", (1024, 4, 16, 3072)),
        also=_DECODER,
        also_published={"num_key_value_heads": 8, "head_dim": 128},
        also_small=_SMALL_HEADS,
        cached=True,
        head="Qwen3ForCausalLM",
    ),
    Family(  # the shape of H2O-Danube2 1.8B; two layers, as four take two gigabytes
        *("Mistral", "MistralModel", (2560, 2, 32, 6912)),
        also=_DECODER,
        also_published={"num_key_value_heads": 8, "head_dim": 80, "sliding_window": 64},
        also_small={**_SMALL_HEADS, "sliding_window": 6},
        cached=True,
        head="MistralForCausalLM",
    ),
    Family(
        *("Gemma 2", "Gemma2Model", (2304, 2, 8, 9216)),
        also=_DECODER,
        also_published={"num_key_value_heads": 4, "head_dim": 256},
        also_small={**_SMALL_HEADS, "sliding_window": 6, "query_pre_attn_scalar": 16},
        cached=True,
        head="Gemma2ForCausalLM",
        spellings=("eager",),
    ),
    Family(
        *("Gemma 3", "Gemma3TextModel", (640, 4, 4, 2048)),
        also=_DECODER,
        also_published={"num_key_value_heads": 1, "sliding_window": 64, "layer_types": None},
        also_small={**_SMALL_HEADS, "sliding_window": 6, "query_pre_attn_scalar": 16},
        cached=True,
        head="Gemma3ForCausalLM",
    ),
    Family(
        *("Phi-3", "Phi3Model", (3072, 2, 32, 8192)),
        also={**_DECODER, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        also_published={"num_key_value_heads": 32},
        also_small=_SMALL_KV,
        cached=True,
        head="Phi3ForCausalLM",
    ),
    Family(
        *("GPT-2", "GPT2Model", _BASE),
        sizes=_GPT2,
        also=_TEXT,
        cached=True,
        head="GPT2LMHeadModel",
    ),
    Family(
        *("GPT-NeoX", "GPTNeoXModel", (1024, 4, 16, 4096)),
        also=_DECODER,
        cached=True,
        head="GPTNeoXForCausalLM",
    ),
    Family(
        *("OPT", "OPTModel", _BASE),
        sizes=(
            "hidden_size word_embed_proj_dim",
            "num_hidden_layers",
            "num_attention_heads",
            "ffn_dim",
        ),
        also={**_TEXT, "max_position_embeddings": 256},
        cached=True,
        head="OPTForCausalLM",
    ),
)
_PLAIN = ("sdpa",)
_OTHERS = (
    Family(
        *("nn.TransformerEncoder", "transformer_encoder", _BASE, Inputs.STATES),
        sizes=("width", "layers", "heads", "inner"),
        spellings=_PLAIN,
    ),
    Family(
        *("nn.TransformerDecoder", "transformer_decoder", _BASE, Inputs.CROSS_STATES),
        sizes=("width", "layers", "heads", "inner"),
        attentions=2,
        spellings=_PLAIN,
    ),
    Family(
        *("BLOOM", "BloomModel", (1024, 4, 16, 4096)),
        sizes=("hidden_size", "n_layer", "n_head", ""),
        also=_TEXT,
        cached=True,
        head="BloomForCausalLM",
        spellings=("eager",),
        named=False,
    ),
    Family(
        *("Cohere", "CohereModel", (1024, 4, 16, 2816)),
        also=_DECODER,
        also_published={"num_key_value_heads": 4},
        also_small=_SMALL_KV,
        cached=True,
        head="CohereForCausalLM",
        named=False,
    ),
    Family(
        *("own blocks", "OwnBlocks", _BASE, Inputs.STATES),
        sizes=("width", "layers", "heads", "inner"),
        spellings=_PLAIN,
        named=False,
    ),
)
FAMILIES: dict[str, Family] = {
    family.name: family for family in (*_ENCODERS, *_IMAGES, *_SOUND, *_PAIRS, *_DECODERS, *_OTHERS)
}
