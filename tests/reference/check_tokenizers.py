#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are ids and decoded text those of the tokenizers library, and of mistral-common?

usage: check_tokenizers.py [--mib=N] TOKENIZER.json|tekken.json... -- TEXT...
       (needs build/tests/reference/token_ids: make build/tests/reference/token_ids)

TEXT are files, or folders with files, of any kind: their bytes are read as UTF-8, with U+FFFD for
what is not, and cut into documents of 1 to 64 KiB until there are N MiB (50). Besides these there
are damaged and long documents of our own. The first document that differs is printed. Prints TAP.
"""

import pathlib
import random
import struct
import subprocess
import sys

import tokenizers

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/tests/reference/token_ids"
LETTERS = "aZé0ß١中ふ한ы\u0301\u0327\u094d\u1680\u00a0\u3000 \t\r\n'’\u017fs▁_-.,!<|>/\u200d🙂👩🏽\u0085\u180e\ufb01Å\u212b½²"


def texts(names, limit):
    for name in names:
        path = pathlib.Path(name)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if limit <= 0:
                return
            if file.is_file() and not file.is_symlink():
                data = file.read_bytes()[:4 << 20]
                limit -= len(data)
                yield data


def documents(names, limit):
    chance = random.Random(1)
    for data in texts(names, limit):
        begin = 0
        while begin < len(data):
            end = begin + chance.randrange(1 << 10, 1 << 16)
            yield data[begin:end].decode("utf-8", "replace")
            begin = end
    for length in (1, 2, 3, 5, 20, 300):
        for _ in range(2000):
            yield "".join(chance.choice(LETTERS) for _ in range(length))
    for run in ("a", " ", "\n", " \n", "é", "中", "🙂", "'", "1", "▁", "\u0301"):
        yield run * 20000
    yield ""


def ids_and_texts(tokenizer, cases):
    frames = b"".join(struct.pack("<I", len(case)) + case for case in cases)
    out = subprocess.run([PROGRAM, tokenizer], input=frames, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in cases:
        count = struct.unpack_from("<I", out, at)[0]
        ids = list(struct.unpack_from(f"<{count}I", out, at + 4))
        at += 4 + 4 * count
        size = struct.unpack_from("<I", out, at)[0]
        yield ids, out[at + 4:at + 4 + size].decode("utf-8")
        at += 4 + size


class Tekken:
    """tekken.json, read by mistral-common, with the methods of the tokenizers library."""

    def __init__(self, path):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        self.library = Tekkenizer.from_file(path)

    def encode(self, text, add_special_tokens):
        self.ids = self.library.encode(text, bos=add_special_tokens, eos=False)
        return self

    def decode(self, ids, skip_special_tokens):
        return self.library.decode(ids, "ignore" if skip_special_tokens else "keep")


def open_library(path):
    if pathlib.Path(path).name.startswith("tekken"):
        return Tekken(path)
    library = tokenizers.Tokenizer.from_file(str(path))
    library.encode_special_tokens = True
    return library


def check(tokenizer, cases):
    library = open_library(tokenizer)
    panics = 0
    ours = ids_and_texts(tokenizer, [case.encode() for case in cases])
    for case, (ids, text) in zip(cases, ours):
        try:
            want = library.encode(case, add_special_tokens=False).ids
            decoded = library.decode(want, skip_special_tokens=False)
        except BaseException as error:  # Rust's panics are no Exception
            if "PanicException" not in type(error).__name__:
                raise
            panics += 1
            continue
        if ids != want:
            first = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
            return f"ids differ from {first} on: {ids[first:first + 8]}, not {want[first:first + 8]}: " \
                   f"{library.decode(want[max(0, first - 4):first + 8], skip_special_tokens=False)!r}"
        if text != decoded:
            first = next((i for i, (a, b) in enumerate(zip(text, decoded)) if a != b), 0)
            return f"decoded text differs from {first} on: {text[first:first + 40]!r}, not {decoded[first:first + 40]!r}"
    if panics:
        print(f"# the library panics on {panics} of the documents")
    return None


def main():
    arguments = sys.argv[1:]
    limit = 50
    if arguments and arguments[0].startswith("--mib="):
        limit = int(arguments.pop(0)[6:])
    split = arguments.index("--")
    files, cases = arguments[:split], list(documents(arguments[split + 1:], limit << 20))
    print(f"1..{len(files)}\n# {len(cases)} documents, {sum(len(case.encode()) for case in cases) / 1e6:.1f} MB, "
          f"tokenizers {tokenizers.__version__}")
    failed = 0
    for number, file in enumerate(files, 1):
        problem = check(file, cases)
        failed += problem is not None
        print(f"{'not ok' if problem else 'ok'} {number} - {file}" + (f"\n# {problem}" if problem else ""), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
