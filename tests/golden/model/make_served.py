#!/usr/bin/env python3
"""Records served/*.json: for a small random model of every family its config.json and the shapes of its tensors as
transformers saves them, and transformers' greedy answers with their log-probabilities, for the folder that
served_folder.py makes of these. And served.gguf, which the `gguf` package writes and transformers reads, with its answers.

Needs PyPI's torch, transformers 5.24, gguf 0.19. Usage: make_served.py [NAME...]
"""
import json
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers as t
from safetensors import safe_open
from tokenizers import Tokenizer

import served_folder

HERE = Path(__file__).resolve().parent
WORDS = HERE.parent / "text" / "hf_tokenizers" / "qwen2.json"
GGUF = HERE.parents[1] / "data" / "model" / "served.gguf"
CONTEXT, WINDOW, ANSWER = 512, 24, 8
TEMPLATE_PARTS = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
CHATS = ["Hello, who are you?", "  spaces  and\nlines é ü 中文 <|im_end|>",
         "Every turn of a conversation sends all that was said before it, so whoever keeps what was computed "
         "for it need not compute it again."]
# The lead that the best token has over the runner-up, and what may be lost of it when the outputs of all attention are
# rounded to 11 bits, as devices round them. A seed whose answers have less is not taken.
LEAD, LOSS = 0.1, 0.03

BASE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
            max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=None,
            pad_token_id=None)
GEMMA = dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=WINDOW)
MIXTURE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)
DEEPSEEK = dict(kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=24, v_head_dim=20, num_key_value_heads=4,
                moe_intermediate_size=24, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1,
                n_routed_experts=6, n_group=3, topk_group=2, routed_scaling_factor=1.5)


def rope(kind="default", theta=1e4, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


# name: the family's configuration, and the settings by which its model differs from BASE
MODELS = {
    "llama": (t.LlamaConfig, dict(mlp_bias=True, attention_bias=True, **rope("dynamic", factor=4.0))),
    "llama3": (t.LlamaConfig, dict(tie_word_embeddings=False, **rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))),
    "mistral": (t.MistralConfig, dict(sliding_window=WINDOW, head_dim=32, **rope())),
    "ministral": (t.MinistralConfig, dict(sliding_window=WINDOW, head_dim=16, **rope(),
                                          layer_types=["full_attention", "sliding_attention"])),
    "mixtral": (t.MixtralConfig, dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, **rope(theta=1e6))),
    "qwen2": (t.Qwen2Config, dict(**rope(theta=1e6), use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)),
    "qwen2-moe": (t.Qwen2MoeConfig, dict(**MIXTURE, shared_expert_intermediate_size=48, use_sliding_window=True,
                                         sliding_window=WINDOW, max_window_layers=1, **rope(theta=1e6))),
    "qwen3": (t.Qwen3Config, dict(**rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=128), head_dim=32)),
    "qwen3-moe": (t.Qwen3MoeConfig, dict(**MIXTURE, norm_topk_prob=True, head_dim=16, **rope(theta=1e6))),
    "qwen3-moe-window": (t.Qwen3MoeConfig, dict(**MIXTURE, head_dim=16, use_sliding_window=True, sliding_window=WINDOW,
                                                max_window_layers=2, **rope(theta=1e6))),
    "gemma2": (t.Gemma2Config, dict(**GEMMA, attn_logit_softcapping=20.0, final_logit_softcapping=30.0, **rope())),
    "gemma3": (t.Gemma3TextConfig, dict(**GEMMA, num_hidden_layers=3, rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
        sliding_attention=dict(rope_type="default", rope_theta=1e4)),
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "phi3": (t.Phi3Config, dict(sliding_window=WINDOW, **rope(partial_rotary_factor=1.0))),
    "phi4": (t.Phi3Config, dict(original_max_position_embeddings=256, **rope(
        "longrope", partial_rotary_factor=0.5, short_factor=[1.0, 1.3, 2.0, 3.0], long_factor=[1.0, 2.0, 4.0, 8.0],
        original_max_position_embeddings=256))),
    "deepseek2": (t.DeepseekV2Config, dict(**DEEPSEEK, q_lora_rank=40, topk_method="group_limited_greedy", **rope())),
    "deepseek3": (t.DeepseekV3Config, dict(**DEEPSEEK, q_lora_rank=None, norm_topk_prob=True, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=128, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0,
        beta_slow=1.0))),
    "gpt-oss": (t.GptOssConfig, dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, head_dim=16,
                                     sliding_window=WINDOW, **rope(
                                         "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                         original_max_position_embeddings=128))),
}


def prompts_of(tok):
    """Token ids of the chats; what a user writes stays text, as servers must have it."""
    before, behind = (tok(part, add_special_tokens=False)["input_ids"] for part in TEMPLATE_PARTS)
    own = Tokenizer.from_file(str(WORDS))
    own.encode_special_tokens = True
    return [before + own.encode(text, add_special_tokens=False).ids + behind for text in CHATS]


def greedy(model, ids, ends, least_lead):
    """The answer's tokens, or nothing where one leads by too little."""
    answer = []
    while len(answer) < ANSWER and (not answer or answer[-1] not in ends):
        best = model(torch.tensor([ids + answer]), use_cache=False).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < least_lead:
            return None
        answer.append(int(best.indices[0]))
    return answer


def logs_of(model, ids):
    """Log-probabilities of the tokens behind the first."""
    logs = model(torch.tensor([ids]), use_cache=False).logits[0, :-1].double().log_softmax(1)
    return logs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


def logs_by_rounding(model, ids):
    """The same with what attention gives rounded to 11 bits: something else where a router is near a tie."""
    hooks = [layer.self_attn.register_forward_hook(lambda _, __, out: (out[0].half().float(), *out[1:]))
             for layer in model.model.layers]
    logs = logs_of(model, ids)
    for hook in hooks:
        hook.remove()
    return logs


def answers_of(model, prompts, ends, least_lead=LEAD):
    """Rows of served/NAME.json, or nothing where one is too close or all say the same."""
    rows = []
    with torch.no_grad():
        for text, ids in zip(CHATS, prompts):
            answer = greedy(model, ids, ends, least_lead)
            if not answer:
                return None
            logs = logs_of(model, ids + answer)
            if (logs_by_rounding(model, ids + answer) - logs).abs().max() > LOSS:
                return None
            rows.append(dict(text=text, prompt_token_ids=ids, token_ids=answer, logprobs=[round(x, 4) for x in logs.tolist()]))
    return rows if len({token for row in rows for token in row["token_ids"]}) >= ANSWER else None


def as_saved(config):
    """config.json and the shapes of tensors, as transformers saves a model."""
    with tempfile.TemporaryDirectory() as folder:
        t.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
        with safe_open(Path(folder) / "model.safetensors", "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}
        return json.loads((Path(folder) / "config.json").read_text()), shapes


def text_of(record, rows):
    parts = [f' "{key}": {json.dumps(value)}' for key, value in record.items()]
    answers = ",\n".join("  " + json.dumps(row) for row in rows)
    return "{\n" + ",\n".join(parts) + ',\n "answers": [\n' + answers + "\n ]\n}\n"


def words():
    """The tokenizer, the tokens that end an answer, and the prompts."""
    with tempfile.TemporaryDirectory() as folder:
        served_folder.write_words(Path(folder), [])
        tok = t.AutoTokenizer.from_pretrained(folder)
    return tok, tok.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]), prompts_of(tok)


