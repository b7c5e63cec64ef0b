/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/num.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

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
    if (file->prompts.mapping)
        failed |= json_object_set_new(doc, "prompt_tokens",
                                      json_integer((json_int_t)file->prompts.tokens));
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
                                         const struct mics_chat *chat, uint32_t vocab_size,
                                         json_t *tokenizer, struct mics_err *err)
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
    if (chat)
        failed |= json_object_set_new(doc, "chat", json_string(mics_chat_name(chat)));
    if (tokenizer)
        failed |= json_object_set_new(doc, "tokenizer", tokenizer);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

/* ---- files ---- */

static const char *const file_suffixes[] = {".bin", ".idx", MICS_PROMPTS_SUFFIX};

#define FILE_SUFFIXES (sizeof file_suffixes / sizeof *file_suffixes)

#define SAMPLE_BLOCKS 16
#define SAMPLE_BYTES  65536

/* *sum: XXH64 of a file of up to 1 MiB, else of 16 blocks of 64 KiB, the first at its beginning,
 * the last at its end, and the others evenly between. */
static enum mics_status sample_file(const char *path, uint64_t *bytes, uint64_t *sum,
                                    struct mics_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *buffer = malloc(SAMPLE_BLOCKS * SAMPLE_BYTES);
    struct stat info;
    enum mics_status status = MICS_OK;

    if (!buffer)
        status = mics_err_nomem(err);
    else if (fd < 0 || fstat(fd, &info) != 0)
        status = mics_err_set_errno(err, "'%s'", path);
    if (status == MICS_OK && info.st_size <= SAMPLE_BLOCKS * SAMPLE_BYTES) {
        status = mics_file_read_at(fd, buffer, (size_t)info.st_size, 0, err);
        *sum = XXH64(buffer, (size_t)info.st_size, 0);
    } else if (status == MICS_OK) {
        for (uint64_t i = 0; i < SAMPLE_BLOCKS && status == MICS_OK; i++)
            status = mics_file_read_at(
                fd, buffer + i * SAMPLE_BYTES, SAMPLE_BYTES,
                i * (((uint64_t)info.st_size - SAMPLE_BYTES) / (SAMPLE_BLOCKS - 1)) +
                    (i + 1 == SAMPLE_BLOCKS
                         ? ((uint64_t)info.st_size - SAMPLE_BYTES) % (SAMPLE_BLOCKS - 1)
                         : 0),
                err);
        *sum = XXH64(buffer, SAMPLE_BLOCKS * SAMPLE_BYTES, 0);
    }
    if (status == MICS_OK)
        *bytes = (uint64_t)info.st_size;
    if (fd >= 0)
        close(fd);
    free(buffer);
    return status;
}

enum mics_status mics_dataset_add_files(json_t *doc, const char *prefix, struct mics_err *err)
{
    const char *slash = strrchr(prefix, '/');
    json_t *list = json_array();
    enum mics_status status = MICS_OK;
    int failed = json_object_set_new(doc, "files", list);

    for (size_t i = 0; i < FILE_SUFFIXES && status == MICS_OK; i++) {
        char path[MICS_PATH_MAX];
        uint64_t bytes = 0, sum = 0;

        status = mics_path_format(path, err, "%s%s", prefix, file_suffixes[i]);
        if (status != MICS_OK || (i > 0 && access(path, F_OK) != 0))
            continue;
        status = sample_file(path, &bytes, &sum, err);
        failed |= json_array_append_new(
            list,
            json_pack("{s:o,s:I,s:o}", "name", json_string(path + (slash ? slash + 1 - prefix : 0)),
                      "bytes", (json_int_t)bytes, "sample_xxh64", hex(sum)));
    }
    if (status != MICS_OK)
        return status;
    return failed ? mics_err_nomem(err) : MICS_OK;
}

