/* SPDX-License-Identifier: Apache-2.0 */
#include "data/corpus.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#define NO_FILE " matches no file"

/* Documents up to this size count whole in the fingerprint. */
#define FINGERPRINT_WHOLE ((uint64_t)1 << 20)

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
                                       .stored = (uint64_t)info->st_size,
                                       .device = (uint64_t)info->st_dev,
                                       .inode = (uint64_t)info->st_ino};
    if (!document->path)
        return mics_err_nomem(err);
    corpus->count++;
    return MICS_OK;
}

/* Add a path that a pattern matched. Anything but a regular file is an error, except a folder that
 * a wildcard matched. */
static enum mics_status add_path(struct mics_corpus *corpus, const char *path, bool wildcard,
                                 struct mics_err *err)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        int code = errno;
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s': %s", path, strerror(code));
    }
    if (S_ISDIR(info.st_mode) && wildcard)
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

/* glob(3) takes an error of readdir(3) for the end of a folder, whose other files would be skipped
 * silently. It takes functions of ours, to which it gives no context. */
static _Thread_local int readdir_error;

static struct dirent *read_entry(void *folder)
{
    errno = 0;

    struct dirent *entry = readdir(folder);

    if (!entry && errno != 0)
        readdir_error = errno;
    return entry;
}

static void *open_folder(const char *path)
{
    return opendir(path);
}

static void close_folder(void *folder)
{
    closedir(folder);
}

static int find_status(const char *path, struct stat *info)
{
    return stat(path, info);
}

static int find_link_status(const char *path, struct stat *info)
{
    return lstat(path, info);
}

/* An existing folder that cannot be read is an error: its files must not be skipped silently. */
static int on_glob_error(const char *path, int code)
{
    (void)path;
    return code != ENOENT;
}

/* Add what `pattern` matches. */
static enum mics_status expand(struct mics_corpus *corpus, const char *pattern,
                               struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    const bool wildcard = has_wildcard(pattern);
    glob_t found = {.gl_opendir = open_folder,
                    .gl_readdir = read_entry,
                    .gl_closedir = close_folder,
                    .gl_stat = find_status,
                    .gl_lstat = find_link_status};

    readdir_error = 0;
    const int code = glob(pattern, GLOB_NOSORT | GLOB_ALTDIRFUNC, on_glob_error, &found);

    if (code == GLOB_NOSPACE)
        status = mics_err_nomem(err);
    else if (readdir_error != 0)
        status = mics_err_set(err, MICS_ERR_IO, "'%s': a folder cannot be read: %s", pattern,
                              strerror(readdir_error));
    else if (code == GLOB_ABORTED)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s': a folder cannot be read", pattern);
    for (size_t i = 0; status == MICS_OK && i < found.gl_pathc; i++)
        status = add_path(corpus, found.gl_pathv[i], wildcard, err);
    globfree(&found);
    return status;
}

enum mics_status mics_corpus_add(struct mics_corpus *corpus, const char *pattern,
                                 const char *suffix, struct mics_err *err)
{
    const size_t before = corpus->count, length = strlen(pattern) + 1;
    enum mics_status status = expand(corpus, pattern, err);

    if (status == MICS_OK && corpus->count == before && suffix && !has_wildcard(pattern)) {
        char *longer = malloc(length + strlen(suffix));

        if (!longer)
            return mics_err_nomem(err);
        memcpy(longer, pattern, length);
        strcat(longer, suffix);
        status = expand(corpus, longer, err);
        free(longer);
    }
    if (status == MICS_OK && corpus->count == before)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%s'" NO_FILE, pattern);
    return status;
}

/* The end of the word that begins at `text`: a blank that no backslash precedes. */
static const char *word_end(const char *text)
{
    while (*text && !strchr(" \t\n", *text)) {
        if (*text == '\\' && text[1])
            text++;
        text++;
    }
    return text;
}

const char *mics_corpus_next_word(const char **text, size_t *length)
{
    const char *begin = *text + strspn(*text, " \t\n"), *end = word_end(begin);

    *text = end;
    *length = (size_t)(end - begin);
    return *begin ? begin : NULL;
}

