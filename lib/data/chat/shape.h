/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h - what tells one chat template from another, however it is written. For lib/data/chat
 * only.
 *
 * A template is a program in Jinja, of which nothing is executed here. It is read as tokens, with
 * white space trimmed as transformers sets Jinja up (trim_blocks, lstrip_blocks), without comments;
 * both quotes are one, and message['role'] is message.role. Prose, which is a text of at least
 * MICS_SHAPE_PROSE_BYTES bytes with MICS_SHAPE_PROSE_SPACES blanks, is left out of the shape and
 * listed: so models that differ in what their default system message says have one shape.
 */
#ifndef MICS_DATA_CHAT_SHAPE_H
#define MICS_DATA_CHAT_SHAPE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_SHAPE_PROSE_BYTES  16
#define MICS_SHAPE_PROSE_SPACES 2

struct mics_prose {
    char *bytes;
    size_t size;
};

struct mics_shape {
    uint64_t digest;          /* XXH64 of the tokens */
    struct mics_prose *prose; /* [prose_count] in the order of the template */
    size_t prose_count;
};

/* MICS_ERR_FORMAT: a tag or a text in one has no end, or an escape that is not read here. */
enum mics_status mics_shape_read(const char *text, size_t size, struct mics_shape *out,
                                 struct mics_err *err);
void mics_shape_free(struct mics_shape *shape); /* all zeros is fine */

#endif
