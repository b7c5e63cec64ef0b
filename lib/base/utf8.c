/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdint.h>

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

void mics_utf8_make_printable(char *text, size_t size)
{
    while (size > 0) {
        const unsigned char *byte = (const unsigned char *)text;
        const size_t length = mics_utf8_length(text, size);
        const bool c0 =
            length == 1 && ((*byte < 0x20 && *byte != '\n' && *byte != '\t') || *byte == 0x7f);
        const bool c1 = length == 2 && byte[0] == 0xc2 && byte[1] < 0xa0;
        const size_t used = length && !c1 ? length : 1;

        if (length == 0 || c0 || c1)
            *text = '?';
        text += used;
        size -= used;
    }
}

bool mics_utf8_has_control(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0))
            return true;
    return false;
}
