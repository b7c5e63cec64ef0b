/* SPDX-License-Identifier: Apache-2.0 */
#include "data/corpus_find.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum mics_status grow(struct mics_corpus *corpus, struct mics_err *err)
{
    size_t capacity = corpus->capacity ? 2 * corpus->capacity : 64;
    struct mics_document *documents;

    if (corpus->count < corpus->capacity)
        return MICS_OK;
    documents = realloc(corpus->documents, capacity * sizeof *documents);
    if (!documents)
        return mics_err_nomem(err);
    corpus->documents = documents;
    corpus->capacity = capacity;
    return MICS_OK;
}

static enum mics_status add(struct mics_corpus *corpus, const char *path, const struct stat *info,
                            struct mics_err *err)
{
    enum mics_status status = grow(corpus, err);
    struct mics_document *document;

    if (status != MICS_OK)
        return status;
    document = &corpus->documents[corpus->count];
    *document = (struct mics_document){.path = strdup(path),
                                       .size = (uint64_t)info->st_size,
                                       .device = (uint64_t)info->st_dev,
                                       .inode = (uint64_t)info->st_ino};
    if (!document->path)
        return mics_err_nomem(err);
    corpus->count++;
    return MICS_OK;
}

/* One path that a pattern matched. Text of another kind than a regular file is an error, except a
 * folder that only a wildcard met. */
static enum mics_status take(struct mics_corpus *corpus, const char *path, bool named,
                             struct mics_err *err)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        int code = errno;
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s': %s", path, strerror(code));
    }
    if (S_ISDIR(info.st_mode) && !named)
        return MICS_OK;
    if (S_ISDIR(info.st_mode))
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is a folder: write '%s/*' for its files",
                            path, path);
    if (!S_ISREG(info.st_mode))
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is not a regular file", path);
    return add(corpus, path, &info, err);
}

static bool has_wildcard(const char *pattern)
{
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && pattern[1])
            pattern++;
        else if (strchr("*?[", *pattern))
            return true;
    }
    return false;
}

/* A folder that is there but cannot be read stops the search: its files must not be missed in silence. */
static int on_glob_error(const char *path, int code)
{
    (void)path;
    return code != ENOENT;
}

static enum mics_status expand(struct mics_corpus *corpus, const char *pattern,
                               struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    bool named = !has_wildcard(pattern);
    size_t before = corpus->count;
    glob_t found = {0};
    int code = glob(pattern, GLOB_NOSORT, on_glob_error, &found);

    if (code == GLOB_NOSPACE)
        status = mics_err_nomem(err);
    else if (code == GLOB_ABORTED)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s': a folder cannot be read", pattern);
    for (size_t i = 0; status == MICS_OK && i < found.gl_pathc; i++)
        status = take(corpus, found.gl_pathv[i], named, err);
    if (status == MICS_OK && corpus->count == before)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s' matches no file", pattern);
    globfree(&found);
    return status;
}

/* The end of the word that begins at `text`: a blank ends it, a blank after a backslash does not. */
static const char *word_end(const char *text)
{
    while (*text && !strchr(" \t\n", *text)) {
        if (*text == '\\' && text[1])
            text++;
        text++;
    }
    return text;
}

static enum mics_status expand_words(struct mics_corpus *corpus, const char *text,
                                     struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && *(text += strspn(text, " \t\n"))) {
        const char *end = word_end(text);
        char *pattern = strndup(text, (size_t)(end - text));

        if (!pattern)
            return mics_err_nomem(err);
        status = expand(corpus, pattern, err);
        free(pattern);
        text = end;
    }
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct mics_document *)a)->path, ((const struct mics_document *)b)->path);
}

static int by_identity(const void *a, const void *b)
{
    const struct mics_document *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* Keep the first path of every file. */
static void deduplicate(struct mics_corpus *corpus)
{
    struct mics_document *all = corpus->documents;
    size_t kept = 0;

    qsort(all, corpus->count, sizeof *all, by_identity);
    for (size_t i = 0; i < corpus->count; i++) {
        if (kept && all[kept - 1].device == all[i].device && all[kept - 1].inode == all[i].inode)
            free(all[i].path);
        else
            all[kept++] = all[i];
    }
    corpus->count = kept;
    qsort(all, kept, sizeof *all, by_path);
}

enum mics_status mics_corpus_find(const char *const *patterns, size_t pattern_count,
                                  struct mics_corpus *corpus, struct mics_err *err)
{
    for (size_t i = 0; i < pattern_count; i++) {
        enum mics_status status = expand_words(corpus, patterns[i], err);

        if (status != MICS_OK)
            return status;
    }
    if (corpus->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no file is named");
    deduplicate(corpus);
    if (corpus->count > MICS_CORPUS_MAX_FILES)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%zu files match, more than the %d that can be mapped: join some",
                            corpus->count, MICS_CORPUS_MAX_FILES);
    return MICS_OK;
}
