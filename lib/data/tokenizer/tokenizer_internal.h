/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer_internal.h - what a tokenizer consists of: readers of files fill it, encoder and
 * decoder use it. For lib/data/tokenizer only.
 *
 *   text -> added tokens cut out -> normalizer -> added tokens of normalized text -> splitter or
 *   pre-tokenizer -> model, for each piece -> ids; before and after them what the template adds
 *
 * vocab.c tokens; model.c, bpe.c, wordpiece.c, unigram.c, trie.c, pieces.c ids of a piece; split.c,
 * regex.c pieces of a text; added.c added tokens; cut.c where long texts may be cut; encode.c,
 * decode.c the two directions; vocab_merges.c, tiktoken.c, tekken.c, tokenizer_json.c,
 * sentencepiece.c, wordpiece.c readers; normalizer.c, precompiled.c, pretokenizer.c, bert.c,
 * post_processor.c, decoding.c what tokenizer.json asks for beyond the known families;
 * companions.c, end.c what the files beside the one that is read say of ids; ../tokenizer.c chooses
 * the reader.
 */
#ifndef MICS_DATA_TOKENIZER_TOKENIZER_INTERNAL_H
#define MICS_DATA_TOKENIZER_TOKENIZER_INTERNAL_H

#include "data/tokenizer.h"

struct mics_companions;

#define MICS_TOKENIZER_MAX_IDS   (1u << 24)
#define MICS_TOKENIZER_MAX_BYTES (256u << 20) /* of one of its files */

/* Bytes that grow. All zeros is empty; whoever has it calls free(bytes). */
struct mics_text {
    unsigned char *bytes;
    size_t size, capacity;
};

/* Room for `size` bytes in all, aligned as malloc() does. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_text_reserve(struct mics_text *text, size_t size);
/* MICS_ERR_NOMEM, without a message. */
enum mics_status mics_text_append(struct mics_text *text, const void *bytes, size_t size);

/* ---- tokens (vocab.c) ---- */

enum mics_token_flags {
    MICS_TOKEN_PRESENT = 1, /* the id is in use; others are holes, which decode to nothing */
    MICS_TOKEN_MODEL = 2,   /* mics_vocab_find() finds it */
    MICS_TOKEN_ADDED = 4,   /* its text is literal: no ▁, no <0xNN> in it are replaced */
    MICS_TOKEN_SPECIAL = 8,
    MICS_TOKEN_BYTE = 16 /* <0xNN>: decodes to that byte */
};

struct mics_token {
    uint32_t offset, length; /* in mics_vocab.text */
    uint32_t flags;
};

/* Texts of byte-level models are the raw bytes that a token stands for, not the characters that
 * files write for them; texts of other models are UTF-8 with ▁ for a space. */
struct mics_vocab {
    struct mics_token *tokens; /* [size] */
    uint32_t size, capacity;   /* ids are below size */
    struct mics_text text;
    uint32_t *slots; /* [slot_count] ids by hash of their text, MICS_NO_TOKEN is empty */
    uint32_t slot_count, used;
};

/* Add a token, or replace the text and flags of `id` if `flags` has MICS_TOKEN_ADDED. *err tells
 * what is wrong, without the file. MICS_ERR_FORMAT: the id is in use or too large, the text is
 * empty, or MICS_TOKEN_MODEL and another id has the same text. */
enum mics_status mics_vocab_add(struct mics_vocab *vocab, uint32_t id, const void *text,
                                size_t length, uint32_t flags, struct mics_err *err);
/* The id of a token of the model by its text; MICS_NO_TOKEN: none. */
uint32_t mics_vocab_find(const struct mics_vocab *vocab, const void *text, size_t length);
void mics_vocab_fini(struct mics_vocab *vocab);

/* Bytes of a text in the alphabet of byte-level BPE (Ġ is a space): decode into bytes[length].
 * *size are the bytes; false: a character is not in the alphabet. */
