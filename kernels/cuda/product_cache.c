/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_cache.c - chosen algorithms of matrix products, kept between runs.
 *
 *     mics matrix products 1
 *     NVIDIA H200, compute capability 9.0, cuBLASLt 130101
 *     KEY = ALGORITHM in hexadecimal, bias gelu      (one line for each product)
 *     end CHECKSUM                                   (FNV-1a, 64 bits, of all that is before)
 *
 * There is one file for each GPU and library, whose name is made from the second line. The whole
 * file is read and checked before any of it is used, so no part of a damaged file is used. It is
 * replaced by rename(), under a name of mkstemp()'s until then: ranks and jobs that share the
 * folder, also over a network, always read a complete file. If two processes write at once, the
 * later one wins; the entries of the other are measured again when they are next needed.
 */
#include "cuda/products.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "mics matrix products 1\n"

enum { FILE_LIMIT = 4 << 20, ALGO_BYTES = sizeof(((struct mics_matmul_choice *)0)->algorithm) };

struct entry {
    char *key;
    struct mics_matmul_choice choice;
};

struct mics_product_cache {
    char *tuning, *folder, *path; /* folder and path NULL: neither variable is set */
    struct entry *entries;
    size_t count;
    bool changed;
    struct mics_err warning; /* the first; empty: none */
};

static void warn(struct mics_product_cache *cache, const struct mics_err *why,
                 const char *consequence)
{
    if (!*cache->warning.text)
        mics_err_set(&cache->warning, MICS_ERR_IO, "%s; %s", why->text, consequence);
}

static struct entry *find(const struct mics_product_cache *cache, const char *key, size_t length)
{
    for (size_t i = 0; i < cache->count; i++)
        if (strncmp(cache->entries[i].key, key, length) == 0 && !cache->entries[i].key[length])
            return &cache->entries[i];
    return NULL;
}

/* Add an entry, or, if `newer`, replace the choice of an existing one. */
static bool put(struct mics_product_cache *cache, const char *key, size_t length,
                const struct mics_matmul_choice *choice, bool newer)
{
    struct entry *entry = find(cache, key, length);

    if (entry) {
        entry->choice = newer ? *choice : entry->choice;
        return true;
    }
    struct entry *entries = realloc(cache->entries, (cache->count + 1) * sizeof *entries);
    if (!entries)
        return false;
    cache->entries = entries;
    char *copy = strndup(key, length);
    if (!copy)
        return false;
    entries[cache->count++] = (struct entry){.key = copy, .choice = *choice};
    return true;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The choice at the end of a line, "HEX B G"; false: it is none. */
static bool read_choice(const char *text, size_t length, struct mics_matmul_choice *choice)
{
    if (length != 2 * ALGO_BYTES + 4)
        return false;
    for (size_t i = 0; i < ALGO_BYTES; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        choice->algorithm[i] = (uint8_t)(high << 4 | low);
    }
    const char *flags = text + 2 * ALGO_BYTES;
    choice->bias = flags[1] == '1';
    choice->gelu = flags[3] == '1';
    return flags[0] == ' ' && (flags[1] | 1) == '1' && flags[2] == ' ' && (flags[3] | 1) == '1';
}

/* Lines up to `end`, each whole. */
static bool read_entries(struct mics_product_cache *cache, const char *text, const char *end)
{
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        const char *sign = line_end ? memmem(text, (size_t)(line_end - text), " = ", 3) : NULL;
        struct mics_matmul_choice choice;

        if (!sign || !read_choice(sign + 3, (size_t)(line_end - sign - 3), &choice) ||
            !put(cache, text, (size_t)(sign - text), &choice, false))
            return false;
        text = line_end + 1;
    }
    return true;
}

/* The last line is the checksum of those before it, byte for byte. */
static bool is_whole(const char *text, size_t size, const char **end)
{
    char last[32];
    const size_t length = sizeof "end 0123456789abcdef\n" - 1;

    if (size < length)
        return false;
    *end = text + size - length;
    snprintf(last, sizeof last, "end %016" PRIx64 "\n", mics_product_hash(text, size - length));
    return memcmp(*end, last, length) == 0;
}

static enum mics_status parse(struct mics_product_cache *cache, const char *text, size_t size,
                              struct mics_err *err)
{
    const size_t before = cache->count, header = strlen(HEADER), tuning = strlen(cache->tuning);
    const char *end;

    if (!is_whole(text, size, &end))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: the file is damaged", cache->path);
    if ((size_t)(end - text) < header + tuning + 1 || memcmp(text, HEADER, header) != 0 ||
        memcmp(text + header, cache->tuning, tuning) != 0 || text[header + tuning] != '\n')
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: the file is of another version, GPU or library", cache->path);
    if (read_entries(cache, text + header + tuning + 1, end))
        return MICS_OK;
    while (cache->count > before)
        free(cache->entries[--cache->count].key);
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: the file is malformed", cache->path);
}

/* Read the file's entries; entries that are already in the table stay. */
static enum mics_status read_file(struct mics_product_cache *cache, struct mics_err *err)
{
    char *text;
    size_t size;

    if (access(cache->path, F_OK) != 0 && errno == ENOENT)
        return MICS_OK;
    enum mics_status status = mics_file_read(cache->path, FILE_LIMIT, &text, &size, err);
    if (status != MICS_OK)
        return status;
    status = parse(cache, text, size, err);
    free(text);
    return status;
}

/* folder/products-TUNING, with one dash for a run of what is neither a letter nor a digit nor a
 * dot. */
