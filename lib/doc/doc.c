/* SPDX-License-Identifier: Apache-2.0 */
/* doc.c - the envelope of every document (kind, v, history), and the choice of its encoding. */
#include "doc/doc.h"

#include "base/file.h"
#include "base/utf8.h"
#include "base/version.h"
#include "doc/encoding.h"

#include <stdlib.h>
#include <string.h>

json_t *mics_doc_new(const char *kind, int version)
{
    json_t *doc = json_object();

    if (!doc || json_object_set_new(doc, "kind", json_string(kind)) != 0 ||
        json_object_set_new(doc, "v", json_integer(version)) != 0) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

static enum mics_status check_envelope(const json_t *doc, struct mics_err *err)
{
    const json_t *kind = json_object_get(doc, "kind");
    const json_t *version = json_object_get(doc, "v");

    if (!kind)
        return mics_err_set(err, MICS_ERR_FORMAT, "kind: missing: not a document of mics");
    if (!json_is_string(kind))
        return mics_err_set(err, MICS_ERR_FORMAT, "kind: expected a string");
    if (!version)
        return mics_err_set(err, MICS_ERR_FORMAT, "v: missing: the version of '%s'",
                            json_string_value(kind));
    if (!json_is_integer(version) || json_integer_value(version) < 1)
        return mics_err_set(err, MICS_ERR_FORMAT, "v: expected an integer from 1");
    return MICS_OK;
}

/* A msgpack map begins with 0x80 to 0x8f, 0xde or 0xdf, and JSON text never does. */
static enum mics_status decode_value(const char *data, size_t size, json_t **out,
                                     struct mics_err *err)
{
    const unsigned char first = (unsigned char)data[0];

    if (first == '{' || memchr(" \t\r\n", first, 4))
        return mics_json_read(data, size, (struct mics_json_origin){.line = 1}, out, err);
    if ((first & 0xf0) == 0x80 || first == 0xde || first == 0xdf)
        return mics_msgpack_read(data, size, out, err);
    if (size >= sizeof MICS_LFS_POINTER - 1 &&
        memcmp(data, MICS_LFS_POINTER, sizeof MICS_LFS_POINTER - 1) == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "a pointer of Git LFS: " MICS_LFS_ADVICE);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "offset 0: neither a msgpack map nor JSON: the first byte is 0x%02x",
                        first);
}

enum mics_status mics_doc_decode(const void *data, size_t size, json_t **out, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status;

    if (size == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "empty: there is no document in it");
    if (size > MICS_DOC_MAX_BYTES)
        return mics_err_set(err, MICS_ERR_FORMAT, "%zu bytes: a document has at most %u", size,
                            MICS_DOC_MAX_BYTES);
    status = decode_value(data, size, &doc, err);
    if (status != MICS_OK)
        return status;
    status = check_envelope(doc, err);
    if (status != MICS_OK) {
        json_decref(doc);
        return status;
    }
    *out = doc;
    return MICS_OK;
}

enum mics_status mics_doc_read_object(const char *text, size_t size, json_t **out,
                                      struct mics_err *err)
{
    if (size > MICS_DOC_MAX_BYTES)
        return mics_err_set(err, MICS_ERR_FORMAT, "%zu bytes: at most %u are read", size,
                            MICS_DOC_MAX_BYTES);
    return mics_json_read(text, size, (struct mics_json_origin){.line = 1}, out, err);
}

enum mics_status mics_doc_expect(const json_t *doc, const char *kind, int version,
                                 struct mics_err *err)
{
    const char *found = json_string_value(json_object_get(doc, "kind"));
    const json_int_t v = json_integer_value(json_object_get(doc, "v"));

    if (!found || strcmp(found, kind) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "expected a document of kind '%s', found '%s'",
                            kind, found ? found : "");
    if (v < 1)
        return mics_err_set(err, MICS_ERR_FORMAT, "v: expected an integer from 1");
    if (v > version)
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "'%s' of version %lld was written by a newer mics: this one reads up to "
            "version %d",
            kind, (long long)v, version);
    if (v < version)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' of version %lld: this mics reads version %d", kind, (long long)v,
                            version);
    return MICS_OK;
}

