#!/usr/bin/env python3
"""What nvcc made of each kernel, and what its launches could reach on an H100.

    kernel_table.py REPORT FOLDER NVCC

Reads ptxas' report of the build: fails on a spill, a stack frame, a warning, more shared memory than a block gets without
asking, or fewer resident warps than a kernel of its kind needs. Prints the tables that FOLDER holds as CSV, and fails if it
holds others, where nvcc is the version that they name; MOONCAF_REWRITE_GOLDEN=1 writes them instead.
"""
import csv
import io
import os
import pathlib
import re
import subprocess
import sys

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# Per multiprocessor: warps, 32-bit registers, bytes of shared memory of which each block costs 1 KiB more, blocks.
LIMITS = {"sm_80": (64, 65536, 164 << 10, 32), "sm_90": (64, 65536, 228 << 10, 32), "sm_100": (64, 65536, 228 << 10, 32)}
THREADS = {"product": 128, "attention": 128, "combine": 128, "choose": 1024, "carry": 1024}  # of a block; other kernels have 256
LEAST_WARPS = (("product_.*_few", 32), ("product_.*_many", 8), ("attention_64$", 12), ("attention", 8), ("choose|carry|gather", 32), ("", 48))
# An H100 SXM: multiprocessors, clock, bytes of memory per second, dense f16 operations per second, bytes of L1 and shared
# memory per multiprocessor and cycle, lanes; and the time that memory takes to answer.
SMS, CLOCK, MEMORY, TENSOR, L1, LANES, LATENCY = 132, 1.755e9, 3.35e12, 989.4e12, 128, 128, 0.7e-6
# PCI Express 5 with 16 lanes: bytes per second, and the time that the host's memory takes to answer; lanes for whole numbers of a
# multiprocessor; and how many multiprocessors copies may have (--copy-engines).
LINK, LINK_LATENCY, WHOLE_LANES, COPY_SMS = 64e9, 1.5e-6, 64, (1, 2)
# What `gather` computes of a word of 8 bytes: its share of the sums, and where it lies in a page; and the cycles in which one warp goes
# through the sums of 1 KiB, each of which waits for the one before.
GATHER, CHAIN = {"gather": 12, "gather_pieces": 20, "gather_tokens": 26}, 40
# Llama 3 8B in 4-bit weights with f16 scales: 5 bits each.
DIM, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCAB, WEIGHT_BYTES = 4096, 14336, 32, 8, 128, 32, 128256, 5 / 8
# Of a weight on the device: bytes with its scales, and operations that make it an f16.
FORMS = {"nibbles": (WEIGHT_BYTES, 4), "fp4": (17 / 32, 4), "fives": (7 / 8, 6), "bytes": (9 / 8, 4), "bytes_by_sixteen": (3 / 2, 4), "f16": (2, 0),
         "bf16": (2, 2), "f32": (4, 1)}
# Query heads, KV heads, dimensions, layers, planes of a head and positions of a tile: SmolLM2 135M, Llama 3 8B, Gemma 3 4B,
# DeepSeek V2 Lite.
ATTENTION = {"attention_64": (9, 3, 64, 30, 2, 64), "attention_128": (HEADS, KV_HEADS, HEAD_DIM, LAYERS, 2, 64),
             "attention_256": (8, 4, 256, 34, 2, 32), "attention_640": (16, 1, 576, 27, 1, 16)}

