#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tokenizers of every form that is read of tokenizer.json, for check_tokenizers.py.

usage: make_tokenizers.py FOLDER TEXT...

Each is trained by the tokenizers library on the files TEXT, with another combination of normalizer,
pre-tokenizer and decoder, and is FOLDER/NAME/tokenizer.json. Models of kind WordPiece have 30,000 tokens and are
also FOLDER/NAME/vocab.txt; those of kind Unigram have 16,000 and the scores and the normalizer of the one that the
package sentencepiece trains, FOLDER/sentencepiece/tokenizer.model. The option --kind=BPE, WordPiece or
Unigram makes those of one kind only; --kind=small writes small ones of the last two kinds into FOLDER, with texts and
what the library makes of them, for tests/unit/data/test_models.c: tests/reference/tokenizers is made of man/mics.7.
"""

import json
import pathlib
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders as d, models, normalizers as n, pre_tokenizers as p, processors, trainers

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


CASELESS = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}

# name: options of BertNormalizer, or another one; pre-tokenizer, prefix, most characters of a word, cleanup
WORDPIECES = {
    "bert-uncased": (CASELESS, p.BertPreTokenizer(), "##", 100, True),
    "bert-cased": (CASELESS | {"lowercase": False}, p.BertPreTokenizer(), "##", 100, True),
    "bert-accents": (CASELESS | {"strip_accents": False}, p.BertPreTokenizer(), "##", 100, False),
    "bert-stripped": (CASELESS | {"strip_accents": True, "lowercase": False, "clean_text": False}, p.BertPreTokenizer(), "##", 20, True),
    "bert-ideographs": (CASELESS | {"handle_chinese_chars": False}, p.BertPreTokenizer(), "##", 3, True),
    "wordpiece-space": (n.NFKC(), p.WhitespaceSplit(), "@", 30, False),
}


def make_wordpiece(form, texts, size=30000):
    normalizer, pretokenizer, prefix, most, cleanup = form
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=most, continuing_subword_prefix=prefix))
    tokenizer.normalizer = n.BertNormalizer(**normalizer) if isinstance(normalizer, dict) else normalizer
    tokenizer.pre_tokenizer = pretokenizer
    tokenizer.decoder = d.WordPiece(prefix, cleanup)
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, limit_alphabet=size // 8, show_progress=False,
                                        continuing_subword_prefix=prefix)
    tokenizer.train_from_iterator((line for text in texts for line in text.split("\n")), trainer)
    doc = json.loads(tokenizer.to_str())  # training forgets these
    doc["model"] |= {"max_input_chars_per_word": most, "continuing_subword_prefix": prefix, "unk_token": "[UNK]"}
    tokenizer = Tokenizer.from_str(json.dumps(doc))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                             special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def read_model(model):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return proto


def train_sentencepiece(texts, size, **options):
    """A model of the package sentencepiece, as bytes."""
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "text").write_text("\n".join(texts), "utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=folder + "/text", model_prefix=folder + "/m", model_type="unigram", vocab_size=size, minloglevel=2,
            input_sentence_size=60000, shuffle_input_sentence=True, character_coverage=0.9995, num_threads=2, **options)
        proto = read_model((pathlib.Path(folder) / "m.model").read_bytes())
    for field in ("input", "model_prefix"):  # of the temporary folder
        proto.trainer_spec.ClearField(field)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString()


SPACES = n.Replace(Regex(" {2,}"), " ")
ALBERT = [n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase()]
WORDS = p.Sequence([p.WhitespaceSplit(), p.Metaspace()])

# name: (normalizer, given the one of SentencePiece, pre-tokenizer, decoder, <0xNN>)
UNIGRAMS = {
    "xlm-roberta": (lambda pre: pre, WORDS, d.Metaspace(), False),
    "albert": (lambda pre: n.Sequence(ALBERT + [pre]), p.Metaspace(), d.Metaspace(), False),
    "from-sentencepiece": (lambda pre: n.Sequence([pre, SPACES]), p.Metaspace(), d.Metaspace(), False),
    "mbart": (lambda pre: n.Sequence([pre, n.Strip(left=False), n.Replace(Regex(" {2,}"), "▁")]), p.Metaspace(), d.Metaspace(), False),
    "unigram-nmt": (lambda pre: n.Sequence([n.Nmt(), n.NFKC(), SPACES]), p.Metaspace(), d.Metaspace(), True),
    "unigram-whole": (lambda pre: n.Sequence([pre, SPACES]), p.Metaspace(prepend_scheme="first", split=False), d.Metaspace(prepend_scheme="first"), True),
    "unigram-bare": (lambda pre: None, None, d.Fuse(), False),
}


def make_unigram(form, model):
    normalizer, pretokenizer, decoder, fallback = form
    proto = read_model(model)
    special = ["<unk>", "<s>", "</s>", "<mask>"]
    pieces = [(text, 0.0) for text in special + (BYTE_TOKENS if fallback else [])]
    pieces += [(piece.piece, piece.score) for piece in proto.pieces if piece.type == 1]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, fallback))
    precompiled = n.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    if normalizer(precompiled) is not None:
        tokenizer.normalizer = normalizer(precompiled)
    if pretokenizer is not None:
        tokenizer.pre_tokenizer = pretokenizer
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(special)
    return tokenizer


# What the normalizer of the small ones does: a character, and sequences that overlap, become others.
RULES = """FF41\t61
2460\t31
61 308\tE4
65 301\tE9
B5\t3BC
FB01\t66 69
A0\t20
A\t20
9\t20
AD\t
2026\t2E 2E 2E
"""
SMALL = ["bert-uncased", "bert-cased", "bert-accents", "wordpiece-space", "xlm-roberta", "albert", "mbart", "unigram-whole"]
WORDS_TO_TRY = ["mics", "training", " the", "The", "sharded", "é", "e\u0301", "ａ", "①", "①\u0301", "\u00a0", "\n", "\t", " ", "  ", "中文",
                "\u0600①", "a\u0308", "한국", "[MASK]", "</s>", "<mask>", "don't", "x.y", "…", "\u00ad", "\u200b", "İ", "ΑΣ", "ﬁ", "µ",
                "🙂", "\u2581", "\U0002b820", "\U0002b920", "supercalifragilistic" * 6, "--", "``a''", "क\u094dष", "\ufffd", "\x85"]


def write_small(folder, texts):
    import random
    from check_tokenizers import open_library
    words = " ".join(texts).split()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(RULES)
        rules.flush()
        model = train_sentencepiece(texts, 300, normalization_rule_tsv=rules.name, hard_vocab_limit=False)
    files = [folder / "sentencepiece/tokenizer.model"]
    files[0].parent.mkdir(parents=True, exist_ok=True)
    files[0].write_bytes(model)
    for name in SMALL:
        if name in WORDPIECES:
            tokenizer = make_wordpiece(WORDPIECES[name], texts, 300)
        else:
            tokenizer = make_unigram(UNIGRAMS[name], model)
        save(folder / name, tokenizer)
        files.append(folder / name / "tokenizer.json")
        if name == "bert-uncased":
            (folder / "bert").mkdir(parents=True, exist_ok=True)
            tokenizer.model.save(str(folder / "bert"))
            files.append(folder / "bert/vocab.txt")
    chance = random.Random(5)
    for file in files:
        library = open_library(file)
        if hasattr(library, "encode_special_tokens"):
            library.encode_special_tokens = True
        rows = []
        for count in [1] * len(WORDS_TO_TRY) + [3] * 20 + [12] * 40 + [80] * 4:
            pool = WORDS_TO_TRY + chance.sample(words, len(WORDS_TO_TRY))
            text = WORDS_TO_TRY[len(rows)] if count == 1 else "".join(chance.choice(pool) for _ in range(count))
            ids = library.encode(text, add_special_tokens=False).ids
            rows.append([text, ids, library.decode(ids, skip_special_tokens=False)])
        file.with_name("expected.json").write_text(
            json.dumps({"rows": rows}, separators=(",", ":"), ensure_ascii=False), "utf-8")


def save(folder, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def main():
    arguments = sys.argv[1:]
    kind = arguments.pop(0)[7:] if arguments[0].startswith("--kind=") else ""
    folder = pathlib.Path(arguments[0])
    texts = [pathlib.Path(name).read_text("utf-8", "replace") for name in arguments[1:]]
    if kind == "small":
        write_small(folder, texts)
    for name, form in FORMS.items() if kind in ("", "BPE") else ():
        save(folder / name, make(form, texts))
    for name, form in WORDPIECES.items() if kind in ("", "WordPiece") else ():
        tokenizer = make_wordpiece(form, texts)
        save(folder / name, tokenizer)
        if isinstance(form[0], dict):
            tokenizer.model.save(str(folder / name))
    if kind in ("", "Unigram"):
        (folder / "sentencepiece").mkdir(parents=True, exist_ok=True)
        model = train_sentencepiece(texts, 16000)
        (folder / "sentencepiece/tokenizer.model").write_bytes(model)
        (folder / "sentencepiece-bytes").mkdir(parents=True, exist_ok=True)
        (folder / "sentencepiece-bytes/tokenizer.model").write_bytes(
            train_sentencepiece(texts, 8000, byte_fallback=True, normalization_rule_name="identity",
                                remove_extra_whitespaces=False, user_defined_symbols=["<sep>"]))
        for name, form in UNIGRAMS.items():
            save(folder / name, make_unigram(form, model))


if __name__ == "__main__":
    main()
