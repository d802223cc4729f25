#!/usr/bin/env python3
"""Makes tests/golden/model/answers.json: what Hugging Face answers in float32 on the dequantised weights.

Needs what make_logits.py needs. Usage:
    make_answers.py ~/.cache/mooncaf/models/SmolLM2-135M-Instruct.Q4_1.gguf TEXT > answers.json

`answers`: for each prompt the greedy continuation of up to 64 tokens, each with the lead of its logit over the
runner-up's. `text`: TEXT, some 2,000 tokens of English, and the log-probability of each token but the first.
tests/integration/reference.py asks a server for the same.
"""
import json
import sys

import numpy as np
import torch
from gguf import GGUFReader
from tokenizers import decoders

from make_logits import model_of, tokenizer_of

TOKENS = 64
OPENINGS = """The capital of France is
The largest planet of the solar system is
Water boils at a temperature of
Photosynthesis is the process by which
The first president of the United States was
In the year 1492, Christopher Columbus
The difference between weather and climate is
A triangle with three equal sides is called
The human heart pumps blood through
Shakespeare wrote many plays, among them
To bake a loaf of bread you need
The speed of light in a vacuum is
The three states of matter are
Gravity is the force that
An earthquake happens when
The Great Wall of China was built
A prime number is a number that
The opposite of cold is
Bees are important for agriculture because
The Amazon river flows through
Once upon a time, in a village by the sea,
The old lighthouse keeper climbed the stairs and
She opened the letter with trembling hands, and
It was the coldest winter that anybody could remember, so
"Where have you been?" asked the captain.
The robot looked at the flower and
On the last day of school, the children
Nobody knew why the clock had stopped at noon, but
The dragon was tired of being feared, and
Dear Sir or Madam, I am writing to you because
Here is a list of five healthy breakfasts:
How to change a flat tire, step by step:
Three reasons to learn a second language:
Q: What is the boiling point of alcohol?
A:
Q: Who painted the Mona Lisa?
A:
def factorial(n):
def is_palindrome(text):
for i in range(10):
SELECT name, age FROM
import numpy as np
The derivative of x squared is
1, 1, 2, 3, 5, 8, 13,
Two plus two equals four, and three plus three equals
Monday, Tuesday, Wednesday,
If all cats are animals and Tom is a cat, then
<|im_start|>user
What is the meaning of the word "entropy"?<|im_end|>
<|im_start|>assistant
<|im_start|>user
Write a short poem about the moon.<|im_end|>
<|im_start|>assistant
<|im_start|>user
Give me a recipe for tomato soup.<|im_end|>
<|im_start|>assistant
<|im_start|>user
Explain how a bicycle stays upright.<|im_end|>
<|im_start|>assistant
The museum is open every day except
When a computer runs out of memory, it
The best way to remember a name is to
Rain fell on the roof all night, and in the morning"""


def prompts():
    """A line each; what begins with a marker of a chat or with `Q:` goes on to the line before the next prompt."""
    out = []
    for line in OPENINGS.split("\n"):
        goes_on = out and (line.startswith("A:") or (out[-1].startswith("<|im_start|>user") and "assistant" not in out[-1]))
        if goes_on:
            out[-1] += "\n" + line
        else:
            out.append(line)
    return [p + "\n" if p.endswith("<|im_start|>assistant") else p for p in out]


def answers_of(model, tok, eos, texts):
    """All prompts at once, padded on the left: a step reads the weights once for all of them."""
    rows = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    width = max(map(len, rows))
    ids = torch.tensor([[eos] * (width - len(r)) + r for r in rows])
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
    tokens, leads, past, fed = [[] for _ in rows], [[] for _ in rows], None, ids
    for _ in range(TOKENS):
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -fed.shape[1]:]
        out = model(fed, attention_mask=mask, position_ids=places, past_key_values=past, use_cache=True, logits_to_keep=1)
        best = torch.topk(out.logits[:, -1], 2)
        past, fed = out.past_key_values, best.indices[:, :1]
        mask = torch.cat([mask, torch.ones(len(rows), 1, dtype=mask.dtype)], 1)
        for row, token, pair in zip(range(len(rows)), fed[:, 0].tolist(), best.values.tolist()):
            if eos not in tokens[row]:
                tokens[row].append(token)
                leads[row].append(round(pair[0] - pair[1], 4))
        print(".", end="", file=sys.stderr, flush=True)
    cut = lambda row: len(tokens[row]) - (tokens[row][-1] == eos)
    return [{"prompt": text, "prompt_ids": rows[row], "ids": tokens[row][:cut(row)], "leads": leads[row][:cut(row)],
             "text": tok.decode(tokens[row][:cut(row)], skip_special_tokens=False)} for row, text in enumerate(texts)]


def logprobs_of(model, tok, text):
    ids = tok.encode(text, add_special_tokens=False).ids
    logits = model(torch.tensor([ids])).logits[0, :-1].double()
    all_of_them = torch.log_softmax(logits, -1)
    return ids, [round(float(all_of_them[i, t]), 4) for i, t in enumerate(ids[1:])]


def main():
    reader = GGUFReader(sys.argv[1])
    model, tok = model_of(reader), tokenizer_of(reader)
    tok.decoder = decoders.ByteLevel()
    eos = int(np.asarray(reader.fields["tokenizer.ggml.eos_token_id"].contents()))
    text = open(sys.argv[2]).read()
    with torch.no_grad():
        ids, logprobs = logprobs_of(model, tok, text)
        print(f"{len(ids)} tokens of text, perplexity {np.exp(-np.mean(logprobs)):.3f}", file=sys.stderr, flush=True)
        answers = answers_of(model, tok, eos, prompts())
        for a in answers:
            print(len(a["ids"]), a["text"][:60].encode(), file=sys.stderr)
    line = lambda a: json.dumps(a, ensure_ascii=False)
    lines = ",\n".join(map(line, answers))
    print(f'{{"answers": [\n{lines}\n],\n"text": {line({"text": text, "logprobs": logprobs})}}}')


if __name__ == "__main__":
    main()
