/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* RFC 3629, section 4: a first byte in lead_min..lead_max is followed by `more` bytes, the first of
 * them in second_min..second_max and the others in 0x80..0xbf. */
static const struct form {
    uint8_t lead_min, lead_max, more, second_min, second_max;
} forms[] = {
    {0x00, 0x7f, 0, 0x00, 0x00}, {0xc2, 0xdf, 1, 0x80, 0xbf}, {0xe0, 0xe0, 2, 0xa0, 0xbf},
    {0xe1, 0xec, 2, 0x80, 0xbf}, {0xed, 0xed, 2, 0x80, 0x9f}, {0xee, 0xef, 2, 0x80, 0xbf},
    {0xf0, 0xf0, 3, 0x90, 0xbf}, {0xf1, 0xf3, 3, 0x80, 0xbf}, {0xf4, 0xf4, 3, 0x80, 0x8f},
};

size_t mics_utf8_length(const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];

        if (bytes[0] < form->lead_min || bytes[0] > form->lead_max)
            continue;
        if (form->more == 0)
            return 1;
        if (size <= form->more || bytes[1] < form->second_min || bytes[1] > form->second_max)
            return 0;
        for (size_t k = 2; k <= form->more; k++)
            if ((bytes[k] & 0xc0) != 0x80)
                return 0;
        return form->more + 1u;
    }
    return 0;
}

bool mics_utf8_check(const char *text, size_t size, size_t *bad)
{
    for (size_t offset = 0; offset < size;) {
        const size_t length = mics_utf8_length(text + offset, size - offset);

        if (length == 0) {
            if (bad)
                *bad = offset;
            return false;
        }
        offset += length;
    }
    return true;
}

/* Ranges of characters that a terminal obeys, or that change the order of what it shows: control
 * characters of 7 and 8 bits, marks and embeddings of writing direction, separators of lines. */
static const struct range {
    uint32_t first, last;
} hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
    {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
};

/* A character of `length` bytes. */
static uint32_t code_point(const char *text, size_t length)
{
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);

    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3f);
    return code;
}

static bool is_hidden(uint32_t code)
{
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (code >= hidden[i].first && code <= hidden[i].last)
            return true;
    return false;
}

size_t mics_utf8_printable(const char *text, size_t size)
{
    const size_t length = mics_utf8_length(text, size);

    return length > 0 && !is_hidden(code_point(text, length)) ? length : 0;
}

void mics_utf8_make_printable(char *text, size_t size)
{
    while (size > 0) {
        const size_t printable = mics_utf8_printable(text, size);
        const size_t used = printable ? printable : 1;

        if (!printable && *text != '\n' && *text != '\t')
            *text = '?';
        text += used;
        size -= used;
    }
}

void mics_utf8_make_line(char *text)
{
    mics_utf8_make_printable(text, strlen(text));
    for (; *text; text++)
        if (*text == '\n' || *text == '\t')
            *text = '?';
}

void mics_utf8_put(FILE *out, const char *text, size_t size)
{
    for (size_t i = 0, used; i < size; i += used) {
        const size_t printable = mics_utf8_printable(text + i, size - i);

        used = printable ? printable : 1;
        fwrite(printable ? text + i : "?", 1, used, out);
    }
}

bool mics_utf8_has_control(const char *text)
{
    for (size_t size = strlen(text); size > 0;) {
        const size_t length = mics_utf8_length(text, size);
        const size_t used = length ? length : 1;

        if (length > 0 && is_hidden(code_point(text, length)))
            return true;
        text += used;
        size -= used;
    }
    return false;
}
