#!/usr/bin/env python3
"""Makes tests/data/model/tiny-*.gguf and tests/golden/model/tiny.txt: small random models, one per feature that the
Llama family varies (biases, q/k-norm, head size, tied output, Llama 3 and YaRN rope), with Hugging Face's float32
logits for them. Also tests/data/model/quantised_rows.gguf: random blocks of every quantisation and their values.

Needs PyPI's torch, transformers and gguf. Usage: make_tiny_models.py DATA_FOLDER > tiny.txt
    model NAME / ids ... / at POSITION all VOCAB LOGITS ...   (one `at` line per position shown)
"""
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

T = gguf.GGMLQuantizationType
VOCAB, CONTEXT = 96, 512
BASE = dict(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
    vocab_size=VOCAB, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5,
)


def rope(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(factor=4.0, original_max_position_embeddings=128)
MODELS = {
    "tiny-llama": (LlamaConfig, LlamaForCausalLM, {**BASE, **rope(), "tie_word_embeddings": True}, T.Q8_0),
    "tiny-llama3": (LlamaConfig, LlamaForCausalLM,
                    {**BASE, **rope("llama3", **LLAMA3), "tie_word_embeddings": False}, T.Q4_1),
    "tiny-linear": (LlamaConfig, LlamaForCausalLM,
                    {**BASE, **rope("linear", factor=2.5), "tie_word_embeddings": True, "attention_bias": True}, T.Q4_0),
    "tiny-yarn": (LlamaConfig, LlamaForCausalLM, {**BASE, **rope("yarn", **YARN), "tie_word_embeddings": True}, T.Q8_0),
    "tiny-qwen2": (Qwen2Config, Qwen2ForCausalLM,
                   {**BASE, **rope(theta=1e6), "tie_word_embeddings": True, "num_attention_heads": 8}, T.BF16),
    "tiny-qwen3": (Qwen3Config, Qwen3ForCausalLM,
                   {**BASE, **rope(theta=1e6), "tie_word_embeddings": False, "head_dim": 32}, T.F16),
}


def llama3_divisors(head_dim, theta, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings):
    """What converters store as rope_freqs.weight."""
    out = []
    for i in range(head_dim // 2):
        wavelength = 2 * np.pi * theta ** (2 * i / head_dim)
        turns = original_max_position_embeddings / wavelength
        if turns > high_freq_factor:
            out.append(1.0)
        elif turns < low_freq_factor:
            out.append(factor)
        else:
            smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def pairs_together(w, heads):
    """Hugging Face keeps rotary pairs half a head apart; Llama files keep them side by side."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def build(name, config_type, model_type, settings, kind, folder):
    torch.manual_seed(sum(map(ord, name)))
    config = config_type(**settings)
    model = model_type(config).float().eval()
    arch = config.model_type
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    w = gguf.GGUFWriter(folder / f"{name}.gguf", arch)
    w.add_name(name)
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    r = settings["rope_parameters"]
    w.add_rope_freq_base(r["rope_theta"])
    if head_dim != config.hidden_size // heads:
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    if r["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(r["rope_type"]))
        w.add_rope_scaling_factor(r["factor"])
    if r["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
    if r["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_divisors(head_dim, r["rope_theta"], **LLAMA3))

    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }
    with torch.no_grad():
        for key, p in model.named_parameters():
            # Wide enough that attention picks out tokens and every part shows in the logits.
            v = (1 + 0.3 * torch.randn_like(p)) if "norm" in key else torch.randn_like(p) * (0.3 if p.dim() == 1 else 0.2)
            v = v.numpy().astype(np.float32)
            parts = key.removeprefix("model.").split(".")
            if parts[0] == "layers":
                ours = f"blk.{parts[1]}.{names['.'.join(parts[2:-1])]}.{parts[-1]}"
            else:
                ours = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
                        "lm_head.weight": "output.weight"}[".".join(parts)]
            stored = v
            if arch == "llama" and "attn_q." in ours or arch == "llama" and "attn_k." in ours:
                stored = pairs_together(v, heads if "attn_q." in ours else kv_heads)
            if v.ndim == 1:
                w.add_tensor(ours, stored)
            else:
                packed = quantize(stored, kind)
                w.add_tensor(ours, packed, raw_dtype=kind)
                v = dequantize(packed, kind).reshape(v.shape)
                if stored is not None and arch == "llama" and ("attn_q." in ours or "attn_k." in ours):
                    n = heads if "attn_q." in ours else kv_heads
                    v = v.reshape(n, -1, 2, v.shape[1]).swapaxes(1, 2).reshape(v.shape)
            p.copy_(torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32)))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

        ids = np.random.default_rng(7).integers(0, VOCAB, 150)
        logits = model(torch.tensor(ids[None])).logits[0].numpy()
        print(f"model {name}\nids {' '.join(map(str, ids))}")
        for position in (0, 20, 149):
            print(f"at {position} all {' '.join(f'{x:.5f}' for x in logits[position])}")


def quantised_rows(folder):
    rng = np.random.default_rng(11)
    w = gguf.GGUFWriter(folder / "quantised_rows.gguf", "none")
    for kind in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q4_K, T.Q5_K, T.Q6_K, T.MXFP4):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = 2 * 256 // elements
        raw = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
        halves = lambda: (rng.standard_normal(blocks) * 0.05).astype(np.float16).view(np.uint8).reshape(blocks, 2)
        if kind in (T.F16, T.BF16):
            values = rng.standard_normal(blocks).astype(np.float32)
            raw = quantize(values.reshape(2, 256), kind).view(np.uint8).reshape(blocks, size)
        elif kind == T.MXFP4:
            raw[:, 0] = rng.integers(110, 135, blocks)
        elif kind == T.Q6_K:
            raw[:, -2:] = halves()
        else:
            raw[:, :2] = halves()
            if kind in (T.Q4_1, T.Q4_K, T.Q5_K):
                raw[:, 2:4] = halves()
        packed = raw.reshape(2, -1)
        w.add_tensor(f"{kind.name}.rows", packed, raw_dtype=kind)
        w.add_tensor(f"{kind.name}.values", dequantize(packed, kind).reshape(2, 256).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print("# Written by make_tiny_models.py; see there for the format.")
    for name, (config_type, model_type, settings, kind) in MODELS.items():
        build(name, config_type, model_type, settings, kind, folder)
    quantised_rows(folder)


main()
