/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/memory/memory_ckpt.h"

#include "base/clock.h"
#include "base/dir.h"
#include "base/units.h"
#include "doc/doc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC          "mics-mem"
#define VERSION        1
#define SHARD_FORMAT   "shard-%05" PRIu32 "-of-%05" PRIu32 ".%" PRIu32
#define RECORD_LIMIT   4096
#define MOST_SHARDS    (1u << 20)
#define LOCK_TIMEOUT_S 5

_Static_assert(sizeof(struct mics_memory_ckpt_header) <= MICS_MEMORY_CKPT_DATA,
               "the header fits into its page");

/* The record --------------------------------------------------------------------------------- */

static enum mics_status record_path(const char *out, char *buf, struct mics_err *err)
{
    return mics_path_format(buf, err, "%s/" MICS_MEMORY_CKPT_RECORD "/record", out);
}

static uint64_t inode_of(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

bool mics_memory_ckpt_record_parse(const char *text, struct mics_memory_ckpt_record *record)
{
    return sscanf(text,
                  "id %" SCNx64 " inode %" SCNu64 " stamp %" SCNx64 " from %" SCNx64 " %" SCNu64
                  " step %" SCNu64,
                  &record->id, &record->inode, &record->stamp, &record->from_stamp,
                  &record->from_step, &record->step) == 6 &&
           record->id != 0 && record->stamp != 0;
}

enum mics_status mics_memory_ckpt_record_read(const char *out,
                                              struct mics_memory_ckpt_record *record, bool *found,
                                              struct mics_err *err)
{
    char path[MICS_PATH_MAX], *text = NULL;
    size_t size = 0;
    enum mics_status status = record_path(out, path, err);

    *found = false;
    *record = (struct mics_memory_ckpt_record){0};
    if (status != MICS_OK || access(path, F_OK) != 0)
        return status;
    status = mics_file_read(path, RECORD_LIMIT, &text, &size, err);
    if (status != MICS_OK)
        return status;
    const bool whole = mics_memory_ckpt_record_parse(text, record);
    free(text);
    if (!whole)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: is not a record of state in memory", path);
    *found = record->inode == inode_of(out);
    return MICS_OK;
}

enum mics_status mics_memory_ckpt_record_write(const char *out,
                                               struct mics_memory_ckpt_record *record,
                                               struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX], folder[MICS_PATH_MAX];
    enum mics_status status = record_path(out, path, err);

    record->inode = inode_of(out);
    mics_path_parent(path, folder);
    if (status == MICS_OK)
        status = mics_file_make_folders(folder, err);
    if (status == MICS_OK)
        status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    fprintf(mics_file_stream(writer),
            "id %016" PRIx64 "\ninode %" PRIu64 "\nstamp %016" PRIx64 "\nfrom %016" PRIx64
            " %" PRIu64 "\nstep %" PRIu64 "\n",
            record->id, record->inode, record->stamp, record->from_stamp, record->from_step,
            record->step);
    return mics_file_publish(writer, err);
}

void mics_memory_ckpt_record_remove(const char *out)
{
    char path[MICS_PATH_MAX];

    if (mics_path_format(path, NULL, "%s/" MICS_MEMORY_CKPT_RECORD, out) == MICS_OK)
        mics_file_remove_tree(path, NULL);
}

uint64_t mics_memory_ckpt_random(void)
{
    uint64_t number = 0;

    while (number == 0)
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            number = (uint64_t)(mics_now_s() * 1e9) ^ ((uint64_t)getpid() << 40);
    return number;
}

/* Folders ------------------------------------------------------------------------------------ */

enum mics_status mics_memory_ckpt_folder(const char *root, uint64_t id, int declared, char *buf,
                                         struct mics_err *err)
{
    char node[16] = "";

    if (declared >= 0)
        snprintf(node, sizeof node, ".%d", declared);
    return mics_path_format(buf, err, "%s/mics-%u-%016" PRIx64 "%s", root, (unsigned)geteuid(), id,
                            node);
}

/* Does it belong to this user, closed to others, and is it no link? */
static bool is_own(int fd, mode_t kind)
{
    struct stat info;

    return fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == kind && info.st_uid == geteuid() &&
           (info.st_mode & 077) == 0;
}

