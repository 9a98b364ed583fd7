"""Further families of transformers, small: none is measured, all have to come out whole."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.family import Family, Inputs

GPT2 = ("n_embd", "n_layer", "n_head", "n_inner")
FALCON = ("hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_hidden_size")
XLNET = ("d_model", "n_layer", "n_head", "d_inner")
FUNNEL = ("d_model", "", "n_head", "d_inner")
GPT_NEO = ("hidden_size", "num_layers", "num_heads", "intermediate_size")
MPT = ("d_model", "n_layers", "n_heads", "")
BART = (
    "d_model",
    "encoder_layers decoder_layers",
    "encoder_attention_heads decoder_attention_heads",
    "encoder_ffn_dim decoder_ffn_dim",
)
NONE = ("", "", "", "")
SMALL = {"vocab_size": 512}
TEXT = {**SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**TEXT, "tie_word_embeddings": False, "num_key_value_heads": 2}
PAIR = {**TEXT, "decoder_start_token_id": 1, "max_position_embeddings": 256}
IMAGE = {"image_size": 32, "patch_size": 8}
WAVE = {"vocab_size": 32, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 2)}
WAVE |= {"conv_stride": (5, 2, 2), "num_conv_pos_embeddings": 16}
WAVE |= {"num_conv_pos_embedding_groups": 4}
CONFORMER = {**WAVE, "conv_depthwise_kernel_size": 5}
PYRAMID = {"hidden_sizes": [16, 32], "num_attention_heads": [1, 2], "depths": [1, 1]}
PYRAMID |= {"num_encoder_blocks": 2, "strides": [4, 2], "mlp_ratios": [2, 2], "image_size": 32}
SEGFORMER = {**PYRAMID, "sr_ratios": [2, 1], "patch_sizes": [7, 3], "decoder_hidden_size": 32}
PVT = {**PYRAMID, "sequence_reduction_ratios": [2, 1], "patch_sizes": [4, 2]}
DEBERTA = {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
FUNNEL_BLOCKS = {**SMALL, "block_sizes": [1], "num_decoder_layers": 1, "d_head": 16}
LOCAL = {**TEXT, "attention_types": [[["global", "local"], 1]], "window_size": 6}


def row(name: str, kind: str, also: dict[str, Any], **more: Any) -> Family:
    """A family of BERT's size."""
    return Family(name, kind, (768, 4, 12, 3072), also=also, **more)


def eager(name: str, kind: str, also: dict[str, Any], **more: Any) -> Family:
    """One that has no other implementation of attention."""
    return row(name, kind, also, spellings=("eager",), **more)


PICTURES, SOUND, TRANSLATED = (
    {"inputs": Inputs.IMAGE},
    {"inputs": Inputs.WAVE},
    {"inputs": Inputs.TRANSLATION, "sizes": BART, "attentions": 3},
)
MORE = (
    row("XLM-R", "XLMRobertaModel", {**TEXT, "max_position_embeddings": 514}),
    row("ALBERT", "AlbertModel", {**TEXT, "embedding_size": 32}),
    eager("LayoutLM", "LayoutLMModel", TEXT),
    eager("DeBERTa", "DebertaModel", {**DEBERTA, "max_relative_positions": 64}),
    eager("Funnel", "FunnelModel", FUNNEL_BLOCKS, sizes=FUNNEL),
    eager("XLNet", "XLNetModel", SMALL, sizes=XLNET),
    row("SigLIP", "SiglipVisionModel", IMAGE, **PICTURES),
    row("BEiT", "BeitModel", {**IMAGE, "use_relative_position_bias": True}, **PICTURES),
    eager("SegFormer", "SegformerModel", SEGFORMER, sizes=NONE, **PICTURES),
    eager("PVT", "PvtModel", PVT, sizes=NONE, **PICTURES),
    row("HuBERT", "HubertModel", WAVE, **SOUND),
    eager("Conformer", "Wav2Vec2ConformerModel", CONFORMER, **SOUND),
    eager(
        "Conformer, rotary",
        "Wav2Vec2ConformerModel",
        {**CONFORMER, "position_embeddings_type": "rotary"},
        **SOUND,
    ),
    row("Pegasus", "PegasusModel", PAIR, **TRANSLATED),
    row("mBART", "MBartModel", PAIR, **TRANSLATED),
    row("M2M100", "M2M100Model", PAIR, **TRANSLATED),
    row(
        "Falcon",
        "FalconModel",
        {**TEXT, "new_decoder_architecture": True, "num_kv_heads": 2},
        sizes=FALCON,
    ),
    eager("GPT-J", "GPTJModel", {**TEXT, "rotary_dim": 8}, sizes=GPT2),
    eager("CodeGen", "CodeGenModel", {**TEXT, "rotary_dim": 8}, sizes=GPT2),
    eager("GPT-Neo", "GPTNeoModel", LOCAL, sizes=GPT_NEO),
    eager("MPT", "MptModel", TEXT, sizes=MPT),
    row("Granite", "GraniteModel", DECODER),
    row("OLMo2", "Olmo2Model", DECODER),
    row("Phi", "PhiModel", DECODER),
    row("SmolLM3", "SmolLM3Model", DECODER),
    row("StableLM", "StableLmModel", DECODER),
    row("Starcoder2", "Starcoder2Model", DECODER),
)
