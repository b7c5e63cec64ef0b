/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document.h - a file of text or JSON lines in memory: mapped, or decompressed.
 *
 * Decompressed text is in a file without a name, in the folder TMPDIR, else /var/tmp, else /tmp,
 * and is mapped from there; so it takes no more memory than other text. It goes when it is closed,
 * and when the process ends, however that ends. It never takes the last 5 % of a file system, or
 * the last 2 GiB of a large one.
 */
#ifndef MICS_DATA_DOCUMENT_H
#define MICS_DATA_DOCUMENT_H

#include "data/format.h"

struct mics_document {
    char *path;
    const unsigned char *bytes; /* mapped, read only; NULL: empty, or not open */
    uint64_t size;              /* of the text once it is open, before of the file */
    uint64_t stored;            /* bytes of the file */
    uint64_t device, inode;
    uint32_t id_bytes;         /* of tokens without a header, where the pattern says it, else 0 */
    struct mics_format format; /* once it was recognised */
};

/* Set document->format by the file's first bytes and its name. With `binary` by its name only, and
 * nothing is compressed. MICS_ERR_FORMAT, with the path: see mics_format_recognize(). */
enum mics_status mics_document_recognize(struct mics_document *document, bool binary,
                                         struct mics_err *err);

/* Map the text of a recognised document, or decompress it. Unless `binary`, text must be text and
 * JSON lines lines, by mics_format_check_lines() and mics_text_judge(), for which text of more than
 * 4 MiB is looked at in 64 places. MICS_ERR_FORMAT, with the path: it is not, or it is damaged.
 * MICS_ERR_IO: it cannot be read, or there is no space for it. */
enum mics_status mics_document_open(struct mics_document *document, bool binary,
                                    struct mics_err *err);
void mics_document_close(struct mics_document *document); /* the path stays */

#endif
