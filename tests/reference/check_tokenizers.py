#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are ids and decoded text those of the tokenizers library, and of mistral-common?

usage: check_tokenizers.py [--mib=N] TOKENIZER.json|tekken.json|vocab.txt|tokenizer.model... -- TEXT...
       (needs build/tests/reference/token_ids: make build/tests/reference/token_ids)

TEXT are files, or folders with files, of any kind: their bytes are read as UTF-8, with U+FFFD for
what is not, and cut into documents of 1 to 64 KiB until there are N MiB (50). Besides these there
are damaged and long documents of our own. The first document that differs is printed. Prints TAP.

vocab.txt is that of BertWordPieceTokenizer, with the options of the tokenizer_config.json beside it. tokenizer.model
is one of SentencePiece of kind Unigram. A text that looks like a special token is ordinary text to us; models of kind
WordPiece and Unigram of the library find it among their tokens, so they are asked without these.
"""

import json
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


def hidden(number):
    return f"\U0010fffd{number}\U0010fffd"


class Pair:
    """A tokenizer whose special tokens are not found in a text, and the same that decodes them."""

    def __init__(self, encoding, decoding):
        self.encoding, self.decoding = encoding, decoding

    def encode(self, text, add_special_tokens):
        return self.encoding.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids, skip_special_tokens):
        return self.decoding.decode(ids, skip_special_tokens=skip_special_tokens)


def open_hidden(doc):
    decoding = tokenizers.Tokenizer.from_str(json.dumps(doc))
    special = {token["content"] for token in doc["added_tokens"] if token["special"]}
    doc["added_tokens"] = [token for token in doc["added_tokens"] if not token["special"]]
    doc["post_processor"] = None
    model = doc["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [[hidden(number) if text in special else text, score]
                          for number, (text, score) in enumerate(model["vocab"])]
    else:
        model["vocab"] = {hidden(number) if text in special else text: number for text, number in model["vocab"].items()}
        model["unk_token"] = hidden(decoding.token_to_id(model["unk_token"]))
    return Pair(tokenizers.Tokenizer.from_str(json.dumps(doc)), decoding)


def open_sentencepiece(path):
    """As transformers converts it, but white space goes as in SentencePiece, which leaves newlines alone."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(pathlib.Path(path).read_bytes())
    steps = []
    if proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    if proto.normalizer_spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r" +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    whole = any("▁" in piece.piece[1:] for piece in proto.pieces)
    added = [AddedToken(piece.piece, normalized=False) for piece in proto.pieces if piece.type == 4]

    def make(hides):
        pieces = [(hidden(number) if piece.type in hides else piece.piece, piece.score)
                  for number, piece in enumerate(proto.pieces)]
        library = tokenizers.Tokenizer(models.Unigram(pieces, proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback))
        library.normalizer = normalizers.Sequence(steps)
        library.pre_tokenizer = pre_tokenizers.Metaspace(split=not whole)
        library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                             decoders.Strip(" ", 1, 0)])
        library.add_tokens(added)
        return library

    return Pair(make({2, 3}), make(()))  # unknown, control


def open_library(path):
    path = pathlib.Path(path)
    if path.name.startswith("tekken"):
        return Tekken(path)
    if path.name == "vocab.txt":
        beside = path.with_name("tokenizer_config.json")
        config = json.loads(beside.read_text()) if beside.exists() else {}
        return tokenizers.BertWordPieceTokenizer(
            str(path), lowercase=config.get("do_lower_case", True), strip_accents=config.get("strip_accents"),
            handle_chinese_chars=config.get("tokenize_chinese_chars", True))._tokenizer
    if path.name == "tokenizer.model":
        return open_sentencepiece(path)
    doc = json.loads(path.read_text("utf-8"))
    if doc["model"].get("type") in ("WordPiece", "Unigram"):
        return open_hidden(doc)
    library = tokenizers.Tokenizer.from_file(str(path))
    library.encode_special_tokens = True
    return library


def check(tokenizer, cases):
    library = open_library(tokenizer)
    if hasattr(library, "encode_special_tokens"):
        library.encode_special_tokens = True
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
