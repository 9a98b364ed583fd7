"""Further families of transformers, small: none is measured, all have to come out whole."""

from __future__ import annotations

from benchmarks.zoo.family import Family, Inputs

TEXT = {"vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**TEXT, "tie_word_embeddings": False, "num_key_value_heads": 2}
BASE = (768, 4, 12, 3072)
GPT2 = ("n_embd", "n_layer", "n_head", "n_inner")
FALCON = ("hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_hidden_size")
XLNET = ("d_model", "n_layer", "n_head", "d_inner")
BART = (
    "d_model",
    "encoder_layers decoder_layers",
    "encoder_attention_heads decoder_attention_heads",
    "encoder_ffn_dim decoder_ffn_dim",
)
PAIR = {**TEXT, "decoder_start_token_id": 1, "max_position_embeddings": 256}
IMAGE = {"image_size": 32, "patch_size": 8}
WAVE = {
    **{"vocab_size": 32, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 2)},
    **{"conv_stride": (5, 2, 2), "num_conv_pos_embeddings": 16},
    "num_conv_pos_embedding_groups": 4,
}
PYRAMID = {
    **{"hidden_sizes": [16, 32], "num_attention_heads": [1, 2], "depths": [1, 1]},
    **{"num_encoder_blocks": 2, "strides": [4, 2], "mlp_ratios": [2, 2], "image_size": 32},
}
NONE = ("", "", "", "")
EAGER = ("eager",)

MORE = (
    Family("XLM-R", "XLMRobertaModel", BASE, also={**TEXT, "max_position_embeddings": 514}),
    Family("ALBERT", "AlbertModel", BASE, also={**TEXT, "embedding_size": 32}),
    Family("LayoutLM", "LayoutLMModel", BASE, also=TEXT, spellings=EAGER),
    Family(
        *("DeBERTa", "DebertaModel", BASE),
        also={
            **TEXT,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "max_relative_positions": 64,
        },
        spellings=EAGER,
    ),
    Family(
        *("Funnel", "FunnelModel", BASE),
        sizes=("d_model", "", "n_head", "d_inner"),
        also={"vocab_size": 512, "block_sizes": [1], "num_decoder_layers": 1, "d_head": 16},
        spellings=EAGER,
    ),
    Family(*("XLNet", "XLNetModel", BASE), sizes=XLNET, also={"vocab_size": 512}, spellings=EAGER),
    Family("SigLIP", "SiglipVisionModel", BASE, Inputs.IMAGE, also=IMAGE),
    Family(
        *("BEiT", "BeitModel", BASE, Inputs.IMAGE),
        also={**IMAGE, "use_relative_position_bias": True},
    ),
    Family(
        *("SegFormer", "SegformerModel", BASE, Inputs.IMAGE),
        sizes=NONE,
        also={**PYRAMID, "sr_ratios": [2, 1], "patch_sizes": [7, 3], "decoder_hidden_size": 32},
        spellings=EAGER,
    ),
    Family(
        *("PVT", "PvtModel", BASE, Inputs.IMAGE),
        sizes=NONE,
        also={**PYRAMID, "sequence_reduction_ratios": [2, 1], "patch_sizes": [4, 2]},
        spellings=EAGER,
    ),
    Family("HuBERT", "HubertModel", BASE, Inputs.WAVE, also=WAVE),
    Family(
        *("Conformer", "Wav2Vec2ConformerModel", BASE, Inputs.WAVE),
        also={**WAVE, "conv_depthwise_kernel_size": 5},
        spellings=EAGER,
    ),
    Family(
        *("Conformer, rotary", "Wav2Vec2ConformerModel", BASE, Inputs.WAVE),
        also={**WAVE, "conv_depthwise_kernel_size": 5, "position_embeddings_type": "rotary"},
        spellings=EAGER,
    ),
    Family(
        *("Pegasus", "PegasusModel", BASE, Inputs.TRANSLATION),
        sizes=BART,
        also=PAIR,
        attentions=3,
    ),
    Family(*("mBART", "MBartModel", BASE, Inputs.TRANSLATION), sizes=BART, also=PAIR, attentions=3),
    Family(
        *("M2M100", "M2M100Model", BASE, Inputs.TRANSLATION), sizes=BART, also=PAIR, attentions=3
    ),
    Family(
        *("Falcon", "FalconModel", BASE),
        sizes=FALCON,
        also={**TEXT, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    Family("GPT-J", "GPTJModel", BASE, sizes=GPT2, also={**TEXT, "rotary_dim": 8}, spellings=EAGER),
    Family(
        *("CodeGen", "CodeGenModel", BASE),
        sizes=GPT2,
        also={**TEXT, "rotary_dim": 8},
        spellings=EAGER,
    ),
    Family(
        *("GPT-Neo", "GPTNeoModel", BASE),
        sizes=("hidden_size", "num_layers", "num_heads", "intermediate_size"),
        also={**TEXT, "attention_types": [[["global", "local"], 1]], "window_size": 6},
        spellings=EAGER,
    ),
    Family(
        *("MPT", "MptModel", BASE),
        sizes=("d_model", "n_layers", "n_heads", ""),
        also=TEXT,
        spellings=EAGER,
    ),
    *(
        Family(name, kind, BASE, also=DECODER)
        for name, kind in (
            ("Granite", "GraniteModel"),
            ("OLMo2", "Olmo2Model"),
            ("Phi", "PhiModel"),
            ("SmolLM3", "SmolLM3Model"),
            ("StableLM", "StableLmModel"),
            ("Starcoder2", "Starcoder2Model"),
        )
    ),
)
