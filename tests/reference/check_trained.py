#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are tokenizers that mics-data trains those of the tokenizers library, and does transformers load them?

usage: check_trained.py TEXT...      (mics-data on PATH)

For vocabularies of several sizes, the tokens and the merges must be those of BpeTrainer on the same files, and
the folder must load in transformers, encode the files to the same ids and decode them to the same text.

Needs tokenizers and transformers. Prints TAP.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizers
import transformers

END = "<|endoftext|>"
count = 0
failed = 0


def check(name, good):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")


def train_peer(texts, size):
    """The library's own, of `size` tokens without the end of text."""
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(peer.to_str())["model"]


def check_size(paths, texts, size, folder):
    command = ["mics-data", "train", "-q", f"--vocab={size}", "-o", str(folder), *paths]
    subprocess.run(command, check=True)
    ours = json.loads((folder / "tokenizer.json").read_text())["model"]
    peer = train_peer(texts, size - 1)
    end = ours["vocab"].pop(END)
    check(f"{size}: the end of text is the last token", end == len(ours["vocab"]))
    check(f"{size}: merges are those of tokenizers", ours["merges"] == peer["merges"])
    check(f"{size}: tokens are those of tokenizers", ours["vocab"] == peer["vocab"])
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    check(f"{size}: transformers knows the end of text", loaded.eos_token_id == end)
    ids = loaded(texts[0], add_special_tokens=False)["input_ids"]
    check(f"{size}: transformers decodes what it encodes", loaded.decode(ids) == texts[0])


def main():
    paths = sorted(sys.argv[1:])
    if not paths:
        sys.exit(__doc__)
    texts = [pathlib.Path(path).read_bytes().decode() for path in paths]
    with tempfile.TemporaryDirectory() as work:
        for size in 300, 2048, 20000:
            check_size(paths, texts, size, pathlib.Path(work) / str(size))
    print(f"# tokenizers {tokenizers.__version__}, transformers {transformers.__version__}")
    print(f"1..{count}")
    sys.exit(failed != 0)


main()