void mics_corpus_explain_words(const char *text, struct mics_err *err)
{
    const size_t used = strlen(err->text), ending = strlen(NO_FILE);
    size_t length;

    if (used >= ending && strcmp(err->text + used - ending, NO_FILE) == 0 &&
        mics_corpus_next_word(&text, &length) && mics_corpus_next_word(&text, &length))
        snprintf(err->text + used, sizeof err->text - used,
                 "; write a blank in a file name as '\\ '");
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

enum mics_status mics_corpus_sort(struct mics_corpus *corpus, struct mics_err *err)
{
    if (corpus->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no pattern is given");
    deduplicate(corpus);
    if (corpus->count > MICS_CORPUS_MAX_FILES)
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "%zu files match, more than the %d that can be mapped: concatenate some", corpus->count,
            MICS_CORPUS_MAX_FILES);
    return MICS_OK;
}

enum mics_status mics_corpus_recognize(struct mics_corpus *corpus, bool binary,
                                       struct mics_err *err)
{
    corpus->binary = binary;
    corpus->stored = 0;
    for (size_t i = 0; i < corpus->count; i++) {
        struct mics_document *document = &corpus->documents[i];
        const enum mics_status status = mics_document_recognize(document, binary, err);

        if (status != MICS_OK)
            return status;
        corpus->stored += document->stored;
    }
    return MICS_OK;
}

uint64_t mics_corpus_fingerprint(uint64_t seed, const void *bytes, uint64_t size)
{
    const uint64_t half = FINGERPRINT_WHOLE / 2;
    uint64_t hash = XXH64(&size, sizeof size, seed);

    if (size <= FINGERPRINT_WHOLE)
        return size ? XXH64(bytes, size, hash) : hash;
    hash = XXH64(bytes, half, hash);
    return XXH64((const unsigned char *)bytes + size - half, half, hash);
}

enum mics_status mics_corpus_open_next(struct mics_corpus *corpus, size_t index,
                                       struct mics_err *err)
{
    struct mics_document *document = &corpus->documents[index];
    const enum mics_status status = mics_document_open(document, corpus->binary, err);

    if (status != MICS_OK)
        return status;
    corpus->bytes += document->size;
    corpus->fingerprint =
        mics_corpus_fingerprint(corpus->fingerprint, document->bytes, document->size);
    return MICS_OK;
}

enum mics_status mics_corpus_check_text(const struct mics_corpus *corpus, struct mics_err *err)
{
    if (corpus->bytes > 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT, "'%s'%s: no text, only empty files",
                        corpus->documents[0].path, corpus->count > 1 ? " and others" : "");
}

enum mics_status mics_corpus_map(struct mics_corpus *corpus, struct mics_err *err)
{
    for (size_t i = 0; i < corpus->count; i++) {
        const enum mics_status status = mics_corpus_open_next(corpus, i, err);

        if (status != MICS_OK)
            return status;
    }
    return mics_corpus_check_text(corpus, err);
}

/* Files of tokens are not text, unless their bytes are asked for. */
static enum mics_status refuse_tokens(struct mics_corpus *corpus, struct mics_err *err)
{
    for (size_t i = 0; i < corpus->count; i++) {
        struct mics_document *document = &corpus->documents[i];

        if (document->format.content != MICS_CONTENT_TOKENS)
            continue;
        if (!corpus->binary)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "'%s' has tokens already, by its name; --binary takes its bytes",
                                document->path);
        document->format.content = MICS_CONTENT_TEXT;
    }
    return MICS_OK;
}

enum mics_status mics_corpus_find(const char *const *patterns, size_t pattern_count, bool binary,
                                  struct mics_corpus *corpus, struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    size_t length;

    *corpus = (struct mics_corpus){0};
    for (size_t i = 0; status == MICS_OK && i < pattern_count; i++) {
        const char *text = patterns[i], *word;
        struct stat info;

        if (stat(text, &info) == 0) { /* as a shell expands patterns, perhaps with blanks */
            status = add_path(corpus, text, false, err);
            continue;
        }
        while (status == MICS_OK && (word = mics_corpus_next_word(&text, &length))) {
            char *pattern = strndup(word, length);

            status = pattern ? mics_corpus_add(corpus, pattern, NULL, err) : mics_err_nomem(err);
            free(pattern);
        }
        if (status != MICS_OK)
            mics_corpus_explain_words(patterns[i], err);
    }
    if (status == MICS_OK)
        status = mics_corpus_sort(corpus, err);
    if (status == MICS_OK)
        status = mics_corpus_recognize(corpus, binary, err);
    if (status == MICS_OK)
        status = refuse_tokens(corpus, err);
    if (status != MICS_OK)
        mics_corpus_close(corpus);
    return status;
}

void mics_corpus_close(struct mics_corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++) {
        mics_document_close(&corpus->documents[i]);
        free(corpus->documents[i].path);
    }
    free(corpus->documents);
    *corpus = (struct mics_corpus){0};
}

enum mics_status mics_corpus_check_output(const struct mics_corpus *corpus, const char *path,
                                          struct mics_err *err)
{
    for (size_t i = 0; i < corpus->count; i++)
        if (mics_file_is_same(path, corpus->documents[i].path))
            return mics_err_set(err, MICS_ERR_ARG, "--output would replace its input '%s'", path);
    return MICS_OK;
}

/* For the handler of SIGBUS. */
static mics_find_mapping *find_mapping;
static const void *mappings;
static const char *program_name;

const char *mics_corpus_find_path(const void *context, const void *address)
{
    const struct mics_corpus *corpus = context;
    const unsigned char *byte = address;

    for (size_t i = 0; i < corpus->count; i++) {
        const struct mics_document *document = &corpus->documents[i];

        if (document->bytes && byte >= document->bytes &&
            (uint64_t)(byte - document->bytes) < document->size)
            return document->path;
    }
    return NULL;
}

static struct iovec text(const char *string)
{
    return (struct iovec){.iov_base = (void *)string, .iov_len = strlen(string)};
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    const char *path = find_mapping(mappings, info->si_addr);

    (void)context;
    if (path) {
        struct iovec line[] = {text(program_name), text(": data: '"), text(path),
                               text("' was truncated while in use\n")};
        if (writev(STDERR_FILENO, line, sizeof line / sizeof *line) < 0)
            _exit(1);
        _exit(1);
    }
    signal(number, SIG_DFL); /* the access is repeated, and ends the process */
}

enum mics_status mics_handle_sigbus(mics_find_mapping *find, const void *context,
                                    const char *program, struct mics_err *err)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

    find_mapping = find;
    mappings = context;
    program_name = program;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) != 0)
        return mics_err_set_errno(err, "signal %d", SIGBUS);
    return MICS_OK;
}