ENTRY = re.compile(r"Compiling entry function 'mooncaf_(\w+)' for '(sm_\d+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def read_report(text):
    """{(kernel, architecture): (registers, shared bytes)}; problems"""
    kernels, problems, current = {}, [], None
    for line in text.splitlines():
        if "warning" in line.lower():
            problems.append(line)
        if found := ENTRY.search(line):
            current = found.groups()
        elif (found := STACK.search(line)) and any(int(n) for n in found.groups()):
            problems.append(f"{current}: {line.strip()}")
        elif found := USED.search(line):
            kernels[current] = (int(found[1]), int(found[2] or 0))
    return kernels, problems


def threads_of(kernel):
    return THREADS.get(kernel.split("_")[0], 256)


def resident_warps(kernel, registers, shared, architecture):
    warps, all_registers, all_shared, blocks = LIMITS[architecture]
    own = threads_of(kernel) // 32
    by_registers = all_registers // (-(-registers // 8) * 8 * 32) // own
    by_shared = all_shared // (shared + 1024) if shared else blocks
    return min(blocks, warps // own, by_registers, by_shared) * own


def resource_table(kernels):
    rows = [["kernel", "threads", "shared memory"] + [f"{a} {what}" for a in ARCHITECTURES for what in ("registers", "warps")]]
    problems = []
    for name in sorted({k for k, _ in kernels}):
        cells = []
        for a in ARCHITECTURES:
            registers, shared = kernels[name, a]
            warps = resident_warps(name, registers, shared, a)
            least = next(n for pattern, n in LEAST_WARPS if re.match(pattern, name))
            if warps < least:
                problems.append(f"{name} on {a}: {warps} warps fit on a multiprocessor, it needs {least}")
            if shared > 48 << 10:
                problems.append(f"{name} on {a}: {shared} bytes of shared memory")
            cells += [registers, warps]
        rows.append([name, threads_of(name), kernels[name, "sm_90"][1], *cells])
    return rows, problems


def reach(kernels, name, tokens, flops, bytes_, in_flight, blocks, cycles=None):
    """A row of the roofline. in_flight: bytes that each resident warp has asked memory for. cycles: of one
    multiprocessor for all its share of tensor work, and of what else it must do meanwhile."""
    warps = min(resident_warps(name, *kernels[name, "sm_90"], "sm_90"), blocks * threads_of(name) / 32 / SMS)
    by_memory = min(1, warps * in_flight / (MEMORY / SMS * LATENCY))
    limit = max(bytes_ / MEMORY, flops / TENSOR)
    time = bytes_ / MEMORY / by_memory
    if cycles:
        time = max(time, flops / TENSOR * max(cycles) / cycles[0])
    wall = "memory" if bytes_ / MEMORY >= flops / TENSOR else "tensor cores"
    return row(name, tokens, flops, bytes_, limit, wall, limit / time)


def row(name, tokens, flops, bytes_, limit, wall, share):
    return [name, tokens, f"{flops / tokens / 1e6:.1f}", f"{bytes_ / tokens / 1e6:.2f}", f"{limit * 1e6:.1f}", wall, f"{100 * share:.0f}"]


def over_link(name, tokens, bytes_, rate):
    """Rows of what carries KV to and from the host. rate: bytes per second of one multiprocessor."""
    return [row(name, tokens, 0, bytes_, bytes_ / LINK, f"link with {n} multiprocessor{'s' * (n > 1)}", min(1, n * rate / LINK))
            for n in COPY_SMS]


def roofline(kernels):
    rows = [["kernel", "tokens", "MFLOP per token", "MB per token", "µs at the limit", "limit", "reachable %"]]
    matrices = LAYERS * (2 * DIM * DIM + 2 * DIM * KV_HEADS * HEAD_DIM + 3 * DIM * FFN) + DIM * VOCAB
    for form, (weight_bytes, work) in FORMS.items():
        for tokens in (1, 8) if form == "nibbles" else (1,):
            moved = matrices * weight_bytes + tokens * 4 * matrices / DIM
            # A warp waits for one chunk at a time: 16 rows of 64 columns, and their scales.
            rows.append(reach(kernels, f"product_{form}_few", tokens, 2 * tokens * matrices, moved, 16 * 64 * weight_bytes, FFN / 16))
        for tokens in (64, 512, 2048) if form == "nibbles" else (512,):
            # Weights are read again for each 64 tokens; taken to miss the second-level cache one time in five.
            moved = matrices * weight_bytes * (0.8 + 0.2 * -(-tokens // 64)) + tokens * 6 * matrices / DIM
            # Of one chunk and warp: 64 tensor instructions; tokens and weights by way of L1; operations for each weight, two
            # for each pair that is packed.
            tensor = 64 * 4096 / (TENSOR / SMS / CLOCK)
            others = ((64 * 128 + 32 * 64 * weight_bytes) / L1, (2048 * work + 64 * 32 * 2) / LANES)
            rows.append(reach(kernels, f"product_{form}_many", tokens, 2 * tokens * matrices, moved, 32 * 64 * weight_bytes,
                              FFN / 32 * -(-tokens // 64), (tensor, *others)))
    context = 4096
    kv = context * 2 * KV_HEADS * HEAD_DIM * 2 * LAYERS
    for name, (heads, kv_heads, dim, layers, planes, tile) in ATTENTION.items():
        own_kv = context * planes * kv_heads * dim * 2 * layers
        score = 4 * context * heads * dim * layers
        for tokens in (1, 64):
            splits = context / 256 if tokens * kv_heads < 2 * SMS else 1
            # Half of a block's two tiles is on its way while it computes with the other half.
            rows.append(reach(kernels, name, tokens, tokens * score, tokens * own_kv, tile * dim * 2 / 4, tokens * kv_heads * splits))
    score = 4 * context * HEADS * HEAD_DIM * LAYERS
    # A prompt's chunk of 512 at that context: 16 tokens of 4 heads share a tile.
    tensor = 2 * 64 * 16 * 128 * 2 / (TENSOR / SMS / CLOCK) * 4
    others = (4 * 2 * 64 * 128 * 2 / L1, 64 * 64 * 12 / LANES)
    rows.append(reach(kernels, "attention_128", 512, 512 * score, kv * 512 / 16 * 0.1, 64 * 128 * 2 / 4,
                      512 / 16 * KV_HEADS, (tensor, *others)))
    # Sums, peaks and totals of the splits that were computed apart; each lane waits for one number at a time.
    rows.append(reach(kernels, "combine", 1, 0, context / 256 * HEADS * (HEAD_DIM + 2) * 4 * LAYERS, 32 * 4, HEADS))
    for tokens in (1, 64):
        # The whole chain goes through a row 15 times, with one block of threads.
        rows.append(reach(kernels, "choose", tokens, 0, tokens * 15 * 4 * VOCAB, 8 * 32 * 4, tokens))
    # Routers of 128 experts, in every layer: a lane waits for one weight at a time.
    for tokens in (1, 512):
        rows.append(reach(kernels, "product_wide", tokens, 2 * tokens * LAYERS * 128 * DIM, LAYERS * 4 * DIM * (128 + tokens), 32 * 4,
                          tokens * 128 / 4))
    # KV blocks of 32 tokens that a chunk of 512 fills: each lane has its words of four chunks under way.
    rows.append(reach(kernels, "checksum", 512, 0, 512 * kv / context, 4 * 4 * 8 * 32, 512 / 32))
    # The rows of a step of 64 sequences: a thread has four times 16 bytes under way over the link, in either direction.
    rows += over_link("carry", 64, 64 * kv / context, threads_of("carry") * 4 * 16 / LINK_LATENCY)
    for name, work in GATHER.items():
        # It reads the device's memory, and what it writes over the link it does not wait for.
        read = threads_of(name) / 32 * 4 * 4 * 8 * 32 / LATENCY
        rows += over_link(name, 512, 512 * kv / context, min(read, WHOLE_LANES * CLOCK * 8 / work, 1024 * CLOCK / CHAIN))
    for name, moved in (("norm", 2 * 4 * DIM), ("halve", 6 * DIM), ("swiglu", 3 * 4 * FFN), ("add", 3 * 4 * DIM),
                        ("rope", 2 * 4 * DIM), ("kv_write", 6 * 2 * KV_HEADS * HEAD_DIM), ("embed", WEIGHT_BYTES * DIM + 4 * DIM),
                        ("bend", 2 * 4 * DIM), ("move", 2 * 4 * DIM)):
        rows.append(reach(kernels, name, 512, 0, 512 * moved, 32 * 4 * 2, 512))
    return rows


def main():
    report, folder, nvcc = sys.argv[1:]
    kernels, problems = read_report(pathlib.Path(report).read_text())
    assert read_report("ptxas info : Compiling entry function 'mooncaf_x' for 'sm_80'\n 8 bytes stack frame, 0 bytes spill "
                       "stores, 0 bytes spill loads\n")[1], "it would find nothing"
    problems += [f"{k} was not compiled for {a}" for k in {k for k, _ in kernels} for a in ARCHITECTURES
                 if (k, a) not in kernels]
    if not kernels:
        problems.append(f"{report} names no kernel")
    if problems:
        sys.exit("\n".join(problems))
    resources, problems = resource_table(kernels)
    rows = roofline(kernels)
    problems += [f"{name} has no row beside the roofline" for name in {k for k, _ in kernels}
                 if not any(row[0] == name for row in rows)]
    version = re.search(r"release ([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout)[1]
    for name, table in (("resources", resources), ("roofline", rows)):
        out = io.StringIO()
        out.write(f"# nvcc {version}\n")
        csv.writer(out, lineterminator="\n").writerows(table)
        print(out.getvalue())
        file = pathlib.Path(folder) / f"kernel_{name}.csv"
        if os.environ.get("MOONCAF_REWRITE_GOLDEN"):
            file.write_text(out.getvalue())
        held = file.read_text()
        if not held.startswith(f"# nvcc {version}\n"):
            print(f"{file} is of another nvcc than {version}\n")
        elif held != out.getvalue():
            problems.append(f"{file} is not what was built (MOONCAF_REWRITE_GOLDEN=1 writes it)")
    for problem in problems:
        print(problem)
    print(f"{len(kernels) - len(problems)} passed, {len(problems)} failed, 0 skipped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
