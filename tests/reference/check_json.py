#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is JSON of other programs accepted, rejected and read as Python's json module does it?

usage: check_json.py [FILES [SEED]]      (1000 mutated files, seed 1)
       (needs build/tests/reference/json_values: make build/tests/reference/json_values)

Known differences, which are left out: integers of more than 4300 digits, which Python refuses;
values that are no object; texts in UTF-16 and UTF-32; and integers beyond 64 bits are reals. Prints
TAP.
"""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/tests/reference/json_values"
SEEDS = [
    b'{"model_type": "llama", "rope_theta": 1e6, "eos_token_id": [1, 2], "rope_scaling": {"factor": 8.0, "x": null}}',
    b'{"model_max_length": 1000000000000000019884624838656, "tokenizer_class": "X", "added_tokens_decoder": {"0": {"content": "\\ud83d\\ude00", "special": true}}}',
    b'{"text": "caf\xc3\xa9 \\u00e9 \\n\\"q\\" \xf0\x9f\x98\x80", "meta": {"score": -0.25, "x": NaN, "y": [Infinity, -Infinity]}, "id": 7}',
]
PIECES = [b'"', b"\\", b"\\u", b"\\ud83d", b"\\ude00", b"\\u0000", b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"-", b"+",
          b"Infinity", b"1e999", b"-1e999", b"0", b"01", b"1.", b".5", b"e", b"17293822569102704640", b"\xef\xbb\xbf", b"\xff",
          b"\xc3", b"\xed\xa0\x80", b"\n", b"\t", b"\r", b" ", b"\x00", b"\x0c", b"null", b"tru", b"'", b'"id":', b'"id":8,', b"//"]


def mutate(text):
    text = bytearray(text)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        at, kind = random.randrange(len(text) + 1), random.randrange(4)
        if kind == 0:
            text[at:at] = random.choice(PIECES)
        elif kind == 1:
            del text[at:at + random.randrange(1, 4)]
        elif kind == 2:
            text[at:at + 1] = random.choice(PIECES)
        else:
            text[at:at + 1] = bytes([random.randrange(256)])
    return bytes(text)


def plain(value):
    """What mics makes of it: see foreign.h."""
    if isinstance(value, dict):
        return {fixed(k): plain(v) for k, v in value.items() if "\0" not in k and not (isinstance(v, str) and "\0" in v)}
    if isinstance(value, list):
        return [plain(v) for v in value if not (isinstance(v, str) and "\0" in v)]
    if isinstance(value, str):
        return fixed(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -2**63 < value < 2**63:
        value = float(value) if abs(value) < 2**1023 else math.copysign(math.inf, value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}
    return value


def fixed(text):
    return "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in text)


def python(data):
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except ValueError:
        return None
    return plain(value) if isinstance(value, dict) else None


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    texts = [mutate(random.choice(SEEDS)) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{folder}/{i}.json" for i in range(count)]
        for name, text in zip(names, texts):
            pathlib.Path(name).write_bytes(text)
        lines = subprocess.run([PROGRAM], input="\n".join(names) + "\n", capture_output=True, text=True, check=True).stdout.split("\n")
    bad = accepted = 0
    for text, line in zip(texts, lines):
        found = json.loads(line[9:]) if line.startswith("accepted ") else None
        wanted = python(text)
        accepted += wanted is not None
        if found != wanted:
            bad += 1
            print(f"# {text!r}\n#   python: {wanted}\n#   mics: {line}")
    print(f"# {accepted} of {count} accepted by Python")
    print(f"{'not ok' if bad else 'ok'} 1 - {count} mutated files are read as Python reads them\n1..1")
    return bool(bad)


sys.exit(main())
