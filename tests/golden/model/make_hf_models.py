#!/usr/bin/env python3
"""Makes tests/data/model/hf-*: small random models as Hugging Face folders, one per family and per way of storing, and
on standard output transformers' float32 logits for them, in the format of tiny.txt.

Needs PyPI's torch, transformers 4.57, safetensors and gguf. Usage: make_hf_models.py DATA_FOLDER > hf.txt
"""
import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers as t
from safetensors.torch import save_file
from tokenizers import Tokenizer

VOCAB, CONTEXT, WINDOW = 96, 512, 40
BASE = dict(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
    vocab_size=VOCAB, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager",
)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128)
GEMMA = dict(head_dim=32, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, query_pre_attn_scalar=24,
             sliding_window=WINDOW)
DEEPSEEK = dict(kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=24, v_head_dim=20, num_key_value_heads=4,
                moe_intermediate_size=24, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1,
                routed_scaling_factor=1.5)
GPT_OSS = dict(num_local_experts=4, num_experts_per_tok=2, head_dim=16, sliding_window=WINDOW, rope_theta=1e4,
               rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                 original_max_position_embeddings=128))
# Without mscale_all_dim in DeepSeek V2: transformers 4.57 leaves it out of the scores there, DeepSeek's own code does not.
LONG = dict(type="longrope", short_factor=[1.0, 1.3, 2.0, 3.0], long_factor=[1.0, 2.0, 4.0, 8.0])
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32

# name: configuration, model, settings, how the weights are stored, bytes of a part (None: one file)
MODELS = {
    "hf-llama": (t.LlamaConfig, t.LlamaForCausalLM, dict(rope_scaling=LLAMA3, rope_theta=10000.0), BF16, 40_000),
    "hf-yarn": (t.LlamaConfig, t.LlamaForCausalLM,
                dict(rope_scaling=YARN, tie_word_embeddings=True, num_hidden_layers=1, attention_bias=True), F32, None),
    "hf-qwen2": (t.Qwen2Config, t.Qwen2ForCausalLM, dict(rope_theta=1e6, tie_word_embeddings=True), F16, None),
    "hf-qwen3": (t.Qwen3Config, t.Qwen3ForCausalLM, dict(rope_theta=1e6, head_dim=32), F16, None),
    "hf-mistral": (t.MistralConfig, t.MistralForCausalLM, dict(sliding_window=WINDOW, head_dim=32, intermediate_size=64), BF16, None),
    "hf-ministral": (t.MinistralConfig, t.MinistralForCausalLM,
                     dict(sliding_window=WINDOW, head_dim=16, intermediate_size=64,
                          layer_types=["full_attention", "sliding_attention"]), BF16, None),
    "hf-mixtral": (t.MixtralConfig, t.MixtralForCausalLM,
                   dict(num_local_experts=3, num_experts_per_tok=2, intermediate_size=48, sliding_window=None), BF16, None),
    "hf-qwen3moe": (t.Qwen3MoeConfig, t.Qwen3MoeForCausalLM,
                    dict(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                         head_dim=16), BF16, None),
    "hf-gemma2": (t.Gemma2Config, t.Gemma2ForCausalLM,
                  dict(**GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0), BF16, None),
    "hf-gemma3": (t.Gemma3TextConfig, t.Gemma3ForCausalLM,
                  dict(**{**GEMMA, "head_dim": 16}, num_hidden_layers=3, intermediate_size=64, rope_theta=1e6, rope_local_base_freq=10000.0,
                       rope_scaling=dict(rope_type="linear", factor=8.0),
                       layer_types=["sliding_attention", "sliding_attention", "full_attention"]), BF16, None),
    "hf-phi3": (t.Phi3Config, t.Phi3ForCausalLM,
                dict(partial_rotary_factor=0.5, rope_scaling=LONG, original_max_position_embeddings=256), BF16, None),
    "hf-deepseek2": (t.DeepseekV2Config, t.DeepseekV2ForCausalLM,
                     dict(**DEEPSEEK, q_lora_rank=40, n_routed_experts=6, topk_method="group_limited_greedy", n_group=3,
                          topk_group=2, num_hidden_layers=3), BF16, None),
    "hf-deepseek2-lite": (t.DeepseekV2Config, t.DeepseekV2ForCausalLM,
                          dict(**DEEPSEEK, q_lora_rank=None, n_routed_experts=5, topk_method="greedy",
                               rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=128,
                                                 mscale=0.707)), BF16, None),
    "hf-deepseek3": (t.DeepseekV3Config, t.DeepseekV3ForCausalLM,
                     dict(**DEEPSEEK, q_lora_rank=40, n_routed_experts=8, n_group=4, topk_group=2, norm_topk_prob=True,
                          rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=128, mscale=1.0,
                                            mscale_all_dim=1.0, beta_fast=32, beta_slow=1)), BF16, None),
    "hf-gpt-oss": (t.GptOssConfig, t.GptOssForCausalLM, dict(**GPT_OSS, intermediate_size=48), BF16, None),
    "hf-phi4": (t.Phi3Config, t.Phi3ForCausalLM, dict(num_hidden_layers=1, sliding_window=WINDOW), BF16, None),
}


