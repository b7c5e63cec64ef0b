#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long does a token take after 500 others: mics-sample beside transformers, fp32 on this host? As a row of a table.

usage: sample_transformers.py [rounds]      (mics-sample on PATH)

GPT-2 with 124 million random parameters, one sequence, greedy, 64 tokens after a prompt of 500. Both run in turn, so
that the machine's other work meets both; the best round of each counts. transformers uses its static cache, with as
many threads as mics-sample (MICS_THREADS, else the cores). The ids must be equal.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import transformers

PROMPT, TOKENS = 500, 64


def make_model(folder):
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=None, bos_token_id=0)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (1.0 if "ln_" in name else 0.0))
    model.save_pretrained(folder)
    return model


def with_transformers(model, prompt):
    """Seconds of each token after the first, and the ids."""
    def generate(most):
        begin = time.perf_counter()
        with torch.no_grad():
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, pad_token_id=0,
                                 max_new_tokens=most, cache_implementation="static")
        return time.perf_counter() - begin, out[0].tolist()[PROMPT:]

    one, _ = generate(1)
    all_of_them, ids = generate(TOKENS)
    return (all_of_them - one) / (TOKENS - 1), ids


def with_mics(folder, prompt):
    done = subprocess.run(["mics-sample", folder, "--ids", "--temperature=0", f"--max-tokens={TOKENS}", "--json", "-v",
                           "--ignore-end"], input=" ".join(map(str, prompt[0].tolist())), check=True, text=True,
                          capture_output=True)
    words = done.stderr.replace(",", "").split()
    return 1 / float(words[words.index("tokens/s") - 1]), json.loads(done.stdout)["ids"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(int(os.environ.get("MICS_THREADS", len(os.sched_getaffinity(0)))))
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "gpt2"
        model = make_model(folder)
        prompt = torch.randint(1, 50000, (1, PROMPT))
        theirs, ours = [], []
        for _ in range(rounds):
            seconds, want = with_transformers(model, prompt)
            theirs.append(seconds)
            seconds, ids = with_mics(folder, prompt)
            ours.append(seconds)
            if ids != want:
                sys.exit(f"other ids: {ids} instead of {want}")
    print(f"| a token after {PROMPT}, 124M, fp32 | {1e3 * min(ours):.1f} ms | transformers {transformers.__version__} "
          f"(torch {torch.__version__}, static cache): {1e3 * min(theirs):.1f} ms | {min(theirs) / min(ours):.2f} | 1.2 |")
    return min(theirs) < 1.2 * min(ours)


if __name__ == "__main__":
    sys.exit(main())