/* The limits of the readers, so that nothing is written that cannot be read back. */
static enum mics_status check_limits(const json_t *value, unsigned depth, uint64_t *weight,
                                     struct mics_err *err)
{
    const bool container = json_is_object(value) || json_is_array(value);
    enum mics_status status = MICS_OK;
    const char *key;
    json_t *item;
    size_t i;

    *weight += container ? MICS_DOC_CONTAINER_WEIGHT : 1;
    if (*weight > MICS_DOC_MAX_VALUES)
        return mics_err_set(err, MICS_ERR_ARG, "the document has more than %u values",
                            MICS_DOC_MAX_VALUES);
    if (container && depth == MICS_DOC_MAX_DEPTH)
        return mics_err_set(err, MICS_ERR_ARG, "the document is nested deeper than %d",
                            MICS_DOC_MAX_DEPTH);
    json_array_foreach(value, i, item)
    {
        status = check_limits(item, depth + 1, weight, err);
        if (status != MICS_OK)
            return status;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        status = check_limits(item, depth + 1, weight, err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

enum mics_status mics_doc_encode(const json_t *doc, enum mics_doc_format format, char **data,
                                 size_t *size, struct mics_err *err)
{
    char *bytes = NULL;
    size_t count = 0;
    uint64_t weight = 0;
    enum mics_status status = check_limits(doc, 0, &weight, err);

    if (status != MICS_OK)
        return status;
    status = format == MICS_DOC_JSON ? mics_json_write(doc, &bytes, &count, err)
                                     : mics_msgpack_write(doc, &bytes, &count, err);
    if (status != MICS_OK)
        return status;
    if (count > MICS_DOC_MAX_BYTES) {
        free(bytes);
        return mics_err_set(err, MICS_ERR_ARG, "the document takes %zu bytes: at most %u are read",
                            count, MICS_DOC_MAX_BYTES);
    }
    *data = bytes;
    *size = count;
    return MICS_OK;
}

/* A command-line argument as a string. A document is UTF-8: in other text each byte above 0x7f
 * becomes '?'. */
static json_t *argument_string(const char *arg)
{
    json_t *value;
    char *copy;

    if (mics_utf8_check(arg, strlen(arg), NULL))
        return json_string(arg);
    copy = strdup(arg);
    if (!copy)
        return NULL;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    value = json_string(copy);
    free(copy);
    return value;
}

static json_t *history_entry(const char *program, int argc, char *const *argv)
{
    json_t *args = json_array();
    json_t *entry = NULL;

    for (int i = 0; args && i < argc; i++)
        if (json_array_append_new(args, argument_string(argv[i])) != 0)
            goto out;
    entry = json_pack("{s:s, s:s, s:O}", "program", program, "version", MICS_VERSION, "argv", args);
out:
    json_decref(args);
    return entry;
}

enum mics_status mics_doc_add_history(json_t *doc, const char *program, int argc, char *const *argv,
                                      struct mics_err *err)
{
    json_t *history = json_object_get(doc, "history");

    if (!history) {
        history = json_array();
        if (json_object_set_new(doc, "history", history) != 0)
            return mics_err_nomem(err);
    }
    if (!json_is_array(history))
        return mics_err_set(err, MICS_ERR_FORMAT, "history: expected an array");
    if (json_array_append_new(history, history_entry(program, argc, argv)) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

/* Decode what was read, and free it. */
static enum mics_status decode_file(const char *name, char *data, size_t size, json_t **out,
                                    struct mics_err *err)
{
    const enum mics_status status = mics_doc_decode(data, size, out, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name);
    free(data);
    return status;
}

enum mics_status mics_doc_read_file(const char *path, json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    const enum mics_status status = mics_file_read(path, MICS_DOC_MAX_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    return decode_file(strcmp(path, "-") == 0 ? "standard input" : path, data, size, out, err);
}

enum mics_status mics_doc_read_regular(const char *path, json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    const enum mics_status status =
        mics_file_read_regular(path, MICS_DOC_MAX_BYTES, &data, &size, err);

    return status == MICS_OK ? decode_file(path, data, size, out, err) : status;
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
