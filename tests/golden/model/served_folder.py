"""Makes the small random models that the server is held to `transformers` with: a Hugging Face folder for each file of
`served/`, its weights drawn from the names of its tensors. Standard library only, the same bytes everywhere.
"""
import array
import json
import pathlib
import random
import shutil
import struct

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def names():
    return sorted(path.stem for path in (HERE / "served").glob("*.json"))


def recorded(name):
    """config: the folder's config.json; tensors: their shapes by name; seed; answers: those of transformers."""
    return json.loads((HERE / "served" / f"{name}.json").read_text())


def spread(tensor, dimensions, model_type):
    """The middle and the width of a tensor's values: wide enough that attention picks out tokens, that routers choose
    clearly and that every part shows in the logits."""
    if "norm" in tensor:
        gemma = model_type.startswith("gemma")  # which adds one, and has wide embeddings to be heard beside
        return (6.0 if gemma and ".post_" in tensor else 0.0 if gemma else 1.0), 0.5
    if "sinks" in tensor or tensor.endswith("gate_up_proj"):
        return 0.0, 1.5
    if tensor.endswith(("mlp.gate.weight", "router.weight", "block_sparse_moe.gate.weight", "shared_expert_gate.weight")):
        return 0.0, 1.0
    if tensor.endswith("e_score_correction_bias"):
        return 0.0, 0.2
    if tensor.endswith(("embed_tokens.weight", "lm_head.weight")):
        return 0.0, 1.0
    return 0.0, 0.5 if dimensions == 1 else 0.35


def bfloat16(seed, tensor, shape, model_type):
    count = 1
    for size in shape:
        count *= size
    middle, width = spread(tensor, len(shape), model_type)
    draw = random.Random(f"{seed} {tensor}").random
    wide = array.array("f", (middle + width * (2 * draw() - 1) for _ in range(count))).tobytes()
    short = bytearray(2 * count)
    short[0::2], short[1::2] = wide[2::4], wide[3::4]
    return bytes(short)


def write_weights(path, tensors, seed, model_type):
    """A safetensors file."""
    directory, parts, at = {}, [], 0
    for tensor, shape in tensors.items():
        parts.append(bfloat16(seed, tensor, shape, model_type))
        directory[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(directory).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def write_words(folder, ends):
    """Tokenizer and chat template, the same for all."""
    shutil.copy(HERE.parent / "text" / "hf_tokenizers" / "qwen2.json", folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}) + "\n")


def write_folder(name, folder):
    """All that a server reads of model `name`."""
    model = recorded(name)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model["config"], indent=1) + "\n")
    write_weights(folder / "model.safetensors", model["tensors"], model["seed"], model["config"]["model_type"])
    write_words(folder, model["ends"])