static bool is_own_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const bool own = fd >= 0 && is_own(fd, S_IFDIR);

    if (fd >= 0)
        close(fd);
    return own;
}

void mics_memory_ckpt_folder_remove(const char *folder)
{
    if (is_own_folder(folder))
        mics_file_remove_tree(folder, NULL);
}

enum mics_status mics_memory_ckpt_folder_open(const char *folder, uint32_t local_rank, int *lock,
                                              struct mics_err *err)
{
    const double until = mics_now_s() + LOCK_TIMEOUT_S;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/lock.%" PRIu32, folder, local_rank);

    if (status != MICS_OK)
        return status;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return mics_err_set_errno(err, "%s", folder);
    if (!is_own_folder(folder))
        return mics_err_set(err, MICS_ERR_IO, "%s: is not a folder of this user alone", folder);
    *lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*lock < 0)
        return mics_err_set_errno(err, "%s", path);
    while (flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        if (mics_now_s() > until) {
            close(*lock);
            *lock = -1;
            return mics_err_set(err, MICS_ERR_IO, "%s: a process of another start uses it", path);
        }
        mics_sleep_s(0.05); /* a rank of the start before, which is being killed */
    }
    return MICS_OK;
}

/* Shards ------------------------------------------------------------------------------------- */

enum mics_status mics_memory_ckpt_shard_path(const char *folder, uint32_t shard, uint32_t shards,
                                             uint32_t generation, char *buf, struct mics_err *err)
{
    return mics_path_format(buf, err, "%s/" SHARD_FORMAT, folder, shard, shards, generation);
}

/* All of its memory is taken now, so that it cannot be missing during training. */
static enum mics_status allocate(int fd, const char *path, uint64_t bytes, struct mics_err *err)
{
    char need[32];
    const int code = posix_fallocate(fd, 0, (off_t)bytes);

    if (code == ENOSPC)
        return mics_err_set(err, MICS_ERR_IO, "%s: the shared memory is too small: no room for %s",
                            path, mics_format_bytes(bytes, need, sizeof need));
    errno = code;
    return code == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

enum mics_status mics_memory_ckpt_shard_open(const char *folder, uint32_t shard, uint32_t shards,
                                             uint32_t generation, uint64_t bytes,
                                             struct mics_memory_ckpt_shard *out,
                                             struct mics_err *err)
{
    const uint64_t size = MICS_MEMORY_CKPT_DATA + bytes;
    struct stat info;
    enum mics_status status =
        mics_memory_ckpt_shard_path(folder, shard, shards, generation, out->path, err);

