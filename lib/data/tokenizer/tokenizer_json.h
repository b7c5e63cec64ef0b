/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer_json.h - the parts of tokenizer.json that change and cut text, which SentencePiece's
 * models have too. For lib/data/tokenizer only.
 */
#ifndef MICS_DATA_TOKENIZER_TOKENIZER_JSON_H
#define MICS_DATA_TOKENIZER_TOKENIZER_JSON_H

#include "data/tokenizer/tokenizer_internal.h"
#include "doc/cursor.h"

/* What SentencePiece writes for a space, U+2581. */
#define MICS_METASPACE "\xe2\x96\x81"

/* Every member of an object that is not null must be one of `known`, which ends with NULL. */
void mics_json_check_members(const struct mics_cursor *cursor, const char *const *known);

/* Members of all that is of type ByteLevel. */
extern const char *const mics_byte_level_members[];

/* Member "pattern" of `cursor`: {"String"} or {"Regex"}, which must not be empty. *text belongs to
 * the document; *regex, the caller's, is NULL for a string. */
void mics_json_read_pattern(const struct mics_cursor *cursor, const char **text,
                            struct mics_regex **regex);
/* A copy of the text, which the caller frees. NULL: out of memory. */
char *mics_json_copy_text(const struct mics_cursor *cursor, const char *text, size_t *size);
/* A member that is one character. */
const char *mics_json_read_character(const struct mics_cursor *cursor, const char *key);

/* Metaspace, which is a pre-tokenizer and a decoder. */
#define MICS_METASPACE_MEMBERS                                                                     \
    {                                                                                              \
        "type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep", NULL      \
    }
enum mics_prepend_scheme { MICS_PREPEND_ALWAYS, MICS_PREPEND_FIRST, MICS_PREPEND_NEVER };
struct mics_metaspace {
    const char *replacement; /* one character; the document's */
    enum mics_prepend_scheme scheme;
    bool split;
};
struct mics_metaspace mics_json_read_metaspace(const struct mics_cursor *cursor);

/* Characters of one class. */
struct mics_char_range {
    uint32_t first, last;
    char class;
};
/* The class of a character in sorted ranges, ' ' outside of them (bert.c). */
char mics_char_range_class(const struct mics_char_range *ranges, size_t count, uint32_t character);

/* What characters are to BERT. */
enum mics_bert_class {
    MICS_BERT_OTHER,
    MICS_BERT_CONTROL,    /* goes: control, format, private use */
    MICS_BERT_MARK,       /* an accent: a mark without width */
    MICS_BERT_PUNCTUATION /* is a word of its own */
};
enum mics_bert_class mics_bert_class(uint32_t character);
bool mics_bert_is_ideograph(uint32_t character); /* is a word of its own, too */
/* Append the words of a piece of pieces->text, without white space. MICS_ERR_NOMEM, without a
 * message. */
enum mics_status mics_bert_split(const struct mics_piece *piece, struct mics_pieces *pieces);

/* The normalizer of SentencePiece's models. */
struct mics_charsmap;
/* MICS_ERR_FORMAT: the bytes are damaged. */
enum mics_status mics_charsmap_new(const void *bytes, size_t size, struct mics_charsmap **out,
                                   struct mics_err *err);
void mics_charsmap_free(struct mics_charsmap *map); /* NULL is fine */
/* Does it change a printable character of ASCII? */
bool mics_charsmap_changes_ascii(const struct mics_charsmap *map);
/* Append what text[size] becomes. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_charsmap_apply(const struct mics_charsmap *map, const unsigned char *text,
                                     size_t size, struct mics_text *out);

/* Read member "normalizer" of `root`: NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Lowercase,
 * StripAccents, Nmt, BertNormalizer, Precompiled, ByteLevel, or a Sequence of them. Absent or null
 * leaves *out unchanged. */
void mics_normalizer_read(const struct mics_cursor *root, struct mics_normalizer *out);

/* Read member "pre_tokenizer" of `root` into splitter and pretokenizer: ByteLevel, Split, Digits,
 * Punctuation, Metaspace, Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer,
 * FixedLength, or a Sequence of them. *byte_level: tokens are bytes. The normalizer is there. */
void mics_pretokenizer_read(const struct mics_cursor *root, struct mics_tokenizer *tokenizer,
                            bool *byte_level);

/* Does it cut text, other than so that long texts are encoded piece by piece? */
bool mics_pretokenizer_cuts(const struct mics_tokenizer *tokenizer);

/* Read member "post_processor" of `root`, with the vocabulary complete, into before and after:
 * ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, or a Sequence of them. */
void mics_post_processor_read(const struct mics_cursor *root, struct mics_tokenizer *tokenizer);

/* Read member "decoder" of `root` into `decoding`: Replace, ByteFallback, Fuse, Strip, Metaspace,
 * WordPiece, or a Sequence of them; none puts spaces between tokens. If tokens are bytes
 * (`byte_level`), it must be ByteLevel. */
void mics_decoder_read(const struct mics_cursor *root, bool byte_level,
                       struct mics_tokenizer *tokenizer);

/* Where texts with U+2581 for spaces can be cut (cut.c). */
struct mics_word_cuts;

/* *out NULL: there are no such places. */
enum mics_status mics_word_cuts_new(const struct mics_tokenizer *tokenizer,
                                    struct mics_word_cuts **out, struct mics_err *err);
void mics_word_cuts_free(struct mics_word_cuts *cuts); /* NULL is fine */
/* Append the words of a piece of pieces->text. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_word_cuts_apply(const struct mics_word_cuts *cuts,
                                      const struct mics_piece *piece, struct mics_pieces *pieces);

/* Once normalizer and pre-tokenizer are read: may a text be cut where the pre-tokenizer allows it,
 * whatever the normalizer does? */
void mics_tokenizer_check_cut(struct mics_tokenizer *tokenizer);

/* Let long texts be cut before U+2581, where no token of the vocabulary, which must be complete,
 * reaches across: pieces are then words, and ids stay those of the whole text. */
enum mics_status mics_pretokenizer_cut_words(struct mics_tokenizer *tokenizer,
                                             struct mics_err *err);

#endif