bool mics_byte_level_decode(const char *text, size_t length, unsigned char *bytes, size_t *size);
/* Append bytes in that alphabet. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_byte_level_encode(const unsigned char *bytes, size_t size,
                                        struct mics_text *out);

/* ---- byte-pair encoding (model/bpe.c) ---- */

struct mics_merge {
    uint32_t left, right; /* left is MICS_NO_TOKEN: an empty slot */
    uint32_t rank;        /* lowest first, of equal ones the leftmost */
    uint32_t id;          /* what the pair becomes */
};

struct mics_bpe {
    bool whole_first; /* ignore_merges: a piece that is a token is that token */
    struct mics_merge *merges;
    uint32_t merge_slots, merge_count;
};

/* Room for `count` merges at once; may be left out. */
enum mics_status mics_bpe_reserve(struct mics_bpe *bpe, size_t count, struct mics_err *err);
/* If a pair is added twice, the later one counts, as in the tokenizers library. */
enum mics_status mics_bpe_add_merge(struct mics_bpe *bpe, uint32_t left, uint32_t right,
                                    uint32_t rank, uint32_t id, struct mics_err *err);
const struct mics_merge *mics_bpe_find_merge(const struct mics_bpe *bpe, uint32_t left,
                                             uint32_t right); /* NULL: none */

/* ---- tokens by what a text begins with (model/trie.c) ---- */

/* A tree of texts, whose nodes have their children side by side, ordered by byte. */
struct mics_trie {
    struct mics_trie_node {
        uint32_t children; /* the first of them */
        uint32_t count;    /* of children, at most 256 */
        uint32_t id;       /* of the text that ends here; MICS_NO_TOKEN: none does */
    } * nodes;
    unsigned char *bytes; /* by which a node is reached from its parent */
};

struct mics_trie_text {
    const unsigned char *bytes;
    uint32_t length, id;
};

/* Sorts texts[count], none of which is empty; of equal ones the highest id counts. MICS_ERR_NOMEM,
 * without a message. */
enum mics_status mics_trie_init(struct mics_trie *trie, struct mics_trie_text *texts, size_t count);
void mics_trie_fini(struct mics_trie *trie); /* all zeros is fine */