    if (status != MICS_OK)
        return status;
    const int fd = open(out->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return mics_err_set_errno(err, "%s", out->path);
    if (!is_own(fd, S_IFREG))
        status = mics_err_set(err, MICS_ERR_IO, "%s: is not a file of this user alone", out->path);
    if (status == MICS_OK && fstat(fd, &info) == 0 && (uint64_t)info.st_size > size &&
        ftruncate(fd, (off_t)size) != 0)
        status = mics_err_set_errno(err, "%s", out->path);
    if (status == MICS_OK)
        status = allocate(fd, out->path, size, err);
    void *memory = MAP_FAILED;
    if (status == MICS_OK)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (status == MICS_OK && memory == MAP_FAILED)
        status = mics_err_set_errno(err, "%s", out->path);
    close(fd);
    if (status != MICS_OK) {
        unlink(out->path);
        return status;
    }
    out->header = memory;
    out->data = (float *)((char *)memory + MICS_MEMORY_CKPT_DATA);
    out->bytes = bytes;
    return MICS_OK;
}

void mics_memory_ckpt_shard_close(struct mics_memory_ckpt_shard *shard)
{
    if (shard->header)
        munmap(shard->header, MICS_MEMORY_CKPT_DATA + shard->bytes);
    *shard = (struct mics_memory_ckpt_shard){.header = NULL};
}

/* The reader is a later process, which sees all stores of one that died: only the compiler must
 * keep the order of header and data. */
void mics_memory_ckpt_shard_clear(struct mics_memory_ckpt_shard *shard)
{
    memset(shard->header, 0, sizeof *shard->header);
    atomic_signal_fence(memory_order_seq_cst);
}

void mics_memory_ckpt_shard_complete(struct mics_memory_ckpt_shard *shard,
                                     const struct mics_memory_ckpt_header *header)
{
    atomic_signal_fence(memory_order_seq_cst);
    *shard->header = *header;
}

static uint64_t header_sum(const struct mics_memory_ckpt_header *header)
{
    return XXH64(header, offsetof(struct mics_memory_ckpt_header, header_xxh64), 0);
}

struct mics_memory_ckpt_header mics_memory_ckpt_header(uint32_t shard, uint32_t shards,
                                                       uint64_t stamp, uint64_t step,
                                                       uint64_t bytes, uint64_t xxh64)
{
    struct mics_memory_ckpt_header header = {.version = VERSION,
                                             .shard = shard,
                                             .shards = shards,
                                             .stamp = stamp,
                                             .step = step,
                                             .bytes = bytes,
                                             .xxh64 = xxh64};

    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.header_xxh64 = header_sum(&header);
    return header;
}

bool mics_memory_ckpt_header_valid(const struct mics_memory_ckpt_header *header)
{
    return memcmp(header->magic, MAGIC, sizeof header->magic) == 0 && header->version == VERSION &&
           header->header_xxh64 == header_sum(header);
}

enum mics_status mics_memory_ckpt_manifest_path(const char *folder, uint64_t stamp, uint64_t step,
                                                char *buf, struct mics_err *err)
{
    return mics_path_format(buf, err, "%s/manifest-%016" PRIx64 "-%06" PRIu64 ".mp", folder, stamp,
                            step);
}

/* What is there ------------------------------------------------------------------------------ */

enum file_state { INCOMPLETE, DAMAGED, WHOLE };

static bool is_name(const char *name, const char *expected)
{
    const char *slash = strrchr(expected, '/');

    return strcmp(name, slash ? slash + 1 : expected) == 0;
}

/* The entry of a name, without what only the file says. */
static bool parse_name(const char *name, struct mics_memory_ckpt_entry *entry)
{
    char again[MICS_PATH_MAX];

    *entry = (struct mics_memory_ckpt_entry){0};
    if (sscanf(name, "shard-%" SCNu32 "-of-%" SCNu32 ".%" SCNu32, &entry->shard, &entry->shards,
               &entry->generation) == 3)
        return entry->shard < entry->shards && entry->shards <= MOST_SHARDS &&
               entry->generation < 2 &&
               mics_memory_ckpt_shard_path("", entry->shard, entry->shards, entry->generation,
                                           again, NULL) == MICS_OK &&
               is_name(name, again);
    entry->shard = MICS_MEMORY_CKPT_MANIFEST;
    return sscanf(name, "manifest-%16" SCNx64 "-%" SCNu64 ".mp", &entry->stamp, &entry->step) ==
               2 &&
           mics_memory_ckpt_manifest_path("", entry->stamp, entry->step, again, NULL) == MICS_OK &&
           is_name(name, again);
}

/* Was a header never written, or cleared? */
static bool is_blank(const struct mics_memory_ckpt_header *header)
{
    static const struct mics_memory_ckpt_header blank;

    return memcmp(header, &blank, sizeof blank) == 0;
}

/* Read what the header of a shard says. A shard that is being written has a blank one. */
static enum file_state read_header(int fd, struct mics_memory_ckpt_entry *entry)
{
    struct mics_memory_ckpt_header header;
    struct stat info;

    if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header || is_blank(&header))
        return INCOMPLETE;
    if (!mics_memory_ckpt_header_valid(&header) || header.shard != entry->shard ||
        header.shards != entry->shards || fstat(fd, &info) != 0 ||
        info.st_size < MICS_MEMORY_CKPT_DATA ||
        (uint64_t)info.st_size - MICS_MEMORY_CKPT_DATA != header.bytes) {
        entry->damaged = 1;
        return DAMAGED;
    }
    entry->stamp = header.stamp;
    entry->step = header.step;
    entry->xxh64 = header.xxh64;
    return WHOLE;
}

/* Files of other users, and what is not a file, are not read: INCOMPLETE. */
static enum file_state read_entry(int folder, const char *name,
                                  struct mics_memory_ckpt_entry *entry)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    enum file_state state = INCOMPLETE;

    if (fd >= 0 && is_own(fd, S_IFREG))
        state = entry->shard == MICS_MEMORY_CKPT_MANIFEST ? WHOLE : read_header(fd, entry);
    if (fd >= 0)
        close(fd);
    return state;
}

