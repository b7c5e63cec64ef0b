/* SPDX-License-Identifier: Apache-2.0 */
/* document.c - a document to where the user wants it, as the user wants it. */
#include "base/file.h"
#include "cli/message.h"
#include "doc/doc.h"

#include <string.h>
#include <unistd.h>

static enum mics_status print_to(FILE *out, bool is_terminal, const struct cli_common *common,
                                 const json_t *doc, cli_printer *print, struct mics_err *err)
{
    if (print && !common->json && (common->tsv || is_terminal))
        return print(out, doc, common->tsv, err);
    return mics_doc_write(
        out, doc, common->json || is_terminal || common->tsv ? MICS_DOC_JSON : MICS_DOC_MSGPACK,
        err);
}

static enum mics_status write_file(const struct cli_common *common, const json_t *doc,
                                   cli_printer *print, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status = mics_file_create(common->output, &writer, err);

    if (status != MICS_OK)
        return status;
    status = print_to(mics_file_stream(writer), false, common, doc, print, err);
    if (status == MICS_OK)
        return mics_file_commit(writer, err);
    mics_err_prefix(err, "%s", common->output);
    mics_file_discard(writer);
    return status;
}

enum mics_status cli_write_document(const struct cli_common *common, json_t *doc, int argc,
                                    char **argv, cli_printer *print, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (!common->no_history)
        status = mics_doc_add_history(doc, cli_state.program->name, argc, argv, err);
    if (status != MICS_OK)
        return status;
    if (common->output && strcmp(common->output, "-") != 0)
        return write_file(common, doc, print, err);
    status = print_to(stdout, cli_is_terminal(STDOUT_FILENO), common, doc, print, err);
    if (status == MICS_OK && fflush(stdout) != 0)
        status = mics_err_set_errno(err, "standard output");
    return status;
}
