#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tokenizers of every form that is read of tokenizer.json, for check_tokenizers.py.

usage: make_tokenizers.py FOLDER TEXT...

Each is trained by the tokenizers library on the files TEXT, with another combination of normalizer,
pre-tokenizer and decoder, and is FOLDER/NAME/tokenizer.json.
"""

import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders as d, models, normalizers as n, pre_tokenizers as p, trainers

BYTES = p.ByteLevel.alphabet()
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA = [d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]
DIGITS = Regex("[0-9][0-9][0-9]")
DEEPSEEK = p.Sequence([
    p.Split(Regex(r"\p{N}{1,3}"), "isolated"), p.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
    p.Split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
                  r"\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
    p.ByteLevel(add_prefix_space=False, use_regex=False)])

# name: (normalizer, pre-tokenizer, decoder, tokens are bytes, <0xNN>)
FORMS = {
    "metaspace-always": (None, p.Metaspace(), d.Metaspace(), False, False),
    "metaspace-first": (None, p.Metaspace(prepend_scheme="first"), d.Metaspace(prepend_scheme="first"), False, True),
    "metaspace-never": (None, p.Metaspace(prepend_scheme="never"), d.Metaspace(prepend_scheme="never"), False, False),
    "metaspace-whole": (None, p.Metaspace(prepend_scheme="first", split=False), d.Sequence([d.ByteFallback(), d.Metaspace()]), False, True),
    "metaspace-underline": (None, p.Metaspace("_"), d.Metaspace("_"), False, False),
    "metaspace-fused": (None, p.Metaspace(), d.Sequence([d.Fuse(), d.Metaspace()]), False, False),
    "metaspace-digits": (None, p.Sequence([p.Digits(), p.Metaspace(prepend_scheme="first")]), d.Metaspace(), False, False),
    "llama": (n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), None, d.Sequence(LLAMA), False, True),
    "gemma": (n.Replace(" ", "▁"), p.Split(" ", "merged_with_previous"), d.Sequence(LLAMA[:3]), False, True),
    "strip-decoder": (n.Replace(" ", "▁"), p.Split("▁", "isolated"), d.Sequence([d.Replace("▁", " "), d.Strip(" ", 2, 1), d.Fuse(), d.Strip("a", 1, 2)]), False, False),
    "strip": (n.Strip(), p.ByteLevel(), d.ByteLevel(), True, False),
    "strip-left": (n.Sequence([n.Strip(right=False), n.Prepend("▁"), n.Replace(" ", "▁")]), None, d.Sequence(LLAMA), False, True),
    "lowercase": (n.Lowercase(), p.ByteLevel(add_prefix_space=False), d.ByteLevel(), True, False),
    "lowercase-accents": (n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]), p.Whitespace(), None, False, False),
    "nmt": (n.Sequence([n.Nmt(), n.NFKC(), n.Replace(Regex(" {2,}"), " ")]), p.Metaspace(), d.Metaspace(), False, False),
    "replace": (n.Sequence([n.Replace(Regex(r"\s+"), " "), n.Replace(Regex(r"(\d)(?=\d)|x+"), "_")]), p.ByteLevel(), d.ByteLevel(), True, False),
    "replace-word": (n.Replace(Regex(r"\b\w{2}\b|^[[:punct:]]|\W$"), "W"), p.ByteLevel(), d.ByteLevel(), True, False),
    "replace-decoder": (n.Replace(" ", "▁"), None, d.Sequence([d.Replace(Regex("▁+|ß?$"), " "), d.Fuse(), d.Replace(Regex(" [a-c]"), "-"), d.Strip(" ", 1, 1)]), False, False),
    "byte-normalizer": (n.Sequence([n.NFC(), n.ByteLevel()]), p.Split(Regex("Ġ?[^Ġ]+"), "isolated"), d.ByteLevel(), True, False),
    "byte-normalizer-whole": (n.ByteLevel(), None, d.Sequence([d.ByteLevel(), d.Fuse()]), True, False),
    "falcon": (None, p.Sequence([p.Punctuation("contiguous"), p.ByteLevel(add_prefix_space=False), p.Digits(), p.Split(DIGITS, "isolated")]), d.ByteLevel(), True, False),
    "bloom": (None, p.Sequence([p.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]), d.ByteLevel(), True, False),
    "deepseek": (None, DEEPSEEK, d.ByteLevel(), True, False),
    "han": (None, p.Sequence([p.Split(Regex(r"\p{Han}+|\P{Han}\p{Letter}*|\u3042"), "isolated"), p.ByteLevel(add_prefix_space=False)]), d.ByteLevel(), True, False),
    "prefix": (n.NFC(), p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=True)]), d.ByteLevel(), True, False),
    "white-space": (None, p.Whitespace(), None, False, False),
    "white-space-split": (n.NFKC(), p.WhitespaceSplit(), d.Fuse(), False, False),
    "bert": (None, p.BertPreTokenizer(), None, False, False),
    "delimiter": (None, p.CharDelimiterSplit("."), None, False, False),
    "fixed": (None, p.FixedLength(3), d.Fuse(), False, False),
    "class-names": (None, p.Split(Regex(r"[[:alpha:]']+|[[:digit:]]+|[^\w\s]+|\W"), "contiguous", invert=True), d.Fuse(), False, False),
}


def make(form, texts):
    normalizer, pretokenizer, decoder, is_bytes, fallback = form
    tokenizer = Tokenizer(models.BPE(byte_fallback=fallback, unk_token=None if is_bytes else "<unk>", fuse_unk=fallback))
    if pretokenizer is not None:
        tokenizer.pre_tokenizer = pretokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    special = ["<unk>", "<s>", "</s>"] + (BYTE_TOKENS if fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=BYTES if is_bytes else [],
                                  limit_alphabet=1000, show_progress=False, max_token_length=16)
    lines = (line for text in texts for line in text.split("\n"))
    tokenizer.train_from_iterator(lines, trainer)
    if normalizer is not None:  # in training some panic
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken("[Xé]", normalized=True), AddedToken("▁▁Y", normalized=False, lstrip=True)])
    return tokenizer


def main():
    folder = pathlib.Path(sys.argv[1])
    texts = [pathlib.Path(name).read_text("utf-8", "replace") for name in sys.argv[2:]]
    for name, form in FORMS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        make(form, texts).save(str(folder / name / "tokenizer.json"))


if __name__ == "__main__":
    main()