/* Is it the file that the document was written with? It may have been renamed with the document. */
static enum mics_status match_file(const struct mics_cursor *listed, const char *prefix,
                                   struct mics_err *err)
{
    const char *name = mics_cursor_get_string(listed, "name");
    const uint64_t bytes = mics_cursor_get_u64(listed, "bytes", 0, INT64_MAX);
    const char *then = mics_cursor_get_string(listed, "sample_xxh64");
    const char *suffix = strrchr(name, '.');
    char path[MICS_PATH_MAX], now[17];
    uint64_t sum = 0, size = 0;
    enum mics_status status;

    bool known = false;

    for (size_t i = 0; suffix && i < FILE_SUFFIXES; i++)
        known = known || strcmp(suffix, file_suffixes[i]) == 0;
    if (!known)
        mics_cursor_reject(listed, "name", "'%.80s' is no file of tokens", name);
    if (!mics_cursor_ok(listed))
        return listed->reading->status;
    status = mics_path_format(path, err, "%s%s", prefix, suffix);
    if (status != MICS_OK)
        return status;
    status = sample_file(path, &size, &sum, err);
    if (status != MICS_OK)
        return status;
    snprintf(now, sizeof now, "%016" PRIx64, sum);
    if (size == bytes && strcmp(now, then) == 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' is damaged, or not of this set: %" PRIu64
                        " bytes with samples %s, but "
                        "%" PRIu64 " with %.16s were written: encode the text again",
                        path, size, now, bytes, then);
}

static enum mics_status match_files(const struct mics_cursor *root, const char *path,
                                    struct mics_err *err)
{
    struct mics_reading *reading = root->reading;
    char prefix[MICS_PATH_MAX];

    reading->status = mics_token_prefix(path, prefix, err);
    if (!mics_cursor_has(root, "files"))
        return reading->status;
    const struct mics_cursor list = mics_cursor_get_array(root, "files", 0, FILE_SUFFIXES);
    for (size_t i = 0; i < mics_cursor_count(&list) && mics_cursor_ok(root); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&list, i);

        reading->status = match_file(&item, prefix, err);
    }
    return reading->status;
}

enum mics_status mics_dataset_match(const json_t *doc, const struct mics_token_file *file,
                                    struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const uint64_t tokens = mics_cursor_get_u64(&root, "tokens", 1, INT64_MAX);
    const uint64_t width = mics_cursor_get_u64(&root, "id_bytes", 1, 8);

    if (reading.status != MICS_OK)
        return reading.status;
    if (tokens != file->count || width != file->width)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "it describes %" PRIu64 " tokens of %" PRIu64
                            " bytes, but '%s' has %" PRIu64 " of %" PRIu32,
                            tokens, width, file->path, file->count, file->width);
    if (mics_cursor_has(&root, "prompt_tokens") != (file->prompts.mapping != NULL))
        return mics_err_set(err, MICS_ERR_FORMAT, "it tells of %s prompts, but there is %s",
                            file->prompts.mapping ? "no" : "tokens of",
                            file->prompts.mapping ? "a file " MICS_PROMPTS_SUFFIX
                                                  : "no file " MICS_PROMPTS_SUFFIX);
    return match_files(&root, file->path, err);
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
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const json_t *text = json_object_get(doc, "text"), *bytes = json_object_get(text, "bytes");
    const uint64_t tokens = mics_cursor_get_u64(&root, "tokens", 1, INT64_MAX / 8);
    const uint64_t width = mics_cursor_get_u64(&root, "id_bytes", 1, 8);

    if (reading.status != MICS_OK)
        return reading.status;
    struct mics_table *table = mics_table_new("<|>");

    row_text(table, doc, "file", "file");
    row_text(table, doc, "format", "format");
    row_count(table, doc, "documents", "documents");
    row_count(table, doc, "tokens", "tokens");
    row_count(table, doc, "prompt_tokens", tsv ? "prompt_tokens" : "tokens of prompts");
    row_text(table, doc, "chat", "chat");
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