/* The child of a node, of which 0 is the root, by a byte; 0: there is none. */
static inline uint32_t mics_trie_next(const struct mics_trie *trie, uint32_t node,
                                      unsigned char byte)
{
    const struct mics_trie_node *at = &trie->nodes[node];
    const unsigned char *bytes = trie->bytes + at->children;
    uint32_t first = 0, count = at->count;

    while (count > 0) {
        const uint32_t half = count / 2;

        if (bytes[first + half] == byte)
            return at->children + first + half;
        if (bytes[first + half] < byte) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return 0;
}

/* ---- WordPiece (model/wordpiece.c) ---- */

/* A piece is cut from left to right into the longest tokens, of which all but the first begin with
 * a prefix; if that cannot be done, or it has too many characters, it is the unknown token. */
struct mics_wordpiece {
    uint32_t max_characters;
    char *prefix;                 /* "##" */
    struct mics_trie first, next; /* `next` without the prefix */
};

/* ---- Unigram (model/unigram.c) ---- */

/* Cuts a piece into the tokens and unknown characters whose sum of scores is highest. */
struct mics_unigram {
    double *scores; /* [ids of the model] */
    uint32_t count, capacity;
    double unknown_score;
    struct mics_trie trie;
};

/* Set the score of `id`; those in between are 0. */
enum mics_status mics_unigram_set_score(struct mics_unigram *unigram, uint32_t id, double score,
                                        struct mics_err *err);

/* ---- models (model/model.c) ---- */

enum mics_model_kind { MICS_MODEL_BPE, MICS_MODEL_WORDPIECE, MICS_MODEL_UNIGRAM };

/* What makes ids of a piece. Symbols of BPE are bytes, or characters if `characters`; those of the
 * other kinds are characters. A symbol that is no token becomes its bytes (`byte_fallback`, if all
 * of them are tokens), else `unknown` (runs become one if `fuse_unknown`), else nothing, as in the
 * tokenizers library. */
struct mics_model {
    enum mics_model_kind kind;
    bool characters, byte_fallback, fuse_unknown;
    uint32_t unknown;       /* MICS_NO_TOKEN: none */
    uint32_t byte_ids[256]; /* token of a byte, or <0xNN>; MICS_NO_TOKEN: none */
    struct mics_bpe bpe;
    struct mics_wordpiece wordpiece;
    struct mics_unigram unigram;
};

/* All byte_ids and `unknown` none. */
void mics_model_init(struct mics_model *model);
/* Set byte_ids of byte-level BPE, whose tokens are complete. */
void mics_model_find_bytes(struct mics_model *model, const struct mics_vocab *vocab);
/* Prepare to encode, with the vocabulary and special tokens complete. A text that looks like a
 * special token is never that token, whatever the model. */
enum mics_status mics_model_finish(struct mics_model *model, const struct mics_vocab *vocab,
                                   struct mics_err *err);
void mics_model_fini(struct mics_model *model);

/* Ids that grow. All zeros is empty; whoever has it calls free(ids). */
struct mics_ids {
    uint32_t *ids;
    size_t count, capacity;
};

/* Room for `count` more. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_ids_reserve(struct mics_ids *ids, size_t count);

/* Memory for one piece, reused. All zeros is empty. */
struct mics_model_memory {
    struct mics_text symbols, heap; /* heap: of BPE */
};

void mics_model_memory_fini(struct mics_model_memory *memory);

/* Append the ids of piece[length], which is UTF-8 if `characters`. They are at most `length`, for
 * which `ids` has room. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_model_encode(const struct mics_model *model, const struct mics_vocab *vocab,
                                   const unsigned char *piece, uint32_t length,
                                   struct mics_model_memory *memory, struct mics_ids *ids);

/* The same of each kind. */
enum mics_status mics_bpe_encode(const struct mics_model *model, const struct mics_vocab *vocab,
                                 const unsigned char *piece, uint32_t length,
                                 struct mics_model_memory *memory, struct mics_ids *ids);
void mics_wordpiece_encode(const struct mics_model *model, const unsigned char *piece,
                           uint32_t length, struct mics_ids *ids);
enum mics_status mics_unigram_encode(const struct mics_model *model, const struct mics_vocab *vocab,
                                     const unsigned char *piece, uint32_t length,
                                     struct mics_model_memory *memory, struct mics_ids *ids);
/* ids[length] of a character that is no token, by its bytes. Returns how many; 0: one of the bytes
 * is no token either. */
uint32_t mics_model_fall_back(const struct mics_model *model, const unsigned char *character,
                              uint32_t length, uint32_t *ids);

/* ---- pieces that were seen before (model/pieces.c) ---- */

/* A cache of the ids of pieces. One thread at a time. */
struct mics_piece_cache;

/* NULL: out of memory. */
struct mics_piece_cache *mics_piece_cache_new(const struct mics_model *model,
                                              const struct mics_vocab *vocab);
void mics_piece_cache_free(struct mics_piece_cache *cache); /* NULL is fine */
/* Append the ids of pieces that follow each other from text[0] on, with `lengths`, of a text of
 * `size` bytes; `ids` has room for as many ids as bytes, and 16. MICS_ERR_NOMEM, without a message.
 */
enum mics_status mics_piece_cache_encode(struct mics_piece_cache *cache, const unsigned char *text,
                                         size_t size, const uint32_t *lengths, uint32_t count,
                                         struct mics_ids *ids);

/* ---- pieces of a text (split.c, regex.c) ---- */

struct mics_piece {
    size_t offset, length; /* in the text that mics_pieces has */
};

/* Reused from call to call. `text` is what pieces point into: the text that was given, or
 * own.bytes if it was changed. */
struct mics_pieces {
    const unsigned char *text;
    struct mics_text own, spare; /* for whom rewrites the text, step by step */
    struct mics_piece *pieces;
    size_t count, capacity;
    struct mics_regex_memory *regex; /* PCRE2's, made when it is needed */
};

/* MICS_ERR_NOMEM, without a message. */
enum mics_status mics_pieces_add(struct mics_pieces *pieces, size_t offset, size_t length);
void mics_pieces_fini(struct mics_pieces *pieces);

/* A regular expression of PCRE2, with Unicode properties. */
struct mics_regex;
/* MICS_ERR_FORMAT: it does not compile; *err has the reason and the position. */
enum mics_status mics_regex_new(const char *pattern, size_t length, struct mics_regex **out,
                                struct mics_err *err);
void mics_regex_free(struct mics_regex *regex); /* NULL is fine */
/* Can it match the empty text? */
bool mics_regex_may_be_empty(const struct mics_regex *regex);
/* Matches in text[size], which is UTF-8, from left to right. An empty one where the last one ended
 * is passed over, as in the tokenizers library. */
struct mics_matches {
    const struct mics_regex *regex;
    struct mics_regex_memory **memory;
    const unsigned char *text;
    size_t size, from;
    bool found;        /* is there one? */
    size_t begin, end; /* where it is */
};
struct mics_matches mics_matches_begin(const struct mics_regex *regex,
                                       struct mics_regex_memory **memory, const unsigned char *text,
                                       size_t size);
/* MICS_ERR_FORMAT: a match limit was exceeded. */
enum mics_status mics_matches_next(struct mics_matches *matches, struct mics_err *err);
void mics_regex_memory_free(struct mics_regex_memory *memory); /* NULL is fine */

/* What happens to the matches of a pattern and the text between them, as in the tokenizers library.
 * ISOLATED is what all known byte-level families use. */
enum mics_split_behavior {
    MICS_SPLIT_ISOLATED,
    MICS_SPLIT_REMOVED,
    MICS_SPLIT_MERGED_WITH_PREVIOUS,
    MICS_SPLIT_MERGED_WITH_NEXT,
    MICS_SPLIT_CONTIGUOUS
};

enum mics_split_kind {
    MICS_SPLIT_WHOLE, /* the text is one piece */
    MICS_SPLIT_GPT2,
    MICS_SPLIT_LLAMA3,
    MICS_SPLIT_QWEN2,
    MICS_SPLIT_REGEX
};

/* Cuts text at every match of a pattern, matches isolated. All zeros is MICS_SPLIT_WHOLE. */
struct mics_splitter {
    enum mics_split_kind kind;
    unsigned char *classes; /* of the known kinds: classes of characters, see split.c */
    struct mics_regex *regex;
};

#define MICS_GPT2_PATTERN                                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define MICS_QWEN2_PATTERN                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                          \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The splitter of a pattern: one written by hand if the pattern is known, else PCRE2's. */
enum mics_status mics_splitter_init(struct mics_splitter *splitter, const char *pattern,
                                    size_t length, struct mics_err *err);
void mics_splitter_fini(struct mics_splitter *splitter);
/* Lengths of the first `most` pieces of text[size], size >= 1, or of all if they are fewer; of
 * known kinds and WHOLE only. Returns how many. */
uint32_t mics_split_next(const struct mics_splitter *splitter, const unsigned char *text,
                         uint32_t size, uint32_t *lengths, uint32_t most);
/* Append the pieces of pieces->text[offset, offset + length) for any kind and behavior; `invert`
 * exchanges matches and the text between them. */
enum mics_status mics_split(const struct mics_splitter *splitter, enum mics_split_behavior behavior,
                            bool invert, size_t offset, size_t length, struct mics_pieces *pieces,
                            struct mics_err *err);

/* With the known kinds of expressions: does a piece end between these two characters in every text,
 * so that what follows depends on nothing before? True where letters, or numbers, end. */
bool mics_split_always(const unsigned char *classes, uint32_t before, uint32_t after);

/* White space, \s of the tokenizers library. */
bool mics_is_space(uint32_t character);

/* The character at `text`, which is UTF-8, and the bytes that it has. */
static inline unsigned mics_utf8_next(const unsigned char *text, uint32_t *character)
{
    const uint32_t c = text[0];

    if (c < 0x80) {
        *character = c;
        return 1;
    }
    if (c < 0xe0) {
        *character = (c & 0x1f) << 6 | (text[1] & 0x3f);
        return 2;
    }
    if (c < 0xf0) {
        *character = (c & 0x0f) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3f);
        return 3;
    }
    *character =
        (c & 0x07) << 18 | (text[1] & 0x3fu) << 12 | (text[2] & 0x3fu) << 6 | (text[3] & 0x3f);
    return 4;
}

