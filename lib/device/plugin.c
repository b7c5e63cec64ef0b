/* SPDX-License-Identifier: Apache-2.0 */
#include "device/plugin.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

struct mics_plugin_file {
    void *handle;
    const struct mics_plugin *table;
    char path[PATH_BYTES];
};

static const struct mics_plugin_services services = {
    .size = sizeof services,
    .now_s = mics_now_s,
};

/* `place` itself if it is a file, else the plug-in in that folder; false: there is none. */
static bool plugin_at(const char *place, size_t length, char path[PATH_BYTES])
{
    struct stat about;

    if (length == 0 ||
        (size_t)snprintf(path, PATH_BYTES, "%.*s", (int)length, place) >= PATH_BYTES ||
        stat(path, &about) != 0)
        return false;
    if (!S_ISDIR(about.st_mode))
        return true;
    if ((size_t)snprintf(path, PATH_BYTES, "%.*s/%s", (int)length, place, MICS_PLUGIN_FILE) >=
        PATH_BYTES)
        return false;
    return access(path, F_OK) == 0;
}

static enum mics_status find_in_list(const char *list, char path[PATH_BYTES], struct mics_err *err)
{
    for (const char *place = list; *place;) {
        const size_t length = strcspn(place, ":");

        if (plugin_at(place, length, path))
            return MICS_OK;
        place += length + (place[length] == ':');
    }
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "no plug-in %s in MICS_PLUGIN_PATH=%s",
                        MICS_PLUGIN_FILE, list);
}

static enum mics_status find(char path[PATH_BYTES], struct mics_err *err)
{
    static const char *const from_program[] = {"", "/../lib/mics"};
    const char *list = getenv("MICS_PLUGIN_PATH");
    char folder[PATH_BYTES / 2], place[PATH_BYTES];

    if (list && *list)
        return find_in_list(list, path, err);
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length < 0)
        return mics_err_set_errno(err, "/proc/self/exe");
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    for (size_t i = 0; i < sizeof from_program / sizeof *from_program; i++) {
        snprintf(place, sizeof place, "%s%s", folder, from_program[i]);
        if (plugin_at(place, strlen(place), path))
            return MICS_OK;
    }
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "no plug-in %s in %s or %s/../lib/mics (MICS_PLUGIN_PATH names another "
                        "place; it is built where nvcc is)",
                        MICS_PLUGIN_FILE, folder, folder);
}

/* Loading a truncated file would end in SIGBUS, because the loader maps as much as the headers
 * declare. The section headers are at the end of a complete file. */
static enum mics_status check_whole(const char *path, struct mics_err *err)
{
    FILE *in = fopen(path, "rb");
    struct stat about;
    Elf64_Ehdr header;

    if (!in)
        return mics_err_set_errno(err, "%s", path);
    const bool read = fread(&header, sizeof header, 1, in) == 1;
    const bool known = fstat(fileno(in), &about) == 0;
    fclose(in);
    if (!read || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "%s: not a shared library", path);
    if (!known || header.e_shoff > (uint64_t)about.st_size ||
        (uint64_t)header.e_shentsize * header.e_shnum > (uint64_t)about.st_size - header.e_shoff)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "%s: the file is truncated", path);
    return MICS_OK;
}

static enum mics_status check_table(const struct mics_plugin *table, struct mics_err *err)
{
    if (!table)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "the plug-in refuses this program: it is of "
                            "another version");
    if (table->size != sizeof *table)
        return mics_err_set(
            err, MICS_ERR_UNSUPPORTED,
            "its table has %u bytes, this program's %zu: build both from one source", table->size,
            sizeof *table);
    if (table->device_size != MICS_DEVICE_BYTES || table->kernel_count != MICS_KERNEL_COUNT ||
        table->argument_bytes != MICS_KERNEL_ARGUMENT_BYTES)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "its devices have %u bytes of functions and %u kernels with %u bytes "
                            "of arguments, this program's %zu, %d and %zu: build both from one "
                            "source",
                            table->device_size, table->kernel_count, table->argument_bytes,
                            MICS_DEVICE_BYTES, (int)MICS_KERNEL_COUNT,
                            (size_t)MICS_KERNEL_ARGUMENT_BYTES);
    return MICS_OK;
}

/* The loader's message without the file name, which our message already has. */
static const char *loader_text(const char *path)
{
    const char *text = dlerror();
    const size_t length = strlen(path);

    if (!text)
        return "unknown reason";
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0
               ? text + length + 2
               : text;
}

static enum mics_status load(struct mics_plugin_file *file, struct mics_err *err)
{
    mics_plugin_entry_fn *entry;
    void *symbol;

    /* Never unmapped: threads of the driver may still run its code. */
    file->handle = dlopen(file->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!file->handle)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "%s", loader_text(file->path));
    symbol = dlsym(file->handle, MICS_PLUGIN_ENTRY);
    if (!symbol)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "no symbol %s: not a plug-in of ours",
                            MICS_PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    file->table = entry(&services);
    return check_table(file->table, err);
}

enum mics_status mics_plugin_open(struct mics_plugin_file **out, struct mics_err *err)
{
    struct mics_plugin_file *file = calloc(1, sizeof *file);
    enum mics_status status;

    if (!file)
        return mics_err_nomem(err);
    status = find(file->path, err);
    if (status == MICS_OK)
        status = check_whole(file->path, err);
    if (status == MICS_OK) {
        status = load(file, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", file->path);
    }
    if (status == MICS_OK)
        *out = file;
    else
        mics_plugin_close(file);
    return status;
}

void mics_plugin_close(struct mics_plugin_file *file)
{
    if (file && file->handle)
        dlclose(file->handle);
    free(file);
}

const struct mics_plugin *mics_plugin_table(const struct mics_plugin_file *file)
{
    return file->table;
}

const char *mics_plugin_path(const struct mics_plugin_file *file)
{
    return file->path;
}
