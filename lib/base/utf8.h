/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - UTF-8 as of RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef MICS_BASE_UTF8_H
#define MICS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at `text`, of which `size` >= 1 bytes are readable; 0: not UTF-8, or
 * incomplete. */
size_t mics_utf8_length(const char *text, size_t size);

/* Are all `size` bytes UTF-8? If not, *bad, unless NULL, is the offset of the first invalid
 * sequence. */
bool mics_utf8_check(const char *text, size_t size, size_t *bad);

/* Replace by '?' what must not reach a terminal: control characters except newline and tab, and
 * bytes that are not UTF-8. */
void mics_utf8_make_printable(char *text, size_t size);

/* Are there control characters in a string: below 0x20, 0x7f, or U+0080 to U+009f? A terminal would
 * obey them. */
bool mics_utf8_has_control(const char *text);

#endif
