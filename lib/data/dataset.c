/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/num.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_IDS 65536

enum mics_status mics_dataset_to_doc(const struct mics_token_file *file, json_t **out,
                                     struct mics_err *err)
{
    const char *name = strrchr(file->path, '/');
    json_t *doc = mics_doc_new(MICS_DATASET_KIND, MICS_DATASET_VERSION);
    int failed = json_object_set_new(doc, "file", json_string(name ? name + 1 : file->path));

    failed |= json_object_set_new(doc, "format", json_string(mics_token_format_name(file->format)));
    failed |= json_object_set_new(doc, "id_bytes", json_integer(file->width));
    failed |= json_object_set_new(doc, "tokens", json_integer((json_int_t)file->count));
    if (file->documents)
        failed |=
            json_object_set_new(doc, "documents", json_integer((json_int_t)file->document_count));
    if (file->vocab_size)
        failed |= json_object_set_new(doc, "vocab_size", json_integer(file->vocab_size));
    *out = doc;
    if (!failed)
        return MICS_OK;
    json_decref(doc);
    *out = NULL;
    return mics_err_nomem(err);
}

static json_t *hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

enum mics_status mics_dataset_add_source(json_t *doc, uint64_t checksum,
                                         const struct mics_corpus *corpus,
                                         const struct mics_encode_report *report,
                                         uint32_t vocab_size, json_t *tokenizer,
                                         struct mics_err *err)
{
    json_t *text =
        json_pack("{s:I,s:I,s:I}", "files", (json_int_t)corpus->count, "bytes",
                  (json_int_t)corpus->bytes, "special_tokens", (json_int_t)report->special);
    int failed = json_object_set_new(doc, "documents", json_integer((json_int_t)report->documents));

    failed |= json_object_set_new(doc, "vocab_size", json_integer(vocab_size));
    failed |= json_object_set_new(doc, "xxh64", hex(checksum));
    failed |= json_object_set_new(text, "fingerprint", hex(corpus->fingerprint));
    failed |= json_object_set_new(doc, "text", text);
    if (report->bad_lines.allowed)
        failed |= json_object_set_new(text, "bad_lines",
                                      json_integer((json_int_t)report->bad_lines.count));
    if (tokenizer)
        failed |= json_object_set_new(doc, "tokenizer", tokenizer);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_dataset_match(const json_t *doc, const struct mics_token_file *file,
                                    struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    uint64_t tokens = 0, width = 0;
    enum mics_status status = mics_cursor_u64(&root, "tokens", 1, INT64_MAX, &tokens, err);

    if (status == MICS_OK)
        status = mics_cursor_u64(&root, "id_bytes", 1, 8, &width, err);
    if (status == MICS_OK && (tokens != file->count || width != file->width))
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "it describes %" PRIu64 " tokens of %" PRIu64
                              " bytes, but '%s' has %" PRIu64 " of %" PRIu32,
                              tokens, width, file->path, file->count, file->width);
    return status;
}

enum mics_status mics_dataset_check(const json_t *doc, const struct mics_token_file *file,
                                    uint32_t vocab_size, struct mics_err *err)
{
    const char *then = json_string_value(json_object_get(doc, "xxh64"));
    enum mics_status status = MICS_OK;
    char now[17];

    if (vocab_size > 0) {
        int32_t *ids = malloc(CHECK_IDS * sizeof *ids);

        status = ids ? MICS_OK : mics_err_nomem(err);
        for (uint64_t i = 0; status == MICS_OK && i < file->count; i += CHECK_IDS)
            status = mics_token_file_read(
                file, i, (uint32_t)mics_min_u64(CHECK_IDS, file->count - i), vocab_size, ids, err);
        free(ids);
    }
    if (status != MICS_OK || !then)
        return status;
    snprintf(now, sizeof now, "%016" PRIx64, mics_token_file_checksum(file));
    if (strcmp(now, then) == 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' is damaged: its checksum is %s, but was %s when it was made",
                        file->path, now, then);
}

static void row_count(struct mics_table *table, const json_t *map, const char *key,
                      const char *title)
{
    const json_t *value = json_object_get(map, key);

    if (!json_is_integer(value))
        return;
    mics_table_cell(table, "%s", title);
    mics_table_cell(table, "%lld", (long long)json_integer_value(value));
}

static void row_text(struct mics_table *table, const json_t *map, const char *key,
                     const char *title)
{
    const char *value = json_string_value(json_object_get(map, key));

    if (!value)
        return;
    mics_table_cell(table, "%s", title);
    mics_table_cell(table, "%s", value);
}

/* The first file, which ids are made with, or "bytes". */
static void row_tokenizer(struct mics_table *table, const json_t *tokenizer)
{
    const json_t *files = json_object_get(tokenizer, "files");
    const char *name = json_string_value(json_object_get(json_array_get(files, 0), "name"));

    if (!tokenizer)
        return;
    mics_table_cell(table, "tokenizer");
    mics_table_cell(table, "%s", name ? name : "bytes");
}

enum mics_status mics_dataset_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    const json_t *text = json_object_get(doc, "text"), *bytes = json_object_get(text, "bytes");
    uint64_t tokens = 0, width = 0;
    enum mics_status status = mics_cursor_u64(&root, "tokens", 1, INT64_MAX / 8, &tokens, err);

    if (status == MICS_OK)
        status = mics_cursor_u64(&root, "id_bytes", 1, 8, &width, err);
    if (status != MICS_OK)
        return status;
    struct mics_table *table = mics_table_new("<|>");

    row_text(table, doc, "file", "file");
    row_text(table, doc, "format", "format");
    row_count(table, doc, "documents", "documents");
    row_count(table, doc, "tokens", "tokens");
    mics_table_cell(table, "size");
    mics_table_bytes(table, tsv, tokens * width);
    row_count(table, doc, "id_bytes", tsv ? "id_bytes" : "bytes of an id");
    row_count(table, doc, "vocab_size", "vocabulary");
    row_tokenizer(table, json_object_get(doc, "tokenizer"));
    row_count(table, text, "files", tsv ? "text_files" : "files of text");
    if (json_is_integer(bytes)) {
        mics_table_cell(table, "text");
        mics_table_bytes(table, tsv, (uint64_t)json_integer_value(bytes));
        mics_table_cell(table, tsv ? "bytes_per_token" : "bytes per token");
        mics_table_cell(table, "%.2f", (double)json_integer_value(bytes) / (double)tokens);
    }
    row_count(table, text, "special_tokens", tsv ? "special_tokens" : "special tokens in the text");
    row_count(table, text, "bad_lines", tsv ? "bad_lines" : "damaged lines skipped");
    row_text(table, doc, "xxh64", "xxh64");
    return mics_table_finish(table, out, tsv, err);
}
