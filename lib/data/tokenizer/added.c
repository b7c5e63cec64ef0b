/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum mics_status mics_added_add(struct mics_added *added, const struct mics_added_token *token,
                                struct mics_err *err)
{
    struct mics_added_token copy = *token;

    if (token->length == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "added token %lu: the text is empty",
                            (unsigned long)token->id);
    if (added->count == added->capacity) {
        const uint32_t capacity = added->capacity == 0 ? 64 : 2 * added->capacity;
        struct mics_added_token *grown = realloc(added->tokens, capacity * sizeof *grown);

        if (grown == NULL)
            return mics_err_nomem(err);
        added->tokens = grown;
        added->capacity = capacity;
    }
    copy.text = malloc(token->length);
    if (copy.text == NULL)
        return mics_err_nomem(err);
    memcpy(copy.text, token->text, token->length);
    copy.order = added->count;
    added->tokens[added->count++] = copy;
    return MICS_OK;
}

/* The text that is looked for: of `normalized` tokens what the normalizer makes of it. */
static enum mics_status add_pattern(struct mics_tokenizer *tokenizer,
                                    const struct mics_added_token *token, struct mics_err *err)
{
    const struct mics_normalizer *normalizer = &tokenizer->normalizer;
    struct mics_added_token copy = *token;
    struct mics_text text = {.size = 0};
    enum mics_status status = MICS_OK;

    if (token->normalized && normalizer->apply) {
        status = normalizer->apply(normalizer->state, (const unsigned char *)token->text,
                                   token->length, MICS_TEXT_BEGINS, &text, err);
        copy.text = (char *)text.bytes;
        copy.length = (uint32_t)text.size;
    }
    if (status == MICS_OK)
        status = mics_added_add(&tokenizer->added, &copy, err);
    free(text.bytes);
    return status;
}

enum mics_status mics_tokenizer_add_token(struct mics_tokenizer *tokenizer,
                                          const struct mics_added_token *token,
                                          struct mics_err *err)
{
    const uint32_t flags = MICS_TOKEN_ADDED | (token->special ? MICS_TOKEN_SPECIAL : 0);
    unsigned char *bytes = malloc(token->length + 1);
    const void *text = token->text;
    size_t size = token->length;
    enum mics_status status;

    if (bytes == NULL)
        return mics_err_nomem(err);
    /* The vocabulary of a byte-level model keeps the bytes that a token stands for. */
    if (!tokenizer->model.characters &&
        mics_byte_level_decode(token->text, token->length, bytes, &size))
        text = bytes;
    else
        size = token->length;
    status = mics_vocab_add(&tokenizer->vocab, token->id, text, size, flags, err);
    free(bytes);
    return status == MICS_OK ? add_pattern(tokenizer, token, err) : status;
}

