"""Writes a GGUF file's model as a BF16 folder with its tokenizer, by transformers: bf16_folder.py FILE FOLDER."""
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

file, folder = map(pathlib.Path, sys.argv[1:])
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
model.hf_quantizer = model.config.quantization_config = None  # it holds plain numbers by now, which may be written
del model.config.quantization_config
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