/* ---- added tokens (added.c) ---- */

struct mics_added_token {
    char *text; /* what is looked for: normalized if `normalized`; belongs to the token */
    uint32_t length, id;
    bool special;    /* ordinary text unless MICS_TOKENIZER_SPECIAL */
    bool normalized; /* looked for in normalized text */
    uint32_t order;  /* set by mics_added_add() */
    bool single_word, strip_left, strip_right;
};

/* Tokens that begin with the same byte, longest first; the first `prefix` bytes are equal. */
struct mics_added_range {
    uint32_t begin, end, prefix;
};

struct mics_added {
    struct mics_added_token *tokens; /* sorted by mics_added_finish() */
    uint32_t count, capacity;
    struct mics_added_range first[2][256]; /* [normalized][first byte] */
    int lead[2];                           /* the only first byte; -1: no tokens, 256: several */
    uint32_t longest;                      /* bytes of a token */
    bool spaces;                           /* a token has a space, or swallows white space */
    bool lines;                            /* a token has a newline */
};

struct mics_added_match {
    size_t begin, end; /* with the white space that it swallows */
    uint32_t id;
};

/* Copies the text. If an id is added twice, the later one counts. MICS_ERR_FORMAT: no text. The
 * text that a token decodes to is mics_vocab_add()'s, with MICS_TOKEN_ADDED. */
