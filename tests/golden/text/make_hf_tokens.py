#!/usr/bin/env python3
"""Makes hf_tokenizers/*: tokenizer.json files as Hugging Face's libraries write them, one per way of cutting and merging,
and hf_tokens.json, the ids that those libraries give.

    venv/bin/pip install tokenizers transformers==4.57.6 sentencepiece
    venv/bin/python make_hf_tokens.py          # reads the tiny vocabularies beside it
"""
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hard_strings import HARD
from make_tokens import PRE, split_by

HERE = Path(__file__).parent
MARK = "\u2581"


def bytes_of(name):
    """The byte-level vocabularies of the other golden files."""
    vocab = json.loads((HERE / f"{name}.json").read_text())
    tok = Tokenizer(models.BPE(
        vocab={t: i for i, (t, k) in enumerate(zip(vocab["tokens"], vocab["types"])) if k == 1},
        merges=[tuple(m.split(" ")) for m in vocab["merges"]], ignore_merges=vocab["pre"] == "llama-bpe"))
    tok.pre_tokenizer = PRE[vocab["pre"]]()
    tok.decoder = decoders.ByteLevel()
    if vocab["pre"] == "qwen2":
        tok.normalizer = normalizers.NFC()
    for text, kind in zip(vocab["tokens"], vocab["types"]):
        if kind == 3:
            tok.add_special_tokens([AddedToken(text, normalized=False, special=True)])
        elif kind == 4:
            tok.add_tokens([AddedToken(text, normalized=False, special=False)])
    if "bos" in vocab:
        bos = vocab["tokens"][vocab["bos"]]
        tok.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, vocab["bos"])])])
    return tok


CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
OPENER, SUFFIX = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def cased(suffix, numbers):
    """Cut as Mistral's and OpenAI's newer vocabularies are."""
    tok = bytes_of("tiny_gpt2")
    pattern = (f"{OPENER}{CAPITALS}*{SMALL}+{suffix}|{OPENER}{CAPITALS}+{SMALL}*{suffix}|{numbers}"
               r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tok.pre_tokenizer = split_by(pattern)
    return tok


def pieces():
    """Pieces of SentencePiece, merged by rank as converters list them; one piece can be made of one pair alone."""
    vocab = json.loads((HERE / "tiny_spm.json").read_text())
    ids = {t: i for i, t in enumerate(vocab["tokens"])}
    ranked = sorted((i for i, k in enumerate(vocab["types"]) if k == 1), key=lambda i: -vocab["scores"][i])
    merges = []
    for n, i in enumerate(ranked):
        piece = vocab["tokens"][i]
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece)) if piece[:at] in ids and piece[at:] in ids]
        merges += splits[:1] if n % 3 == 0 else splits
    tok = Tokenizer(models.BPE(vocab=ids, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(content=" ", left=1)])
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    return tok


def llama2():
    tok = pieces()
    tok.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tok


def mistral():
    tok = pieces()
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="first", split=False)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("[INST]", "[/INST]")])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tok


def gemma():
    tok = pieces()
    tok.normalizer = normalizers.Replace(" ", MARK)
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("<b>", normalized=False)])
    return tok


def phi3():
    tok = llama2()
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True, rstrip=True) for t in ("<|user|>", "<|end|>")])
    return tok


TOKENIZERS = {"gpt2": lambda: bytes_of("tiny_gpt2"), "llama3": lambda: bytes_of("tiny_llama3"),
              "qwen2": lambda: bytes_of("tiny_qwen2"), "llama2": llama2, "mistral": mistral, "gemma": gemma, "phi3": phi3,
              "tekken": lambda: cased("", r"\p{N}"), "gpt4o": lambda: cased(SUFFIX, r"\p{N}{1,3}")}
MARKED = ["<s>[INST] Hi [/INST] there</s> you", "<|user|>\n Hello <|end|>\n\n<|user|> ok", "a<b>c</b>\n\n\n  d",
          "<|begin_of_text|>x<|eot_id|> y", "<think>a</think> <|im_end|>\n"]


def main():
    folder = HERE / "hf_tokenizers"
    folder.mkdir(exist_ok=True)
    golden = {}
    texts = [raw.decode("utf-8", errors="replace") for raw in HARD] + MARKED
    for name, make in TOKENIZERS.items():
        tok = make()
        path = folder / f"{name}.json"
        path.write_text(json.dumps(json.loads(tok.to_str()), separators=(",", ":")) + "\n")
        tok = Tokenizer.from_file(str(path))
        golden[name] = [{"hex": t.encode().hex(), "ids": tok.encode(t, add_special_tokens=False).ids} for t in texts]
        golden[name][0]["framed"] = tok.encode(texts[0]).ids
    rows = [f"{json.dumps(k)}: [\n" + ",\n".join(json.dumps(x) for x in v) + "\n]" for k, v in golden.items()]
    (HERE / "hf_tokens.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