/* By `normalized`, then by the first byte, then longest first. */
static int compare_tokens(const void *a, const void *b)
{
    const struct mics_added_token *x = a, *y = b;

    if (x->normalized != y->normalized)
        return x->normalized ? 1 : -1;
    if (x->text[0] != y->text[0])
        return (unsigned char)x->text[0] < (unsigned char)y->text[0] ? -1 : 1;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Count in how many bytes both begin alike. */
static uint32_t common_prefix(const struct mics_added_token *a, const struct mics_added_token *b,
                              uint32_t most)
{
    uint32_t length = 0;

    while (length < most && length < a->length && length < b->length &&
           a->text[length] == b->text[length])
        length++;
    return length;
}

static int compare_ids(const void *a, const void *b)
{
    const struct mics_added_token *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Keep the last token of each id. */
static void drop_replaced(struct mics_added *added)
{
    uint32_t count = 0;

    qsort(added->tokens, added->count, sizeof *added->tokens, compare_ids);
    for (uint32_t i = 0; i < added->count; i++) {
        if (i + 1 < added->count && added->tokens[i + 1].id == added->tokens[i].id) {
            free(added->tokens[i].text);
            continue;
        }
        added->tokens[count] = added->tokens[i];
        added->tokens[count].order = count;
        count++;
    }
    added->count = count;
}

void mics_added_finish(struct mics_added *added)
{
    if (added->count > 0)
        drop_replaced(added);
    memset(added->first, 0, sizeof added->first);
    added->lead[0] = added->lead[1] = -1;
    added->spaces = added->lines = false;
    added->longest = 0;
    if (added->count > 0)
        qsort(added->tokens, added->count, sizeof *added->tokens, compare_tokens);
    for (uint32_t i = 0; i < added->count; i++) {
        const struct mics_added_token *token = &added->tokens[i];
        const int lead = (unsigned char)token->text[0];
        struct mics_added_range *range = &added->first[token->normalized][lead];
        int *leads = &added->lead[token->normalized];

        if (range->end == 0) {
            range->begin = i;
            range->prefix = token->length;
        }
        range->end = i + 1;
        range->prefix = common_prefix(&added->tokens[range->begin], token, range->prefix);
        *leads = *leads == -1 || *leads == lead ? lead : 256;
        if (token->strip_left || token->strip_right || memchr(token->text, ' ', token->length))
            added->spaces = true;
        added->lines = added->lines || memchr(token->text, '\n', token->length) != NULL;
        if (token->length > added->longest)
            added->longest = token->length;
    }
}

void mics_added_fini(struct mics_added *added)
{
    for (uint32_t i = 0; i < added->count; i++)
        free(added->tokens[i].text);
    free(added->tokens);
    *added = (struct mics_added){0};
}

/* The longest token that text[size] begins with; NULL: none. */
static const struct mics_added_token *match_at(const struct mics_added *added, bool normalized,
                                               const unsigned char *text, size_t size)
{
    const struct mics_added_range *range = &added->first[normalized][text[0]];

    if (range->end == 0 || size < range->prefix ||
        memcmp(added->tokens[range->begin].text, text, range->prefix) != 0)
        return NULL;
    for (uint32_t i = range->begin; i < range->end; i++)
        if (added->tokens[i].length <= size &&
            memcmp(added->tokens[i].text, text, added->tokens[i].length) == 0)
            return &added->tokens[i];
    return NULL;
}

/* Where a token can begin, at or after text[at]; `size`: nowhere. */
static size_t next_lead(const struct mics_added *added, bool normalized, const unsigned char *text,
                        size_t size, size_t at)
{
    const int lead = added->lead[normalized];

    if (lead < 256) {
        const unsigned char *found = at < size ? memchr(text + at, lead, size - at) : NULL;

        return found == NULL ? size : (size_t)(found - text);
    }
    while (at < size && added->first[normalized][text[at]].end == 0)
        at++;
    return at;
}

/* Where the character before text[at] begins, not before `from`, which is before `at`. */
static size_t previous(const unsigned char *text, size_t from, size_t at, uint32_t *character)
{
    do
        at--;
    while (at > from && (text[at] & 0xc0) == 0x80);
    (void)mics_utf8_next(text + at, character);
    return at;
}

/* Is it of a word, \w of the tokenizers library: alphabetic, a mark, a digit, or joining? */
static bool is_word(uint32_t character)
{
    static const uint32_t letters[][2] = {/* alphabetic, though So */
                                          {0x24b6, 0x24e9},
                                          {0x1f130, 0x1f149},
                                          {0x1f150, 0x1f169},
                                          {0x1f170, 0x1f189}};

    switch (utf8proc_category((utf8proc_int32_t)character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        if (character >= letters[i][0] && character <= letters[i][1])
            return true;
    return character == 0x200c || character == 0x200d;
}

/* Is text[begin, end) beside a character of a word? */
static bool in_word(const unsigned char *text, size_t size, size_t begin, size_t end)
{
    uint32_t character;

    if (begin > 0) {
        (void)previous(text, 0, begin, &character);
        if (is_word(character))
            return true;
    }
    if (end == size)
        return false;
    (void)mics_utf8_next(text + end, &character);
    return is_word(character);
}

/* The white space that ends at text[at], not further than `from`, and that begins there. */
static size_t strip_left(const unsigned char *text, size_t from, size_t at)
{
    while (at > from) {
        uint32_t character;
        const size_t before = previous(text, from, at, &character);

        if (!mics_is_space(character))
            break;
        at = before;
    }
    return at;
}

static size_t strip_right(const unsigned char *text, size_t size, size_t at)
{
    uint32_t character;

    while (at < size) {
        const unsigned length = mics_utf8_next(text + at, &character);

        if (!mics_is_space(character))
            break;
        at += length;
    }
    return at;
}

bool mics_added_next(const struct mics_added *added, bool normalized, bool special,
                     const unsigned char *text, size_t size, size_t from,
                     struct mics_added_match *match, uint64_t *ordinary)
{
    size_t at = from;

    if (added->lead[normalized] < 0)
        return false;
    while ((at = next_lead(added, normalized, text, size, at)) < size) {
        const struct mics_added_token *token = match_at(added, normalized, text + at, size - at);

        if (token == NULL) {
            at++;
        } else if (token->special && !special) {
            *ordinary += 1;
            at += token->length;
        } else if (token->single_word && in_word(text, size, at, at + token->length)) {
            at += token->length;
        } else {
            match->begin = token->strip_left ? strip_left(text, from, at) : at;
            match->end = at + token->length;
            if (token->strip_right)
                match->end = strip_right(text, size, match->end);
            match->id = token->id;
            return true;
        }
    }
    return false;
}

bool mics_added_near(const struct mics_added *added, const unsigned char *text, size_t size,
                     size_t at)
{
    if (added->count == 0)
        return false;
    for (size_t i = at > added->longest ? at - added->longest : 0; i <= at && i < size; i++)
        for (int normalized = 0; normalized < 2; normalized++) {
            const struct mics_added_token *token =
                match_at(added, normalized != 0, text + i, size - i);

            if (token != NULL && i + token->length >= at)
                return true;
        }
    return false;
}
