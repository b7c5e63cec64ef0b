#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encode a text with mics, tokenizers and tiktoken on one thread each; compare ids and print rows of a table, in MB per
second of CPU time.

usage: encode.py BUILD TOKENIZER.json TEXT [PASSES]

Text that is not UTF-8 is left out. tiktoken gets the vocabulary of the file, as ranks, and its regular
expression; it is left out for tokenizers that it cannot express.
"""

import array
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken
import tokenizers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def alphabet():
    """Characters of byte-level BPE and their bytes."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + i): b for i, b in enumerate(others)}


def as_tiktoken(path):
    """The tokenizer of a tokenizer.json whose ids are the ranks of its merges, or None."""
    with open(path, encoding="utf-8") as file:
        doc = json.load(file)
    if doc["normalizer"] is not None:
        return None
    pre = doc["pre_tokenizer"]
    steps = pre.get("pretokenizers", [pre])
    patterns = [s["pattern"]["Regex"] for s in steps if s["type"] == "Split"]
    characters = alphabet()
    special = {t["content"]: t["id"] for t in doc["added_tokens"] if t["special"]}
    ranks = {
        bytes(characters[c] for c in text): rank
        for text, rank in doc["model"]["vocab"].items()
        if text not in special
    }
    return tiktoken.Encoding("bench", pat_str=(patterns or [GPT2])[0], mergeable_ranks=ranks, special_tokens=special)


def fastest(passes, encode):
    best, ids = None, None
    for _ in range(passes):
        begin = time.process_time()
        ids = encode()
        seconds = time.process_time() - begin
        best = seconds if best is None else min(best, seconds)
    return best, ids


def run_mics(build, path, data, passes):
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/text", "wb") as file:
            file.write(data)
        command = [build + "/bench/encode", path, folder + "/text", str(passes), folder + "/ids"]
        seconds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[2])
        with open(folder + "/ids", "rb") as file:
            return seconds, array.array("I", file.read()).tolist()


def main():
    build, path, text = sys.argv[1:4]
    passes = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    with open(text, "rb") as file:
        data = file.read().decode("utf-8", "ignore")
    size = len(data.encode()) / 1e6
    own, ids = run_mics(build, path, data.encode(), passes)
    library = tokenizers.Tokenizer.from_file(path)
    library.encode_special_tokens = True
    # Parts of 64 KiB keep the offsets that the library makes small. Ids are those of the whole if it is cut
    # before a space that follows no white space.
    parts, at = [], 0
    while at < len(data):
        end = at + 65536
        while end < len(data) and not (data[end] == " " and "!" <= data[end - 1] <= "~"):
            end += 1
        parts.append(data[at:end])
        at = end
    failed = False
    rivals = [(f"tokenizers {tokenizers.__version__}", 10, lambda: [
        i for p in parts for i in library.encode(p, add_special_tokens=False).ids])]
    other = as_tiktoken(path)
    if other is not None:
        rivals.append((f"tiktoken {tiktoken.__version__}", 3, lambda: [
            i for p in parts for i in other.encode_ordinary(p)]))
    name = os.path.basename(path)
    if name == "tokenizer.json":
        name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    name_of_text = f"{name}, {os.path.basename(text)} ({size:.1f} MB)"
    for name, reach, encode in rivals:
        seconds, found = fastest(passes, encode)
        equal = found == ids
        failed |= not equal
        print(f"| encode, {name_of_text}, one core | {size / own:.1f} MB/s | {name}: {size / seconds:.1f} MB/s, "
              f"{len(ids)} ids {'equal' if equal else 'DIFFER'} | {seconds / own:.1f} | {reach} |", flush=True)
    sys.exit(failed)


main()
