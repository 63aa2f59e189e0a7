"""Writes the language model in llama.cpp's format with the same weights: Q8_0 or Q4_0, quantized by
the gguf package.
"""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper


# long: the fields of the file in their order
def write(model, path, kind, context, dims, ids):
    """Writes a GGUF file.

    Args:
        model: the ONNX model in float32 (models.language_model).
        kind: "Q8_0" or "Q4_0", for all matrix products including the logits; embeddings are
            float16.
        ids: tokens that a prompt can contain, written with spell(). They are marked as
            user-defined, since a tokenizer matches those first.
    """
    import gguf

    weights = {i.name: i for i in model.graph.initializer}
    quantized = gguf.GGMLQuantizationType[kind]
    w = gguf.GGUFWriter(str(path), "llama")
    heads, kv_heads, head_dim = dims["heads"], dims["kv_heads"], dims["head_dim"]
    w.add_name("bench")
    w.add_context_length(context)
    w.add_embedding_length(dims["width"])
    w.add_block_count(dims["layers"])
    w.add_feed_forward_length(dims["inner"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_rope_dimension_count(head_dim)
    w.add_rope_freq_base(dims["theta"])
    w.add_layer_norm_rms_eps(dims["epsilon"])
    w.add_vocab_size(dims["vocab"])
    w.add_file_type(gguf.LlamaFileType["MOSTLY_" + kind])
    ids = set(ids)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("default")
    w.add_token_list([spell(i) if i in ids else f"t{i}" for i in range(dims["vocab"])])
    w.add_token_types(
        [
            gguf.TokenType.USER_DEFINED if i in ids else gguf.TokenType.NORMAL
            for i in range(dims["vocab"])
        ]
    )
    w.add_token_merges(["t 0"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(False)

    def add(name, source, heads=0, product=True):
        a = numpy_helper.to_array(weights[source])
        a = a if a.ndim == 1 else a.T if product else a  # the rows of a weight are outputs here
        if heads:  # rotary embedding on adjacent pairs, where the ONNX graph rotates halves
            a = a.reshape(heads, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(a.shape)
        if a.ndim == 1:
            w.add_tensor(name, np.ascontiguousarray(a, np.float32))
        elif product:
            w.add_tensor(
                name, gguf.quants.quantize(np.ascontiguousarray(a), quantized), raw_dtype=quantized
            )
        else:
            w.add_tensor(name, a.astype(np.float16))

    add("token_embd.weight", "model.embed_tokens.weight", product=False)
    add("output.weight", "lm_head.weight")
    add("output_norm.weight", "model.norm.weight")
    for i in range(dims["layers"]):
        here, there = f"blk.{i}.", f"model.layers.{i}."
        add(here + "attn_norm.weight", there + "input_layernorm.weight")
        add(here + "ffn_norm.weight", there + "post_attention_layernorm.weight")
        add(here + "attn_q.weight", there + "self_attn.q_proj.weight", heads)
        add(here + "attn_k.weight", there + "self_attn.k_proj.weight", kv_heads)
        for name, source in (
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ):
            add(f"{here}{name}.weight", f"{there}{source}.weight")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def spell(token):
    """The text of a token."""
    return f"<{token}>"