enum mics_status mics_added_add(struct mics_added *added, const struct mics_added_token *token,
                                struct mics_err *err);
/* Add a token to `added` and to the vocabulary, by the text that files have for it; `normalized`
 * ones are looked for as the normalizer makes them. */
enum mics_status mics_tokenizer_add_token(struct mics_tokenizer *tokenizer,
                                          const struct mics_added_token *token,
                                          struct mics_err *err);
/* After the last one, before mics_added_next(). */
void mics_added_finish(struct mics_added *added);
/* The first token in text[from, size), among those that are looked for in normalized text or those
 * that are not. Special ones are passed over and added to *ordinary, unless `special`. */
bool mics_added_next(const struct mics_added *added, bool normalized, bool special,
                     const unsigned char *text, size_t size, size_t from,
                     struct mics_added_match *match, uint64_t *ordinary);
/* Is a token in text[size] around text[at], or does it end or begin there? */
bool mics_added_near(const struct mics_added *added, const unsigned char *text, size_t size,
                     size_t at);
void mics_added_fini(struct mics_added *added);

/* ---- decoders of tokenizer.json (decoding.c) ---- */

/* From texts of tokens, which are not bytes, to a text. */
struct mics_decoding;
void mics_decoding_free(struct mics_decoding *decoding); /* NULL is fine */

