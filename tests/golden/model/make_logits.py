#!/usr/bin/env python3
"""Makes tests/golden/model/smollm2.txt: what Hugging Face computes in float32 on the dequantised weights.

Needs PyPI's torch, transformers, tokenizers and gguf. Usage:
    make_logits.py ~/.cache/mooncaf/models/SmolLM2-135M-Instruct.Q4_1.gguf > smollm2.txt

Each prompt is one block of lines, which tests/golden/model/golden_file.hpp reads:
    prompt NAME / ids ... / lse X / top ID:LOGIT ... / some ID:LOGIT ... / greedy ID:LEAD ...
`lse`, `top` (the 20 largest) and `some` (48 spread over the vocabulary) belong to the last prompt token. `greedy` is
the continuation, each token with the lead of its logit over the runner-up: arithmetic of limited precision may choose
otherwise only where the lead is small.
"""
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

PROMPTS = {
    "short": "The capital of France is",
    "chat": "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "seventy": "In the year 1815 the weather over Europe was unusually cold, and few people knew the reason. "
    "A mountain on the other side of the earth had exploded in April, throwing so much ash into the upper air "
    "that the following summer never came. Harvests failed from Ireland to Hungary, bread riots broke out, and",
    "blocks": "A cache keeps what was computed once so that it need not be computed again. " * 3
    + "Consider a conversation with a language model. Every turn sends the whole history, and every turn the "
    "machine would read the same words anew, unless somebody kept the keys and values of attention. Those are "
    "large: for each token, each layer and each head there are two vectors. They fill memory quickly, so they "
    "are cut into blocks, and each block gets a name that depends on all the words before it. Two conversations "
    "that begin alike share their first blocks. When memory runs short the coldest block goes to disk, and when "
    "it is needed again it comes back, which is slower than memory but quicker than computing. Moving a block "
    "between machines takes a network, and a good scheduler weighs the cost of moving against the cost of "
    "computing, the length of the queue, and the promise made to the user. A promise that is kept on average and broken at the worst moment is no promise. def fib(n): return n if n < 2 else "
    "fib(n - 1) + fib(n - 2)  # 0, 1, 1, 2, 3, 5, 8, 13, 21. In short, the idea of the design is that",
}
GREEDY_TOKENS = 24


def field(reader, key):
    return reader.fields[key].contents()


def tokenizer_of(reader):
    tokens = field(reader, "tokenizer.ggml.tokens")
    kinds = field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tok.add_special_tokens([t for t, kind in zip(tokens, kinds) if kind == 3])
    return tok


def model_of(reader):
    arch = field(reader, "general.architecture")
    get = lambda key: field(reader, f"{arch}.{key}")
    heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
    config = LlamaConfig(
        hidden_size=get("embedding_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=get("feed_forward_length"),
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base")},
        vocab_size=len(field(reader, "tokenizer.ggml.tokens")),
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).float().eval()
    tensors = {t.name: dequantize(t.data, t.tensor_type).reshape(tuple(reversed(t.shape))) for t in reader.tensors}

    def halves(name, n_heads):
        # GGUF keeps rotary pairs side by side, Hugging Face half a head apart.
        w = tensors[name]
        return w.reshape(n_heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)

    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for i in range(config.num_hidden_layers):
        here, there = f"blk.{i}.", f"model.layers.{i}."
        state[there + "self_attn.q_proj.weight"] = halves(here + "attn_q.weight", heads)
        state[there + "self_attn.k_proj.weight"] = halves(here + "attn_k.weight", kv_heads)
        for ours, theirs in [
            ("attn_v.weight", "self_attn.v_proj.weight"), ("attn_output.weight", "self_attn.o_proj.weight"),
            ("attn_norm.weight", "input_layernorm.weight"), ("ffn_norm.weight", "post_attention_layernorm.weight"),
            ("ffn_gate.weight", "mlp.gate_proj.weight"), ("ffn_up.weight", "mlp.up_proj.weight"),
            ("ffn_down.weight", "mlp.down_proj.weight"),
        ]:
            state[there + theirs] = tensors[here + ours]
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32)) for k, v in state.items()})
    return model


def main():
    reader = GGUFReader(sys.argv[1])
    model, tok = model_of(reader), tokenizer_of(reader)
    pairs = lambda ids, logits: " ".join(f"{i}:{logits[i]:.5f}" for i in ids)
    print("# Written by make_logits.py; see there for the format.")
    with torch.no_grad():
        for name, text in PROMPTS.items():
            ids = tok.encode(text, add_special_tokens=False).ids
            out = model(torch.tensor([ids]), use_cache=True)
            logits = out.logits[0, -1].double().numpy()
            top = np.argsort(-logits, kind="stable")[:20]
            some = np.linspace(0, len(logits) - 1, 48).astype(int)
            print(f"prompt {name}\nids {' '.join(map(str, ids))}")
            print(f"lse {torch.logsumexp(out.logits[0, -1].double(), 0).item():.5f}")
            print(f"top {pairs(top, logits)}\nsome {pairs(some, logits)}")
            greedy, leads = [int(top[0])], [logits[top[0]] - logits[top[1]]]
            for _ in range(GREEDY_TOKENS - 1):
                out = model(torch.tensor([[greedy[-1]]]), past_key_values=out.past_key_values, use_cache=True)
                best = torch.topk(out.logits[0, -1], 2)
                leads.append((best.values[0] - best.values[1]).item())
                greedy.append(int(best.indices[0]))
            print("greedy " + " ".join(f"{i}:{lead:.4f}" for i, lead in zip(greedy, leads)))
            print(f"{name}: {len(ids)} ids, smallest lead {min(leads):.4f}:", tok.decode(greedy), file=sys.stderr)


if __name__ == "__main__":
    main()
