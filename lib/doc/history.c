/* SPDX-License-Identifier: Apache-2.0 */
#include "doc/history.h"

#include "doc/cursor.h"
#include "doc/table.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1 << 20 };

/* Write the word, in single quotes if a shell would interpret it. */
static void put_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,@%+";

    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

/* The command as one line, which the caller frees. */
static enum mics_status join_words(const struct mics_cursor *argv, char **out, struct mics_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    enum mics_status status = stream ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < mics_cursor_count(argv) && status == MICS_OK; i++) {
        const struct mics_cursor word = mics_cursor_item_any(argv, i);

        if (!json_is_string(word.value)) {
            status = mics_cursor_fail(&word, NULL, err, "expected a string");
            break;
        }
        if (i > 0)
            fputc(' ', stream);
        put_word(stream, json_string_value(word.value));
    }
    if (stream && fclose(stream) != 0 && status == MICS_OK)
        status = mics_err_nomem(err);
    if (status != MICS_OK) {
        free(text);
        return status;
    }
    *out = text;
    return MICS_OK;
}

static enum mics_status put_entry(struct mics_table *table, const struct mics_cursor *entry,
                                  struct mics_err *err)
{
    const char *program, *version;
    struct mics_cursor argv;
    char *command = NULL;
    enum mics_status status = mics_cursor_string(entry, "program", &program, err);

    if (status == MICS_OK)
        status = mics_cursor_string(entry, "version", &version, err);
    if (status == MICS_OK)
        status = mics_cursor_array(entry, "argv", 0, MAX_ENTRIES, &argv, err);
    if (status == MICS_OK)
        status = join_words(&argv, &command, err);
    if (status != MICS_OK)
        return status;
    mics_table_cell(table, "%s", program);
    mics_table_cell(table, "%s", version);
    mics_table_cell(table, "%s", command);
    free(command);
    return MICS_OK;
}

enum mics_status mics_history_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_table *table = mics_table_new("<program|<version|<command");
    enum mics_status status = MICS_OK;
    struct mics_cursor history = {0}, entry;

    if (mics_cursor_has(&root, "history"))
        status = mics_cursor_array(&root, "history", 0, MAX_ENTRIES, &history, err);
    for (size_t i = 0; i < mics_cursor_count(&history) && status == MICS_OK; i++) {
        status = mics_cursor_item(&history, i, &entry, err);
        if (status == MICS_OK)
            status = put_entry(table, &entry, err);
    }
    if (status == MICS_OK)
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return status;
}
