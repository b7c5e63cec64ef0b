/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - documents from and to files and pipes. */
#include "base/file.h"
#include "doc/doc.h"

#include <stdlib.h>
#include <string.h>

enum mics_status mics_doc_read(FILE *in, json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_slurp(in, MICS_DOC_MAX_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    status = mics_doc_decode(data, size, out, err);
    free(data);
    return status;
}

enum mics_status mics_doc_read_file(const char *path, json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read(path, MICS_DOC_MAX_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    status = mics_doc_decode(data, size, out, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    free(data);
    return status;
}

enum mics_status mics_doc_write(FILE *out, const json_t *doc, enum mics_doc_format format,
                                struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_doc_encode(doc, format, &data, &size, err);

    if (status != MICS_OK)
        return status;
    if (fwrite(data, 1, size, out) != size || fflush(out) != 0)
        status = mics_err_set_errno(err, "cannot write");
    free(data);
    return status;
}