def of_gguf(path):
    """The weights of tiny-qwen3.gguf by transformers' names: a folder and a file of the same model."""
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    out = {}
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split(".")
        name = f"model.layers.{parts[1]}.{names[parts[2]]}" if parts[0] == "blk" else outer[parts[0]]
        out[name + ".weight"] = torch.from_numpy(np.array(tensor.data).astype(np.float32))
    return out


def fill(model, dtype, given):
    """Wide enough that attention picks out tokens and every part shows in the logits; and as precise as stored."""
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key in given:
                p.copy_(given[key])
                continue
            gemma = "Gemma" in type(model).__name__
            # Of gpt-oss's experts as wide as it takes to reach the limits of their unit.
            wide = 1.0 if "sinks" in key or key.endswith("gate_up_proj") else 0.5 if "router.weight" in key else \
                0.3 if p.dim() == 1 else 0.5 if "gate.weight" in key and "experts" not in key else 0.2
            v = torch.randn_like(p) * wide + (1 if "norm" in key and not gemma else 0)
            p.copy_(v.to(dtype).float())
        for key, p in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                p.copy_(torch.randn_like(p) * 0.1)


def four_bits(v, symmetric):
    """Numbers, zero points and scales of groups of 32 columns; scales are short, so that products with zero points are
    exact."""
    groups = v.reshape(v.shape[0], -1, 32)
    low, high = groups.min(2), groups.max(2)
    scale = (np.abs(groups).max(2) / 7 if symmetric else (high - low) / 15).astype(np.float32)
    scale = ((scale.view(np.uint32) + 0x10000) & 0xFFFE0000).view(np.float32)
    zero = np.full(scale.shape, 8.0, np.float32) if symmetric else np.clip(np.rint(-low / scale), 1, 15)
    q = np.clip(np.rint(groups / scale[..., None]) + zero[..., None], 0, 15)
    return q.reshape(v.shape).astype(np.uint32), zero.astype(np.uint32), scale, \
        ((q - zero[..., None]) * scale[..., None]).reshape(v.shape)


def words(q, order):
    """Eight 4-bit columns in each 32 bits: `order[k]` is the column that is k-th from below."""
    eight = q.reshape(q.shape[0], -1, 8)[:, :, order].astype(np.uint64)
    return (eight << (4 * np.arange(8, dtype=np.uint64))).sum(2).astype(np.uint32).view(np.int32)


IN_ORDER, AWQ_ORDER = list(range(8)), [0, 2, 4, 6, 1, 3, 5, 7]


