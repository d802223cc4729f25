#!/usr/bin/env python3
"""Makes embeddings.json: what llama.cpp says where some texts lie, of the model file that the tests serve.

    pip install xllamacpp        (PyPI's wheel of llama.cpp)
    tests/golden/model/make_embeddings.py MODEL.gguf > tests/golden/model/embeddings.json
"""
import json
import os
import sys

import xllamacpp

TEXTS = ["The sea is blue.", "A harbour where boats wait for the tide.", "def add(a, b):\n    return a + b",
         "Der Zug nach Kiel fährt um neun."]
KINDS = {"mean": 1, "last": 3}  # llama.cpp's numbers of its poolings


def embeddings(model, kind):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.embedding = True
    params.warmup = False
    params.n_ctx = 512
    params.pooling_type = xllamacpp.llama_pooling_type(kind)
    answer = xllamacpp.Server(params).handle_embeddings({"input": TEXTS, "encoding_format": "float", "model": "m"})
    answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
    return [[round(v, 6) for v in d["embedding"]] for d in sorted(answer["data"], key=lambda d: d["index"])]


if __name__ == "__main__":
    made_by = f"make_embeddings.py, xllamacpp {xllamacpp.__version__}, {os.path.basename(sys.argv[1])}"
    json.dump({"made_by": made_by, "texts": TEXTS, **{name: embeddings(sys.argv[1], kind) for name, kind in KINDS.items()}},
              sys.stdout)