static char *name_file(const char *folder, const char *tuning)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.";
    char *path;

    if (asprintf(&path, "%s/products-%s", folder, tuning) < 0)
        return NULL;
    char *to = path + strlen(folder) + strlen("/products-");
    for (const char *from = tuning; *from; from++) {
        if (strchr(plain, *from))
            *to++ = *from;
        else if (to[-1] != '-')
            *to++ = '-';
    }
    *to = '\0';
    return path;
}

/* The XDG Base Directory Specification: a path that is not absolute is ignored. */
static char *name_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *folder = NULL;
    int length = 0;

    if (cache && *cache == '/')
        length = asprintf(&folder, "%s/mics", cache);
    else if (home && *home == '/')
        length = asprintf(&folder, "%s/.cache/mics", home);
    return length < 0 ? NULL : folder;
}

struct mics_product_cache *mics_product_cache_open(const char *tuning)
{
    struct mics_product_cache *cache = calloc(1, sizeof *cache);
    struct mics_err err;

    if (!cache)
        return NULL;
    cache->tuning = strdup(tuning);
    cache->folder = name_folder();
    cache->path = cache->folder && cache->tuning ? name_file(cache->folder, tuning) : NULL;
    if (!cache->tuning || (cache->folder && !cache->path)) {
        mics_product_cache_free(cache);
        return NULL;
    }
    if (!cache->path) {
        mics_err_set(&err, MICS_ERR_IO, "neither XDG_CACHE_HOME nor HOME names a folder");
        warn(cache, &err, "algorithms of matrix products are not kept");
    } else if (read_file(cache, &err) != MICS_OK) {
        warn(cache, &err, "algorithms of matrix products are measured again");
    }
    return cache;
}

bool mics_product_cache_find(const struct mics_product_cache *cache, const char *key,
                             struct mics_matmul_choice *out)
{
    const struct entry *entry = find(cache, key, strlen(key));

    if (entry)
        *out = entry->choice;
    return entry != NULL;
}

void mics_product_cache_put(struct mics_product_cache *cache, const char *key,
                            const struct mics_matmul_choice *choice)
{
    cache->changed = put(cache, key, strlen(key), choice, true) || cache->changed;
}

static bool write_text(const struct mics_product_cache *cache, FILE *out)
{
    fprintf(out, HEADER "%s\n", cache->tuning);
    for (size_t i = 0; i < cache->count; i++) {
        const struct mics_matmul_choice *choice = &cache->entries[i].choice;

        fprintf(out, "%s = ", cache->entries[i].key);
        for (size_t byte = 0; byte < ALGO_BYTES; byte++)
            fprintf(out, "%02x", choice->algorithm[byte]);
        fprintf(out, " %d %d\n", choice->bias, choice->gelu);
    }
    return !ferror(out);
}

/* The file's text; NULL: no memory. */
static char *make_text(const struct mics_product_cache *cache, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);

    if (!out)
        return NULL;
    bool good = write_text(cache, out) && fflush(out) == 0;
    if (good)
        fprintf(out, "end %016" PRIx64 "\n", mics_product_hash(text, *size));
    good = fclose(out) == 0 && good;
    if (good)
        return text;
    free(text);
    return NULL;
}

/* 0, or -1 with errno. */
static int write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        const ssize_t written = write(fd, text, size);

        if (written < 0 && errno != EINTR)
            return -1;
        text += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
    return fsync(fd);
}

static enum mics_status replace_file(const struct mics_product_cache *cache, const char *text,
                                     size_t size, struct mics_err *err)
{
    char *scratch;

    if (asprintf(&scratch, "%s.XXXXXX", cache->path) < 0)
        return mics_err_nomem(err);
    const int fd = mkostemp(scratch, O_CLOEXEC);
    enum mics_status status = fd < 0 ? mics_err_set_errno(err, "%s", cache->path) : MICS_OK;
    if (fd >= 0) {
        const bool written = write_all(fd, text, size) == 0;

        if (!written)
            status = mics_err_set_errno(err, "%s", cache->path);
        if (close(fd) != 0 && written)
            status = mics_err_set_errno(err, "%s", cache->path);
        if (status == MICS_OK && rename(scratch, cache->path) != 0)
            status = mics_err_set_errno(err, "%s", cache->path);
        if (status != MICS_OK)
            unlink(scratch);
    }
    free(scratch);
    return status;
}

void mics_product_cache_save(struct mics_product_cache *cache)
{
    struct mics_err err;
    size_t size = 0;

    if (!cache->changed || !cache->path)
        return;
    (void)read_file(cache, NULL); /* an unreadable file was reported, and is replaced */
    char *text = make_text(cache, &size);
    enum mics_status status =
        text ? mics_file_make_folders(cache->folder, &err) : mics_err_nomem(&err);
    if (status == MICS_OK)
        status = replace_file(cache, text, size, &err);
    if (status != MICS_OK)
        warn(cache, &err, "algorithms of matrix products are not kept");
    cache->changed = false;
    free(text);
}

const char *mics_product_cache_path(const struct mics_product_cache *cache)
{
    return cache->path;
}

const char *mics_product_cache_warning(const struct mics_product_cache *cache)
{
    return *cache->warning.text ? cache->warning.text : NULL;
}

void mics_product_cache_free(struct mics_product_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->count; i++)
        free(cache->entries[i].key);
    free(cache->entries);
    free(cache->path);
    free(cache->folder);
    free(cache->tuning);
    free(cache);
}
