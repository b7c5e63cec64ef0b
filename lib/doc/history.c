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

/* The command as one line, which the caller frees. NULL after an error. */
static char *join_words(const struct mics_cursor *argv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    for (size_t i = 0; stream && i < mics_cursor_count(argv) && mics_cursor_ok(argv); i++) {
        const struct mics_cursor word = mics_cursor_item_any(argv, i);

        if (!json_is_string(word.value)) {
            mics_cursor_reject(&word, NULL, "expected a string");
            break;
        }
        if (i > 0)
            fputc(' ', stream);
        put_word(stream, json_string_value(word.value));
    }
    if (!stream || fclose(stream) != 0)
        mics_cursor_nomem(argv);
    if (mics_cursor_ok(argv))
        return text;
    free(text);
    return NULL;
}

enum mics_status mics_history_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    struct mics_table *table = mics_table_new("<program|<version|<command");
    struct mics_cursor history = {0};

    if (mics_cursor_has(&root, "history"))
        history = mics_cursor_get_array(&root, "history", 0, MAX_ENTRIES);
    for (size_t i = 0; i < mics_cursor_count(&history) && mics_cursor_ok(&root); i++) {
        const struct mics_cursor entry = mics_cursor_get_item(&history, i);

        mics_table_cell(table, "%s", mics_cursor_get_string(&entry, "program"));
        mics_table_cell(table, "%s", mics_cursor_get_string(&entry, "version"));
        const struct mics_cursor argv = mics_cursor_get_array(&entry, "argv", 0, MAX_ENTRIES);
        char *command = join_words(&argv);
        mics_table_cell(table, "%s", command ? command : "");
        free(command);
    }
    if (reading.status == MICS_OK)
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return reading.status;
}