static enum mics_status append(struct mics_memory_ckpt_entry **entries, uint32_t *count,
                               const struct mics_memory_ckpt_entry *entry, struct mics_err *err)
{
    struct mics_memory_ckpt_entry *more = realloc(*entries, (*count + 1) * sizeof *more);

    if (!more)
        return mics_err_nomem(err);
    more[(*count)++] = *entry;
    *entries = more;
    return MICS_OK;
}

enum mics_status mics_memory_ckpt_list(const char *folder, struct mics_memory_ckpt_entry **entries,
                                       uint32_t *count, struct mics_err *err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    enum mics_status status;
    const char *name;
    struct mics_dir dir;
    struct mics_memory_ckpt_entry entry;

    *entries = NULL;
    *count = 0;
    if (fd >= 0 && !is_own(fd, S_IFDIR))
        close(fd);
    else if (fd >= 0) {
        status = mics_dir_open_fd(fd, folder, &dir, err);
        while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
            if (parse_name(name, &entry) && read_entry(fd, name, &entry) != INCOMPLETE)
                status = append(entries, count, &entry, err);
        return mics_dir_close(&dir, status, err);
    }
    return MICS_OK;
}

static enum mics_status verify_manifest(const char *folder,
                                        const struct mics_memory_ckpt_entry *entry,
                                        struct mics_err *err)
{
    char path[MICS_PATH_MAX], *data = NULL;
    size_t size = 0;
    json_t *doc = NULL;
    enum mics_status status =
        mics_memory_ckpt_manifest_path(folder, entry->stamp, entry->step, path, err);

    if (status != MICS_OK)
        goto out;
    status = mics_file_read(path, MICS_DOC_MAX_BYTES, &data, &size, err);
    if (status != MICS_OK)
        goto out;
    status = mics_doc_decode(data, size, &doc, err);
    if (status != MICS_OK)
        goto out;
    status = mics_manifest_check(doc, err);
out:
    json_decref(doc);
    free(data);
    return status;
}

static enum mics_status verify_data(int fd, const struct mics_memory_ckpt_entry *entry,
                                    const char *path, struct mics_err *err)
{
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return mics_err_set_errno(err, "%s", path);
    if (info.st_size <= MICS_MEMORY_CKPT_DATA)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: has no data", path);
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return mics_err_set_errno(err, "%s", path);
    const uint64_t sum = XXH64((char *)memory + MICS_MEMORY_CKPT_DATA,
                               (size_t)info.st_size - MICS_MEMORY_CKPT_DATA, 0);
    munmap(memory, (size_t)info.st_size);
    return sum == entry->xxh64 ? MICS_OK
                               : mics_err_set(err, MICS_ERR_FORMAT, "%s: is damaged", path);
}

enum mics_status mics_memory_ckpt_verify(const char *folder,
                                         const struct mics_memory_ckpt_entry *entry,
                                         struct mics_err *err)
{
    char path[MICS_PATH_MAX];

    if (entry->shard == MICS_MEMORY_CKPT_MANIFEST)
        return verify_manifest(folder, entry, err);
    enum mics_status status = mics_memory_ckpt_shard_path(folder, entry->shard, entry->shards,
                                                          entry->generation, path, err);
    if (status != MICS_OK)
        return status;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    status = verify_data(fd, entry, path, err);
    if (fd >= 0)
        close(fd);
    return status;
}

enum mics_status mics_memory_ckpt_prune(const char *folder, uint64_t stamp, uint64_t step,
                                        bool incomplete, struct mics_err *err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    enum mics_status status;
    const char *name;
    struct mics_dir dir;
    struct mics_memory_ckpt_entry entry;

    if (fd < 0)
        return mics_err_set_errno(err, "%s", folder);
    status = mics_dir_open_fd(fd, folder, &dir, err);
    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL) {
        if (!parse_name(name, &entry))
            continue;
        const bool whole = read_entry(fd, name, &entry) == WHOLE;
        const bool valid = entry.stamp == stamp && (step == 0 || entry.step == step);

        if ((whole ? !valid : incomplete) && unlinkat(fd, name, 0) != 0 && errno != ENOENT)
            status = mics_err_set_errno(err, "%s/%s", folder, name);
    }
    return mics_dir_close(&dir, status, err);
}