/* A text that is being decoded. One thread at a time. NULL: out of memory. */
struct mics_decoding_run;
struct mics_decoding_run *mics_decoding_run_new(const struct mics_decoding *decoding);
void mics_decoding_run_free(struct mics_decoding_run *run); /* NULL is fine */
/* Append to `out` what is certain when the next token is text[size]. */
enum mics_status mics_decoding_run_token(struct mics_decoding_run *run, const unsigned char *text,
                                         size_t size, struct mics_text *out, struct mics_err *err);
/* The rest, and begin again. */
enum mics_status mics_decoding_run_end(struct mics_decoding_run *run, struct mics_text *out,
                                       struct mics_err *err);

/* ---- the tokenizer ---- */

/* Where a text is. One that continues another has no prefix of its own. */
enum mics_text_place {
    MICS_TEXT_BEGINS,   /* at the beginning of the input */
    MICS_TEXT_FOLLOWS,  /* behind an added token */
    MICS_TEXT_CONTINUES /* behind text that it was cut from, see mics_tokenizer_cut() */
};

/* Changes text before it is cut. `apply` NULL: it does not. */
struct mics_normalizer {
    void *state;
    void (*free_state)(void *state);
    /* Append to `out` what text[size], UTF-8, becomes. */
    enum mics_status (*apply)(const void *state, const unsigned char *text, size_t size,
                              enum mics_text_place place, struct mics_text *out,
                              struct mics_err *err);
    bool local;           /* it changes characters where they are: normal forms, lower case */
    bool local_at_spaces; /* so it is between printable ASCII and a space, which stays a space, or
                           * becomes U+2581 */
    bool composes;        /* it does nothing but NFC */
    bool metaspace;       /* it does nothing but put U+2581 before texts or for spaces */
    bool spaces;          /* it puts U+2581 for spaces, or for runs of them */
    bool byte_level;      /* its last step makes characters of byte-level BPE of bytes */
};

/* Cuts text in ways that a splitter cannot. `apply` NULL: the splitter alone does it. */
struct mics_pretokenizer {
    void *state;
    void (*free_state)(void *state);
    /* pieces->text is the text, of `size` bytes of UTF-8, and there are no pieces yet; it may be
     * replaced by own.bytes. */
    enum mics_status (*apply)(const void *state, size_t size, enum mics_text_place place,
                              struct mics_pieces *pieces, struct mics_err *err);
};

/* Where mics_tokenizer_cut() may cut; readers set one of them, or none. They belong to the splitter
 * or the pre-tokenizer. */
struct mics_cut {
    const unsigned char *classes;       /* where mics_split_always() */
    const struct mics_word_cuts *words; /* where symbols do not merge */
    bool marks;  /* pieces begin where the pre-tokenizer puts a mark for a space */
    bool spaces; /* before a space that follows printable ASCII; with `words`: if it becomes U+2581,
                  * since another space may merge, or be unknown together, with what is before it */
};

#define MICS_TEMPLATE_MAX 16

/* What a file without a post-processor puts around a text: the tokens that `keys` of the companions
 * name, else `ids`, where `wanted`. */
struct mics_around {
    bool is_set;
    const char *keys[2]; /* before and after: "bos_token", "eos_token" */
    uint32_t ids[2];     /* MICS_NO_TOKEN: none */
    bool wanted[2];      /* by default */
    bool fixed;          /* add_bos_token and add_eos_token do not change it */
};