def pack(method, module, v):
    """A matrix as GPTQ, AWQ and FP8 checkpoints have it, and what it stands for."""
    if method == "fp8":
        scale = np.abs(v).max() / 448
        scale = np.float32(np.ldexp(1.0, int(np.ceil(np.log2(scale)))))  # products are exact in BF16
        stored = torch.from_numpy(v / scale).to(torch.float8_e4m3fn)
        blocks = torch.full([-(-n // 32) for n in v.shape], float(scale))
        return {module + ".weight": stored, module + ".weight_scale_inv": blocks}, stored.float().numpy() * scale
    q, zero, scale, meant = four_bits(v, "down" in module)
    parts = {module + ".scales": torch.from_numpy(scale.T.astype(np.float16).copy())}
    if method == "gptq":
        parts[module + ".qweight"] = torch.from_numpy(words(q, IN_ORDER).T.copy())
        parts[module + ".qzeros"] = torch.from_numpy(words((zero - 1).T, IN_ORDER).copy())
        parts[module + ".g_idx"] = torch.arange(v.shape[1], dtype=torch.int32) // 32
    else:
        parts[module + ".qweight"] = torch.from_numpy(words(q.T, AWQ_ORDER).copy())
        parts[module + ".qzeros"] = torch.from_numpy(words(zero.T, AWQ_ORDER).copy())
    return parts, meant


PACKED = {"hf-gptq": dict(quant_method="gptq", bits=4, group_size=32, desc_act=False, sym=False),
          "hf-awq": dict(quant_method="awq", bits=4, group_size=32, version="gemm", zero_point=True),
          "hf-fp8": dict(quant_method="fp8", weight_block_size=[32, 32], activation_scheme="dynamic")}


def packed(name, how, folder):
    torch.manual_seed(sum(map(ord, name)))
    config = t.LlamaConfig(**{**BASE, "num_hidden_layers": 1})
    model = t.LlamaForCausalLM(config).float().eval()
    fill(model, F16, {})
    tensors = {}
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "_proj" not in key:
                tensors[key] = p.half().clone()
                continue
            parts, meant = pack(how["quant_method"], key.removesuffix(".weight"), p.numpy())
            tensors.update(parts)
            p.copy_(torch.from_numpy(np.ascontiguousarray(meant)))
    at = folder / name
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir()
    (at / "config.json").write_text(json.dumps({**config.to_dict(), "quantization_config": how}, indent=1, default=str) + "\n")
    save_file(tensors, at / "model.safetensors")
    show(name, model)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def mxfp4(v):
    """[experts, in, out] as blocks and scales of [experts, out, in / 32], and what they stand for."""
    groups = np.swapaxes(v, 1, 2).reshape(v.shape[0], v.shape[2], -1, 32)
    exponent = np.floor(np.log2(np.abs(groups).max(3))) - 2
    code = np.abs(groups[..., None] / np.exp2(exponent)[..., None, None] - E2M1).argmin(4).astype(np.uint8)
    meant = E2M1[code] * np.exp2(exponent)[..., None]
    blocks = code[..., 0::2] | code[..., 1::2] << 4
    return torch.from_numpy(np.ascontiguousarray(blocks)), torch.from_numpy(np.ascontiguousarray(exponent + 127).astype(np.uint8)), \
        np.swapaxes(meant.reshape(v.shape[0], v.shape[2], v.shape[1]), 1, 2).astype(np.float32)


def gpt_oss_mxfp4(name, folder):
    """As the released models are: experts in MXFP4, the rest in BF16."""
    torch.manual_seed(sum(map(ord, name)))
    config = t.GptOssConfig(**{**BASE, **GPT_OSS, "num_hidden_layers": 1, "intermediate_size": 32})
    model = t.GptOssForCausalLM(config).float().eval()
    fill(model, BF16, {})
    tensors = {}
    with torch.no_grad():
        for key, p in model.named_parameters():
            if not key.endswith(("gate_up_proj", "down_proj")):
                tensors[key] = p.bfloat16()
                continue
            tensors[key + "_blocks"], tensors[key + "_scales"], meant = mxfp4(p.numpy())
            p.copy_(torch.from_numpy(meant))
    at = folder / name
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir()
    how = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"])
    (at / "config.json").write_text(json.dumps({**config.to_dict(), "quantization_config": how}, indent=1, default=str) + "\n")
    save_file(tensors, at / "model.safetensors")
    show(name, model)


def build(name, config_type, model_type, settings, dtype, part, folder):
    torch.manual_seed(sum(map(ord, name)))
    config = config_type(**{**BASE, **settings})
    model = model_type(config).float().eval()
    fill(model, dtype, of_gguf(folder / "tiny-qwen3.gguf") if name == "hf-qwen3" else {})
    at = folder / name
    shutil.rmtree(at, ignore_errors=True)
    stored = model_type(config).to(dtype)
    for key, p in stored.named_parameters():
        if name == "hf-qwen3" and p.dim() == 1:
            p.data = p.data.float()  # as the GGUF file has them
    for key, p in stored.named_buffers():
        if key.endswith("e_score_correction_bias"):
            p.data = p.data.float()
    stored.load_state_dict(model.state_dict())
    stored.save_pretrained(at, max_shard_size=part or "1GB")
    (at / "generation_config.json").unlink(missing_ok=True)  # no text is made of these
    show(name, model)


def show(name, model):
    ids = np.random.default_rng(7).integers(0, VOCAB, 150)
    with torch.no_grad():
        logits = model(torch.tensor(ids[None])).logits[0].numpy()
    print(f"model {name}\nids {' '.join(map(str, ids))}")
    for position in (0, 20, 149):
        print(f"at {position} all {' '.join(f'{x:.5f}' for x in logits[position])}")


TEMPLATE_PARTS = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
CHATS = ["Hello, who are you?", "Count to three: 1, 2,", "  spaces  and\nlines é ü 中文 <|im_end|>"]


# Served over HTTP, and the base of adapters; the answers of NAME stand in NAME with an underscore, beside this script.
SERVED = {
    "hf-served": (t.Qwen2Config, t.Qwen2ForCausalLM, dict(hidden_size=48, intermediate_size=64, tie_word_embeddings=True)),
}


def served(folder, name, config_type, model_type, settings):
    """A folder with all that a server reads, and transformers' greedy answers; what a user writes stays text."""
    here = Path(__file__).parent
    at = folder / name
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir()
    words = here.parent / "text" / "hf_tokenizers" / "qwen2.json"
    shutil.copy(words, at / "tokenizer.json")
    (at / "chat_template.jinja").write_text(TEMPLATE)
    (at / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "model_max_length": CONTEXT}) + "\n")
    tok = t.AutoTokenizer.from_pretrained(at)
    ends = tok.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    config = config_type(**{**BASE, **settings, "vocab_size": len(tok), "bos_token_id": None, "eos_token_id": ends[0]})
    before, behind = (tok(part, add_special_tokens=False)["input_ids"] for part in TEMPLATE_PARTS)
    own = Tokenizer.from_file(str(words))
    own.encode_special_tokens = True  # what a user writes stays text, as servers must have it
    prompts = [before + own.encode(text, add_special_tokens=False).ids + behind for text in CHATS]
    for seed in range(40):  # the first whose best tokens lead clearly
        torch.manual_seed(seed)
        model = model_type(config).float().eval()
        fill(model, BF16, {})
        answers = [greedy(model, ids, ends) for ids in prompts]
        if min(lead for _, lead in answers) > 0.08:
            break
    stored = model_type(config).to(BF16)
    stored.load_state_dict(model.state_dict())
    stored.save_pretrained(at)
    (at / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}) + "\n")
    rows = [json.dumps({"text": text, "prompt_token_ids": ids, "token_ids": answer})
            for text, ids, (answer, _) in zip(CHATS, prompts, answers)]
    (here / (name.replace("-", "_") + ".json")).write_text("[\n" + ",\n".join(rows) + "\n]\n")


def greedy(model, ids, ends):
    """Eight tokens at most, and the smallest lead of one over the runner-up."""
    answer, lead = [], 1e9
    with torch.no_grad():
        while len(answer) < 8 and (not answer or answer[-1] not in ends):
            best = model(torch.tensor([ids + answer])).logits[0, -1].topk(2)
            lead = min(lead, float(best.values[0] - best.values[1]))
            answer.append(int(best.indices[0]))
    return answer, lead


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)  # the sums have one order, wherever this runs
    for name, how in SERVED.items():
        served(folder, name, *how)
    print("# Written by make_hf_models.py; the format is that of make_tiny_models.py.")
    for name, (config_type, model_type, settings, dtype, part) in MODELS.items():
        build(name, config_type, model_type, settings, dtype, part, folder)
    for name, how in PACKED.items():
        packed(name, how, folder)
    gpt_oss_mxfp4("hf-gpt-oss-mxfp4", folder)


main()
