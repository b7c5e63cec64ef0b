/* SPDX-License-Identifier: Apache-2.0 */
/* bert.c - classes of characters, and words, as BERT has them. */
#include "data/tokenizer/tokenizer_json.h"

#include <string.h>

char mics_char_range_class(const struct mics_char_range *ranges, size_t count, uint32_t character)
{
    size_t low = 0, high = count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (character > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && character >= ranges[low].first ? ranges[low].class : ' ';
}

enum mics_bert_class mics_bert_class(uint32_t character)
{
    static const struct mics_char_range ranges[] = {
#include "data/tokenizer/bert.inc"
    };

    if (character < 0x80) {
        if (character < 0x20 || character == 0x7f)
            return character == '\t' || character == '\n' || character == '\r' ? MICS_BERT_OTHER
                                                                               : MICS_BERT_CONTROL;
        return strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)character) ? MICS_BERT_PUNCTUATION
                                                                            : MICS_BERT_OTHER;
    }
    switch (mics_char_range_class(ranges, sizeof ranges / sizeof *ranges, character)) {
    case 'C':
        return MICS_BERT_CONTROL;
    case 'M':
        return MICS_BERT_MARK;
    case ' ':
        return MICS_BERT_OTHER;
    default:
        return MICS_BERT_PUNCTUATION;
    }
}

bool mics_bert_is_ideograph(uint32_t character)
{
    /* The fifth range begins where it does in the original, 0x100 too high. */
    return (character >= 0x4e00 && character <= 0x9fff) ||
           (character >= 0x3400 && character <= 0x4dbf) ||
           (character >= 0x20000 && character <= 0x2a6df) ||
           (character >= 0x2a700 && character <= 0x2b81f) ||
           (character >= 0x2b920 && character <= 0x2ceaf) ||
           (character >= 0xf900 && character <= 0xfaff) ||
           (character >= 0x2f800 && character <= 0x2fa1f);
}

enum mics_status mics_bert_split(const struct mics_piece *piece, struct mics_pieces *pieces)
{
    const unsigned char *text = pieces->text;
    const size_t end = piece->offset + piece->length;
    size_t begin = piece->offset;

    for (size_t at = begin, length; at < end; at += length) {
        uint32_t character;
        bool space, punctuation;

        length = mics_utf8_next(text + at, &character);
        space = character == ' ' || mics_is_space(character);
        punctuation = !space && mics_bert_class(character) == MICS_BERT_PUNCTUATION;
        if (!space && !punctuation)
            continue;
        if ((at > begin && mics_pieces_add(pieces, begin, at - begin) != MICS_OK) ||
            (punctuation && mics_pieces_add(pieces, at, length) != MICS_OK))
            return MICS_ERR_NOMEM;
        begin = at + length;
    }
    return end > begin ? mics_pieces_add(pieces, begin, end - begin) : MICS_OK;
}
