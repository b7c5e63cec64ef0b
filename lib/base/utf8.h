/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - UTF-8 as of RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef MICS_BASE_UTF8_H
#define MICS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Bytes of the character at `text`, of which `size` >= 1 bytes are readable; 0: not UTF-8, or
 * incomplete. */
size_t mics_utf8_length(const char *text, size_t size);

/* Are all `size` bytes UTF-8? If not, *bad, unless NULL, is the offset of the first invalid
 * sequence. */
bool mics_utf8_check(const char *text, size_t size, size_t *bad);

/* Bytes of the character at `text`, of which `size` >= 1 bytes are readable, if a person may see
 * it; 0: it must not reach a terminal. These are control characters of 7 and 8 bits, marks that
 * change the direction of writing (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069),
 * separators of lines and paragraphs, and bytes that are not UTF-8. */
size_t mics_utf8_printable(const char *text, size_t size);

/* Replace by '?' each byte of what must not reach a terminal, except newlines and tabs. */
void mics_utf8_make_printable(char *text, size_t size);

/* The same for a string that has to stay one line: newlines and tabs, too. */
void mics_utf8_make_line(char *text);

/* Write a line, or a part of one, with '?' for each byte of what must not reach a terminal. */
void mics_utf8_put(FILE *out, const char *text, size_t size);

/* Are there characters in a string, beside bytes that are not UTF-8, that must not reach a
 * terminal? */
bool mics_utf8_has_control(const char *text);

#endif
