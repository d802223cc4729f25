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
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        ids = tok.encode(text, add_special_tokens=False).ids
        seconds.append(time.perf_counter() - start)
    peer = len(text.encode()) / 1e6 / statistics.median(seconds)
    assert len(ids) == int(count), "the token counts differ"
    print(f"| text | tokens | mooncaf encode MB/s | tokenizers encode MB/s | ratio | mooncaf decode MB/s | build ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(f"| {len(text.encode()) / 1e6:.1f} MB | {count} | {encode} | {peer:.1f} | {float(encode) / peer:.1f} | {decode} | {build} |")


if __name__ == "__main__":
    main()
