#!/usr/bin/env python3
"""What codes of keys and values that mooncaf does not have would cost or save, on the KV that transformers computes:

- nats a token of four texts, with every row of KV rounded as it is written: f16, int8 and k8v4 as here, and FP8 (E4M3) with a scale
  for each row and without one;
- how much smaller lossless coding makes it (zstd over planes of bytes), and at what speed on one core.

    ENGINES/bin/python tests/bench/kv_codes.py FOLDER     the small model as a Hugging Face folder (engines/install.sh makes both)

Prints CSV. Needs torch, transformers and zstandard, which the engines' environment has.
"""
import heapq
import pathlib
import sys
import time

import numpy
import torch
import transformers
import zstandard

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCES = pathlib.Path("/usr/share/common-licenses")
TEXTS = {"prose": (ROOT / "README.md", 1400), "program": (pathlib.Path(heapq.__file__), 1400),
         "licence": (LICENCES / "MPL-2.0", 1400), "long": (LICENCES / "GPL-3", 7600)}
BLOCK = 1 << 18  # bytes that are coded by themselves


def by_row(x, top):
    """A factor for each row that brings its largest number to `top`."""
    return top / x.abs().amax(-1, keepdim=True).clamp(min=1e-30)


def int8(x):
    scale = by_row(x, 127)
    return torch.round(x * scale) / scale


def int4(x):
    """Groups of 32 of a row, each with a multiplier of eight bits: runtime/base/int4_row.hpp."""
    groups = x.unflatten(-1, (-1, 32))
    row = x.abs().amax(-1, keepdim=True).unsqueeze(-1).clamp(min=1e-30) / 7 / 255
    multiplier = torch.ceil(groups.abs().amax(-1, keepdim=True) / 7 / row).clamp(1, 255) * row
    return (torch.round(groups / multiplier).clamp(-7, 7) * multiplier).flatten(-2)


def fp8(x, scale):
    return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float32) / scale


FORMATS = {"f32": (lambda x: x, lambda x: x), "f16": (lambda x: x.half().float(),) * 2, "int8": (int8, int8), "k8v4": (int8, int4),
           "fp8, a scale for each row": (lambda x: fp8(x, by_row(x, 448)),) * 2, "fp8, no scale": (lambda x: fp8(x, 1),) * 2}


class RoundedCache(transformers.DynamicCache):
    def __init__(self, key, value):
        super().__init__()
        self.round_key, self.round_value = key, value

    def update(self, keys, values, *more, **named):
        return super().update(self.round_key(keys), self.round_value(values), *more, **named)


def loss(model, tokens, rounding, chunk=1024):
    """Nats a token, the text in one context; chunks keep the logits small."""
    cache, total, count = RoundedCache(*rounding), 0.0, 0
    for at in range(0, tokens.shape[1] - 1, chunk):
        end = min(at + chunk, tokens.shape[1] - 1)
        logits = model(tokens[:, at:end], past_key_values=cache, use_cache=True).logits
        total += torch.nn.functional.cross_entropy(logits[0], tokens[0, at + 1:end + 1], reduction="sum").item()
        count += end - at
    return total / count


def planes_of(array):
    """The bytes of each number's first byte, then the second's, and so on."""
    return numpy.ascontiguousarray(array.view(numpy.uint8).reshape(-1, array.itemsize).T).tobytes()


def lossless(model, tokens):
    """Ratio and MB/s of coding and decoding, by number format."""
    cache = transformers.DynamicCache()
    model(tokens, past_key_values=cache, use_cache=True)
    kv = torch.stack([torch.stack([layer.keys[0], layer.values[0]], 1) for layer in cache.layers])  # [layer, head, K|V, token, dim]
    forms = {"f32": kv.numpy(), "bf16": kv.bfloat16().view(torch.int16).numpy(), "f16": kv.half().view(torch.int16).numpy(),
             "int8": torch.round(kv * by_row(kv, 127)).to(torch.int8).numpy()}
    code, decode = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
    for name, array in forms.items():
        planes = planes_of(array)
        blocks = [planes[i:i + BLOCK] for i in range(0, len(planes), BLOCK)]
        began = time.perf_counter()
        coded = [code.compress(b) for b in blocks]
        coding = time.perf_counter() - began
        began = time.perf_counter()
        assert b"".join(decode.decompress(c) for c in coded) == planes
        decoding = time.perf_counter() - began
        yield name, len(planes) / sum(map(len, coded)), len(planes) / coding / 1e6, len(planes) / decoding / 1e6


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    words = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    texts = {name: words(path.read_text(), return_tensors="pt").input_ids[:, :count] for name, (path, count) in TEXTS.items()}
    print("format," + ",".join(f"nats {name}" for name in texts))
    for name, rounding in FORMATS.items():
        print(f'"{name}",' + ",".join(f"{loss(model, t, rounding):.4f}" for t in texts.values()), flush=True)
    print("lossless,times smaller,coded MB/s,decoded MB/s")
    for name, ratio, coded, decoded in lossless(model, texts["licence"][:, :1024]):
        print(f"{name},{ratio:.3f},{coded:.0f},{decoded:.0f}", flush=True)


if __name__ == "__main__":
    main()