struct mics_tokenizer {
    bool is_bytes; /* the tokenizer of bytes: nothing below but `end` is used */
    struct mics_vocab vocab;
    struct mics_model model;
    struct mics_added added;
    struct mics_normalizer normalizer;
    struct mics_splitter splitter;
    struct mics_pretokenizer pretokenizer;
    /* What the post-processor puts around a text. */
    uint32_t before[MICS_TEMPLATE_MAX], after[MICS_TEMPLATE_MAX];
    uint32_t before_count, after_count;
    /* Decoding: ▁ becomes a space, and the space at the beginning of a text goes; or what the
     * decoder of tokenizer.json does. */
    bool metaspace, strip_first_space;
    struct mics_decoding *decoding;
    struct mics_cut cut;
    bool sparse_ids; /* added tokens may have any free id, not just the next */
    struct mics_around around;
    /* Ids at the end of tokens that the main file does not have and no file gives an id: a
     * pad_token, say. The model need not have rows for them. */
    uint32_t named_count;
    uint32_t end;                                /* readers set it if their file tells */
    struct mics_err end_problem;                 /* why `end` is MICS_NO_TOKEN; "": nothing tells */
    uint64_t main_sum;                           /* of the files that the reader reads */
    uint64_t settings_sum;                       /* see mics_tokenizer_note(); 0: none */
    uint32_t customary_end;                      /* by the main file alone */
    const struct mics_companions *companions;    /* while it is opened */
    const struct mics_tokenizer_file *main_file; /* what the reader reads; NULL for bytes */
    char *path;                                  /* for messages; NULL: from memory */
    struct mics_tokenizer_file *files;
    size_t file_count;
    uint64_t fingerprint;
};

/* Let the fingerprint cover a setting of a companion that changes ids. */
void mics_tokenizer_note(struct mics_tokenizer *tokenizer, const void *bytes, size_t size);
/* Set the fingerprint. */
void mics_tokenizer_sum_up(struct mics_tokenizer *tokenizer);
/* The end that the main file has, also by a customary name of an ordinary token. */
uint32_t mics_tokenizer_customary_end(const struct mics_tokenizer *tokenizer);

/* The file of that name; NULL: there is none. */
const struct mics_tokenizer_file *mics_tokenizer_file(const struct mics_tokenizer *tokenizer,
                                                      const char *name);

/* A reader fills a tokenizer that is initialized (mics_model_init(), no tokens) from `file`, and
 * others of its files. Errors begin with the file's name. On failure the caller frees what is
 * there. The table of readers is in ../tokenizer.c. */
enum mics_status mics_tokenizer_read_json(struct mics_tokenizer *tokenizer,
                                          const struct mics_tokenizer_file *file,
                                          struct mics_err *err);
enum mics_status mics_tokenizer_read_sentencepiece(struct mics_tokenizer *tokenizer,
                                                   const struct mics_tokenizer_file *file,
                                                   struct mics_err *err);
enum mics_status mics_tokenizer_read_vocab_merges(struct mics_tokenizer *tokenizer,
                                                  const struct mics_tokenizer_file *file,
                                                  struct mics_err *err);
enum mics_status mics_tokenizer_read_vocab_text(struct mics_tokenizer *tokenizer,
                                                const struct mics_tokenizer_file *file,
                                                struct mics_err *err);
enum mics_status mics_tokenizer_read_tekken(struct mics_tokenizer *tokenizer,
                                            const struct mics_tokenizer_file *file,
                                            struct mics_err *err);
/* Does the file begin with a line of tiktoken's form? */
bool mics_tokenizer_is_tiktoken(const struct mics_tokenizer_file *file);
enum mics_status mics_tokenizer_read_tiktoken(struct mics_tokenizer *tokenizer,
                                              const struct mics_tokenizer_file *file,
                                              struct mics_err *err);

/* What tekken.json has in common with tiktoken's files (tiktoken.c). */

/* Decode into bytes[3 * length / 4]. false: it is not base64. */
bool mics_base64_decode(const char *text, size_t length, unsigned char *bytes, size_t *size);
/* The caller frees the result. NULL: out of memory. */
char *mics_base64_encode(const unsigned char *bytes, size_t size);
/* All pairs of tokens whose bytes together are a token may become it, the lowest id first. */
enum mics_status mics_tokenizer_add_rank_merges(struct mics_tokenizer *tokenizer,
                                                struct mics_err *err);
enum mics_status mics_tokenizer_add_special(struct mics_tokenizer *tokenizer, const char *text,
                                            uint32_t id, struct mics_err *err);

#endif
