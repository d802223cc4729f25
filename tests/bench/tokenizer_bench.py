#!/usr/bin/env python3
"""Tokenizer throughput beside Hugging Face's tokenizers, same vocabulary, same text, one thread each.

    venv/bin/pip install tokenizers gguf
    RAYON_NUM_THREADS=1 venv/bin/python tokenizer_bench.py BENCH_BINARY MODEL.gguf TEXT_FILE
"""

import statistics
import subprocess
import sys
import time

from gguf import GGUFReader
from tokenizers import Tokenizer, models, pre_tokenizers


def median_seconds(tok, texts):
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        for text in texts:
            tok.encode(text, add_special_tokens=False)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main():
    binary, model, path = sys.argv[1:]
    encode, decode, count, build = subprocess.run([binary, model, path], check=True, capture_output=True,
                                                  text=True).stdout.split()
    fields = GGUFReader(model).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)])
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    assert len(tok.encode(text, add_special_tokens=False).ids) == int(count), "the token counts differ"
    # It is faster on prompts of common length than on one long text: count its better figure.
    pieces = [text[i:i + 4000] for i in range(0, len(text), 4000)]
    peer = max(len(text.encode()) / 1e6 / median_seconds(tok, texts) for texts in ([text], pieces))
    print("| text | tokens | mooncaf encode MB/s | tokenizers encode MB/s | ratio | mooncaf decode MB/s | build ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(f"| {len(text.encode()) / 1e6:.1f} MB | {count} | {encode} | {peer:.1f} | {float(encode) / peer:.1f} | {decode} | {build} |")


if __name__ == "__main__":
    main()