def record_folder(name, config_type, settings):
    tok, ends, prompts = words()
    config = config_type(**{**BASE, **settings, "vocab_size": len(tok), "eos_token_id": ends[0]})
    saved, shapes = as_saved(config)
    for seed in range(1000):
        record = dict(config=saved, ends=ends, seed=seed, tensors=shapes)
        out = HERE / "served" / f"{name}.json"
        out.write_text(text_of(record, []))
        with tempfile.TemporaryDirectory() as outer:
            served_folder.write_folder(name, Path(outer) / name)
            model = t.AutoModelForCausalLM.from_pretrained(Path(outer) / name, dtype=torch.float32,
                                                           attn_implementation="eager").eval()
        if rows := answers_of(model, prompts, ends):
            out.write_text(text_of(record, rows))
            print(f"{name}: seed {seed}, {sum(p.numel() for p in model.parameters())} parameters", flush=True)
            return
    raise SystemExit(f"{name}: no seed has answers that are clear enough")


def pairs_together(w, heads):
    """Rotary pairs lie half a head apart at Hugging Face, side by side in Llama's GGUF files."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path, config, weights, tok, ends):
    """A Llama as converters write it: names, keys and bytes are those of the `gguf` package."""
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("served")
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(1e4)
    out.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    out.add_vocab_size(config.vocab_size)
    model = json.loads(WORDS.read_text())
    special = {word["id"] for word in model["added_tokens"] if word["special"]}
    added = {word["id"] for word in model["added_tokens"]}
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tok.convert_ids_to_tokens(list(range(len(tok)))))
    out.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.USER_DEFINED if i in added
                         else gguf.TokenType.NORMAL for i in range(len(tok))])
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["model"]["merges"]])
    out.add_eos_token_id(ends[0])
    out.add_add_bos_token(False)
    out.add_chat_template(served_folder.TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, w in weights.items():
        for part, count in heads.items():
            if part in name:
                w = pairs_together(w, count)
        kind = gguf.GGMLQuantizationType.F32 if w.ndim == 1 else gguf.GGMLQuantizationType.Q8_0
        out.add_tensor(names.get_name(name, (".weight",)), gguf.quants.quantize(w, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def record_gguf(path):
    """Each token leads by more here: products with weights in 8 bits round activations to 8 bits, too."""
    tok, ends, prompts = words()
    config = t.LlamaConfig(**{**BASE, **rope(), "tie_word_embeddings": False, "vocab_size": len(tok)})
    _, shapes = as_saved(config)
    for seed in range(1000):
        draw = np.random.default_rng(seed)
        weights = {}
        for name, shape in shapes.items():
            middle, width = served_folder.spread(name, len(shape), "llama")
            weights[name] = (middle + width * draw.uniform(-1, 1, shape)).astype(np.float32)
        write_gguf(path, config, weights, tok, ends)
        model = t.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                       attn_implementation="eager").eval()
        if rows := answers_of(model, prompts, ends, 3 * LEAD):
            (HERE / "served_gguf.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
            print(f"{path.name}: seed {seed}, {path.stat().st_size} bytes", flush=True)
            return
    raise SystemExit(f"{path.name}: no seed has answers that are clear enough")


def main():
    torch.set_num_threads(1)  # the sums have one order, wherever this runs
    t.logging.set_verbosity_error()
    for name, (config_type, settings) in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            record_folder(name, config_type, settings)
    if not sys.argv[1:] or GGUF.stem in sys.argv[1:]:
        record_gguf(GGUF)


main()
