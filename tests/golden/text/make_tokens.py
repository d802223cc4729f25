#!/usr/bin/env python3
"""Makes tokens.json, the token ids that the tokenizer test expects, with Hugging Face's libraries and SentencePiece.

    python3 -m venv venv && venv/bin/pip install tokenizers transformers jinja2 gguf sentencepiece
    venv/bin/python make_tokens.py MODEL.gguf          # rewrites tokens.json and the tiny vocabularies beside it
    venv/bin/python make_tokens.py MODEL.gguf --random 20000 --out /somewhere   # a wider comparison, not checked in

The SmolLM2 tokenizer is rebuilt from the GGUF's own vocabulary and merges with the pre-tokenizer of that model; the
other rules (GPT-2, Llama 3, Qwen2, SentencePiece) get vocabularies of a few hundred tokens, trained here.
"""

import argparse
import io
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from chat_cases import CHATS, TEMPLATES
from hard_strings import HARD, LONG_RUNS, TRAINING_TEXT, random_text

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def split_by(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": lambda: pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "llama-bpe": lambda: split_by(LLAMA3),
    "qwen2": lambda: split_by(QWEN2),
}
MARKERS = {
    "gpt-2": ["<|endoftext|>"],
    "llama-bpe": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
USER_DEFINED = {"qwen2": ["<think>", "</think>", "<tool_response>", "</tool_response>"]}


def build(vocab, parse):
    """The tokenizer that Hugging Face's tokenizer.json of this family describes."""
    ids = {t: i for i, t in enumerate(vocab["tokens"])}
    merges = [tuple(m.split(" ")) for m in vocab["merges"]]
    tok = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=vocab["pre"] == "llama-bpe"))
    tok.pre_tokenizer = PRE[vocab["pre"]]()
    tok.decoder = decoders.ByteLevel()
    if vocab["pre"] == "qwen2":
        tok.normalizer = normalizers.NFC()
    if parse:
        tok.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                for t, k in zip(vocab["tokens"], vocab["types"]) if k == 3])
    tok.add_tokens([AddedToken(t, normalized=False, special=False)
                    for t, k in zip(vocab["tokens"], vocab["types"]) if k == 4])
    return tok


def tiny_bpe(pre):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = PRE[pre]()
    if pre == "qwen2":
        tok.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=640, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tok.train_from_iterator(TRAINING_TEXT, trainer)
    state = json.loads(tok.to_str())["model"]
    tokens = [t for t, _ in sorted(state["vocab"].items(), key=lambda item: item[1])]
    types = [1] * len(tokens)
    if pre == "llama-bpe":  # words that no merge makes: taken whole all the same
        for word in ("\u0120unmergeable", "zqzq"):
            tokens.append(word)
            types.append(1)
    for kind, names in ((3, MARKERS[pre]), (4, USER_DEFINED.get(pre, []))):
        tokens += names
        types += [kind] * len(names)
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["merges"]]
    vocab = {"model": "gpt2", "pre": pre, "tokens": tokens, "types": types, "merges": merges}
    if pre == "llama-bpe":
        vocab["bos"] = tokens.index("<|begin_of_text|>")
    return vocab


def tiny_sentencepiece():
    import sentencepiece as spm
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING_TEXT), model_writer=out, model_type="bpe", vocab_size=640, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, split_digits=True, minloglevel=2)
    sp = spm.SentencePieceProcessor(model_proto=out.getvalue())

    def kind(i):
        if sp.is_unknown(i):
            return 2
        return 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1

    n = sp.vocab_size()
    vocab = {"model": "llama", "tokens": [sp.id_to_piece(i) for i in range(n)], "types": [kind(i) for i in range(n)],
             "scores": [sp.get_score(i) for i in range(n)], "bos": sp.bos_id(), "eos": sp.eos_id(),
             "unknown": sp.unk_id(), "add_space_prefix": True}
    return vocab, sp


def from_gguf(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    value = lambda key: fields["tokenizer." + key].contents()
    return {"model": value("ggml.model"), "pre": value("ggml.pre"), "tokens": value("ggml.tokens"),
            "types": value("ggml.token_type"), "merges": value("ggml.merges"), "template": value("chat_template")}


def digest(ids):
    """Length and FNV-1a hash: enough to compare a hundred thousand ids by."""
    value = 0xcbf29ce484222325
    for i in ids:
        value = (value ^ i) * 0x100000001b3 % 2**64
    return [len(ids), f"{value:016x}"]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("model")
    args.add_argument("--random", type=int, default=60, help="random strings, besides the hard ones")
    args.add_argument("--out", type=Path, default=Path(__file__).parent)
    args = args.parse_args()

    smollm2 = from_gguf(args.model)
    vocabs = {name: tiny_bpe(pre) for name, pre in
              (("tiny_gpt2", "gpt-2"), ("tiny_llama3", "llama-bpe"), ("tiny_qwen2", "qwen2"))}
    vocabs["tiny_spm"], sp = tiny_sentencepiece()
    for name, vocab in vocabs.items():
        (args.out / f"{name}.json").write_text(json.dumps(vocab))

    encoders = {"smollm2": build(smollm2, False), "smollm2_parse": build(smollm2, True)}
    for name in ("tiny_gpt2", "tiny_llama3", "tiny_qwen2"):
        encoders[name] = build(vocabs[name], False)

    def ids_of(text):
        ids = {name: tok.encode(text, add_special_tokens=False).ids for name, tok in encoders.items()}
        ids["tiny_spm"] = sp.encode(text)
        return ids

    rng = random.Random(20260)
    cases = [{"hex": raw.hex(), "ids": ids_of(raw.decode("utf-8", errors="replace"))} for raw in HARD]
    cases += [{"hex": text.encode().hex(), "ids": ids_of(text)}
              for text in (random_text(rng) for _ in range(args.random))]
    long_runs = [{"unit": unit, "count": count, "digests": {k: digest(v) for k, v in ids_of(unit * count).items()}}
                 for unit, count in LONG_RUNS]

    chats = []
    for vocab_name, template_name in (("smollm2", None), ("tiny_qwen2", "qwen25"), ("tiny_qwen2", "qwen3"),
                                      ("tiny_llama3", "llama3"), ("tiny_llama3", "llama31")):
        vocab = smollm2 if vocab_name == "smollm2" else vocabs[vocab_name]
        template = TEMPLATES[template_name] if template_name else vocab["template"]
        hf = PreTrainedTokenizerFast(tokenizer_object=build(vocab, True), chat_template=template,
                                     bos_token="<|begin_of_text|>" if "llama" in vocab_name else None)
        for chat in CHATS:
            for prompt in (True, False):
                text = hf.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
                ids = hf(text, add_special_tokens=False)["input_ids"]
                chats.append({"vocab": vocab_name, "template": template_name or "file", "messages": chat,
                              "generation_prompt": prompt, "ids": ids})
    golden = {"cases": cases, "long_runs": long_runs, "templates": TEMPLATES, "chats": chats}
    (args.out / "tokens.json").write_text(
        "{\n" + ",\n".join(f"{json.dumps(k)}: " + ("[\n" + ",\n".join(json.dumps(x) for x in v) + "\n]"
                           if isinstance(v, list) else json.dumps(v)) for k, v in golden.items()) + "\n}\n")


if __name__ == "__main__":
    main()
