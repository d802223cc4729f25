#!/usr/bin/env python3
"""Makes tests/data/model/lora-*: small random adapters as PEFT writes them, of models that make_hf_models.py made, and on
standard output the float32 logits of the adapted models as PEFT has them, in the format of hf.txt; and lora_served.json,
greedy answers of hf-served with its two adapters.

Needs PyPI's torch, transformers 4.57 and peft. Usage: make_lora.py DATA_FOLDER > lora.txt
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers as t
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: base, settings, how the weights are stored
ADAPTERS = {
    "lora-served": ("hf-served", dict(r=4, lora_alpha=8, target_modules=ALL), torch.bfloat16),
    "lora-second": ("hf-served", dict(r=9, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj"],
                                      layers_to_transform=[1]), torch.float32),
    "lora-mistral": ("hf-mistral", dict(r=3, lora_alpha=3, target_modules=ALL), torch.float16),
    "lora-phi3": ("hf-phi3", dict(r=2, lora_alpha=2, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
                  torch.bfloat16),
}


def base_of(folder, name):
    return t.AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager").eval()


def make(folder, name, base, settings, dtype, seed):
    """Weights large enough that every site shows."""
    at = folder / name
    shutil.rmtree(at, ignore_errors=True)
    model = get_peft_model(base_of(folder, base), LoraConfig(task_type="CAUSAL_LM", **settings))
    torch.manual_seed(seed)
    for key, p in model.named_parameters():
        if "lora_" in key:
            p.data = torch.randn_like(p) * 0.12
    model.save_pretrained(at)
    (at / "README.md").unlink(missing_ok=True)
    weights = at / "adapter_model.safetensors"
    save_file({k: v.to(dtype) for k, v in load_file(weights).items()}, weights)
    config = json.loads((at / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    (at / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def show(folder, name, base):
    model = PeftModel.from_pretrained(base_of(folder, base), folder / name).eval()
    ids = np.random.default_rng(7).integers(0, 96, 150)
    with torch.no_grad():
        logits = model(torch.tensor(ids[None])).logits[0].numpy()
    print(f"model {name}\nids {' '.join(map(str, ids))}")
    for position in (0, 20, 149):
        print(f"at {position} all {' '.join(f'{x:.5f}' for x in logits[position])}")


def answer(folder, golden, name):
    """As many greedy tokens as the base gives, and the smallest lead over the runner-up."""
    model = base_of(folder, "hf-served")
    if name:
        model = PeftModel.from_pretrained(model, folder / name).eval()
    tokens, lead = [], 1e9
    with torch.no_grad():
        while len(tokens) < 8:
            best = model(torch.tensor([golden["prompt_token_ids"] + tokens])).logits[0, -1].topk(2)
            lead = min(lead, float(best.values[0] - best.values[1]))
            tokens.append(int(best.indices[0]))
    return {"text": golden["text"], "adapter": name, "token_ids": tokens, "lead": round(lead, 4)}


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)  # the sums have one order, wherever this runs
    print("# Written by make_lora.py; the format is that of make_tiny_models.py.")
    chats = json.loads((HERE / "hf_served.json").read_text())
    rows = [answer(folder, chat, "") for chat in chats]
    for name, (base, settings, dtype) in ADAPTERS.items():
        for seed in range(60):  # the first whose best tokens lead clearly
            make(folder, name, base, settings, dtype, seed)
            answers = [answer(folder, chat, name) for chat in chats] if base == "hf-served" else []
            if min([0.1] + [a["lead"] for a in answers]) > 0.06:
                break
        rows += answers
        show(folder, name, base)
    (HERE / "lora_served.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


main()
