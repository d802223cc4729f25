#!/usr/bin/env python3
"""Makes hf_tokenizers/*: tokenizer.json files as Hugging Face's libraries write them, one per way of cutting and merging,
and hf_tokens.json, the ids that those libraries give.

    venv/bin/pip install tokenizers transformers==4.57.6 sentencepiece protobuf
    venv/bin/python make_hf_tokens.py          # reads the tiny vocabularies beside it
"""
import io
import json
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from hard_strings import HARD, TRAINING_TEXT
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


# What SentencePiece's table replaces: one character by one, by several, by none, and several by one. (CRLF, a voiced
# kana and an accent are one cluster each, of which the library takes the shortest text that the table has.)
REPLACED = [("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", ""), ("\ufeff", ""), ("\ufb01", "fi"),
            ("\u2126", "\u03a9"), ("\u00bd", "1\u20442"), ("\u304b\u3099", "\u304c"), ("e\u0301", "\u00e9"), ("\u2026", "..."),
            ("\u2460", "1"), ("\U0001d7d8", "0"), ("x\u0300\u0301", "?"), ("\u1112\u1161\u11ab", "\ud55c"), ("\uff0c", ",")]


def charsmap():
    """The table as SentencePiece compiles it."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for a, b in REPLACED:
            rules.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TRAINING_TEXT), model_writer=model, vocab_size=100,
                                                 hard_vocab_limit=False, normalization_rule_tsv=rules.name, minloglevel=2)
    parsed = sentencepiece_model_pb2.ModelProto()
    parsed.ParseFromString(model.getvalue())
    return parsed.normalizer_spec.precompiled_charsmap


def unigram(normalizer, cut, scheme=None, bytes_too=False):
    """Likelihoods trained on a few lines; `bytes_too`: what has no piece becomes bytes."""
    tok = Tokenizer(models.Unigram())
    tok.normalizer, tok.pre_tokenizer = normalizer, cut
    tok.train_from_iterator(TRAINING_TEXT * 3, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    vocab = [tuple(v) for v in json.loads(tok.to_str())["model"]["vocab"]]
    vocab = vocab[:3] + [(f"<0x{b:02X}>", 0.0) for b in range(256)] * bytes_too + vocab[3:]
    tok.model = models.Unigram(vocab, 0, bytes_too)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>", "[INST]")])
    tok.add_tokens([AddedToken("<b>", normalized=False), AddedToken(MARK + "<x>", normalized=False)])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 2)])
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]) if scheme else \
        decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)])
    return tok


def metaspace(scheme, split):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)


UNIGRAMS = {
    "t5": lambda: unigram(normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True),
                                                normalizers.Replace(Regex(" {2,}"), MARK)]), metaspace("always", True), "always"),
    "xlmr": lambda: unigram(normalizers.Precompiled(charsmap()), pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), metaspace("always", True)]), "always"),
    "llmjp": lambda: unigram(normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]), None,
                             bytes_too=True),
    "rinna": lambda: unigram(normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace("``", '"')]),
                             metaspace("first", False), bytes_too=True),
    "marks": lambda: unigram(None, metaspace("never", True), "never"),
}
TOKENIZERS = {"gpt2": lambda: bytes_of("tiny_gpt2"), "llama3": lambda: bytes_of("tiny_llama3"),
              "qwen2": lambda: bytes_of("tiny_qwen2"), "llama2": llama2, "mistral": mistral, "gemma": gemma, "phi3": phi3,
              "tekken": lambda: cased("", r"\p{N}"), "gpt4o": lambda: cased(SUFFIX, r"\p{N}{1,3}"),
              **UNIGRAMS}
MARKED = ["<s>[INST] Hi [/INST] there</s> you", "<|user|>\n Hello <|end|>\n\n<|user|> ok", "a<b>c</b>\n\n\n  d",
          "<|begin_of_text|>x<|eot_id|> y", "<think>a</think> <|im_end|>\n",
          "a\u2581<x> [INST] b", "<b> c", " [INST]  d"]


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
        for case in golden[name] if name in UNIGRAMS else []:
            case["text"] = tok.decode(case["ids"])
    rows = [f"{json.dumps(k)}: [\n" + ",\n".join(json.dumps(x) for x in v) + "\n]" for k, v in golden.items()]
    (HERE / "hf_tokens.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
