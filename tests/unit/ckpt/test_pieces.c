/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pieces.c - files that are written in pieces: by threads, by ranks, with and without direct
 * I/O.
 *
 * The source is one file of three tensors: floats, an odd number of bytes, and floats again, which
 * are therefore not aligned in what is made.
 */
#include "missing.h"
#include "tap.h"

#include "base/file.h"
#include "ckpt/convert/target.h"
#include "ckpt/format/direct_file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { RANKS = 3, FLOATS = 1500000, ODD = 2097153, MORE = 700001, HEAD = 8192 };

#define DATA_BYTES ((size_t)FLOATS * 4 + ODD + (size_t)MORE * 4)
#define FILE_BYTES (HEAD + DATA_BYTES)

static char folder[64];
static char header[HEAD], *data; /* [DATA_BYTES] */
static struct mics_store store;

static void make_source(void)
{
    const uint64_t odd = (uint64_t)FLOATS * 4, more = odd + ODD;
    char path[128];

    data = malloc(DATA_BYTES);
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = (char)((i * 2654435761u) >> 25 & 0x3f); /* so all floats are finite */
    memset(header, 'h', sizeof header);
    snprintf(path, sizeof path, "%s/source", folder);
    FILE *out = fopen(path, "w");
    CHECK(fwrite(data, 1, DATA_BYTES, out) == DATA_BYTES && fclose(out) == 0);
    CHECK_INT(mics_store_add_file(&store, path, NULL), MICS_OK);
    store.table = calloc(3, sizeof *store.table);
    store.table[store.table_count++] = (struct mics_extent){
        .name = "floats", .vector = 0, .dtype = MICS_STORAGE_F32, .count = FLOATS};
    store.table[store.table_count++] = (struct mics_extent){
        .name = "odd", .vector = 1, .dtype = MICS_STORAGE_RAW, .count = ODD, .offset = odd};
    store.table[store.table_count++] = (struct mics_extent){
        .name = "more", .vector = 2, .dtype = MICS_STORAGE_F32, .count = MORE, .offset = more};
}

/* Two files with the whole source each, and one with only the header. */
struct wanted {
    struct mics_section sections[2][3];
    struct mics_target_file files[3];
    struct mics_target target;
};

static void want(struct wanted *w, bool hashed)
{
    static const uint64_t counts[] = {FLOATS, ODD, MORE};

    memset(w, 0, sizeof *w);
    w->target = (struct mics_target){.files = w->files, .file_count = 3, .hashed = hashed};
    for (uint32_t i = 0; i < 3; i++) {
        struct mics_target_file *file = &w->files[i];

        snprintf(file->name, sizeof file->name, "file-%u", i);
        file->header = header;
        file->header_bytes = HEAD;
        file->bytes = HEAD;
        if (i == 2)
            continue;
        for (uint32_t j = 0; j < 3; j++)
            w->sections[i][j] =
                (struct mics_section){.vector = j,
                                      .dtype = j == 1 ? MICS_STORAGE_RAW : MICS_STORAGE_F32,
                                      .count = counts[j]};
        file->sections = w->sections[i];
        file->section_count = 3;
        file->bytes += mics_sections_place(w->sections[i], 3);
    }
}

static bool is_right(const char *at, const struct mics_target_file *file)
{
    char path[256], *got = NULL;
    size_t size = 0;
    bool right;

    snprintf(path, sizeof path, "%s/%s", at, file->name);
    if (mics_file_read(path, 2 * FILE_BYTES, &got, &size, NULL) != MICS_OK)
        return false;
    right = size == file->bytes && memcmp(got, header, HEAD) == 0 &&
            memcmp(got + HEAD, data, size - HEAD) == 0 &&
            (file->sum.bytes == 0 || file->sum.xxh64 == XXH64(got, size, 0));
    free(got);
    return right;
}

static const char *new_folder(const char *parent, char *path, size_t size)
{
    static int count;

    snprintf(path, size, "%s/made-%d", parent, count++);
    mkdir(path, 0777);
    return path;
}

struct rank {
    struct mics_comm *comm;
    const struct mics_store *store;
    struct wanted wanted;
    const char *at;
    enum mics_status status;
};

static void *run_rank(void *context)
{
    struct rank *rank = context;
    const struct mics_target_options options = {.comm = rank->comm, .host_ranks = RANKS};
    struct mics_err err = {""};

    rank->status = mics_target_write(rank->store, &rank->wanted.target, rank->at, &options, &err);
    mics_comm_free(rank->comm);
    return NULL;
}

static void make_by_ranks(int count, const char *parent, bool hashed)
{
    struct mics_comm *comms[RANKS];
    struct rank ranks[RANKS] = {0};
    pthread_t threads[RANKS];
    char at[128];

    new_folder(parent, at, sizeof at);
    CHECK_INT(mics_comm_new_threads(count, comms, NULL), MICS_OK);
    for (int i = 0; i < count; i++) {
        ranks[i].comm = comms[i];
        ranks[i].store = &store;
        ranks[i].at = at;
        want(&ranks[i].wanted, hashed);
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) {
        CHECK_INT(ranks[i].status, MICS_OK);
        for (int j = 0; j < 3; j++) {
            CHECK(is_right(at, &ranks[i].wanted.files[j]));
            CHECK(!hashed || ranks[i].wanted.files[j].sum.bytes == ranks[i].wanted.files[j].bytes);
        }
    }
}

static void pieces_make_whole_files_with_their_sums(void)
{
    make_by_ranks(1, folder, true);
    make_by_ranks(1, folder, false);
}

static void ranks_share_files_that_are_summed_and_ranges_of_others(void)
{
    make_by_ranks(RANKS, folder, true);
    make_by_ranks(RANKS, folder, false);
}

static void a_file_system_without_direct_io_is_written_to_with_buffers(void)
{
    char shared[] = "/dev/shm/mics-test-pieces.XXXXXX";

    if (!mkdtemp(shared)) {
        CHECK(access("/dev/shm", W_OK) != 0);
        return;
    }
    make_by_ranks(2, shared, true);
    make_by_ranks(1, shared, false);
    mics_file_remove_tree(shared, NULL);
}

static void a_rank_that_cannot_write_fails_them_all(void)
{
    struct mics_comm *comms[RANKS];
    struct rank ranks[RANKS] = {0};
    pthread_t threads[RANKS];
    char at[128];

    new_folder(folder, at, sizeof at);
    CHECK_INT(mics_comm_new_threads(RANKS, comms, NULL), MICS_OK);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].comm = comms[i];
        ranks[i].store = &store;
        ranks[i].at = i == 1 ? missing_path("x") : at;
        want(&ranks[i].wanted, false);
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++)
        CHECK_INT(ranks[i].status, MICS_ERR_IO);
}

/* A store whose first number is not finite. */
static void make_bad_source(struct mics_store *bad)
{
    static const unsigned char infinite[] = {0, 0, 0x80, 0x7f};
    char path[128];

    snprintf(path, sizeof path, "%s/bad", folder);
    FILE *out = fopen(path, "w");
    CHECK(fwrite(infinite, 1, 4, out) == 4 && fclose(out) == 0 &&
          truncate(path, (off_t)DATA_BYTES) == 0);
    CHECK_INT(mics_store_add_file(bad, path, NULL), MICS_OK);
    bad->table = malloc(3 * sizeof *bad->table);
    memcpy(bad->table, store.table, 3 * sizeof *bad->table);
    bad->table_count = 3;
}

static void a_rank_that_stops_creates_the_abort_marker_which_stops_the_others(void)
{
    struct mics_comm *comms[RANKS];
    struct rank ranks[RANKS] = {0};
    struct mics_store bad = {0};
    pthread_t threads[RANKS];
    char at[128], path[256];

    make_bad_source(&bad);
    new_folder(folder, at, sizeof at);
    snprintf(path, sizeof path, "%s/" MICS_ABORT_MARKER, at);
    for (int round = 0; round < 2; round++) { /* first it is made; then it is there */
        CHECK_INT(mics_comm_new_threads(RANKS, comms, NULL), MICS_OK);
        for (int i = 0; i < RANKS; i++) {
            ranks[i] = (struct rank){.comm = comms[i], .at = at};
            ranks[i].store = round == 0 && i == 0 ? &bad : &store;
            want(&ranks[i].wanted, true);
            pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
        }
        for (int i = 0; i < RANKS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < RANKS; i++)
            CHECK_INT(ranks[i].status, round == 0 ? MICS_ERR_FORMAT : MICS_OK);
        CHECK(access(path, F_OK) == 0);
        for (int j = 0; j < 3; j++) {
            snprintf(path, sizeof path, "%s/%s", at, ranks[0].wanted.files[j].name);
            CHECK(round == 0 || !is_right(at, &ranks[0].wanted.files[j]));
            unlink(path);
        }
        snprintf(path, sizeof path, "%s/" MICS_ABORT_MARKER, at);
    }
    mics_store_close(&bad);
}

static void a_cancelled_target_is_not_written(void)
{
    const atomic_bool cancel = true;
    struct mics_target_options options = {.host_ranks = 1, .cancel = &cancel};
    struct wanted wanted;
    char at[128];

    new_folder(folder, at, sizeof at);
    want(&wanted, true);
    CHECK_INT(mics_comm_new_self(&options.comm, NULL), MICS_OK);
    CHECK_INT(mics_target_write(&store, &wanted.target, at, &options, NULL), MICS_OK);
    CHECK(!is_right(at, &wanted.files[0]));
    mics_comm_free(options.comm);
}

/* The file ends with the last piece, whatever follows it in memory. */
static void the_last_piece_ends_the_file(void)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 12288, 20000};
    struct mics_direct_file file;
    char path[128], *piece = aligned_alloc(4096, 32768), *got;
    size_t size;

    snprintf(path, sizeof path, "%s/ends", folder);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(piece, 'x', 32768);
        CHECK_INT(mics_direct_file_open(path, sizes[i], true, &file, NULL), MICS_OK);
        CHECK_INT(mics_direct_file_write(&file, piece, sizes[i], 0, NULL), MICS_OK);
        CHECK_INT(mics_direct_file_close(&file, false, NULL), MICS_OK);
        CHECK_INT(mics_file_read(path, 65536, &got, &size, NULL), MICS_OK);
        CHECK(size == sizes[i] && got[0] == 'x' && got[size - 1] == 'x');
        free(got);
        unlink(path);
    }
    free(piece);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/mics-test-pieces.XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    make_source();
    TAP_RUN(pieces_make_whole_files_with_their_sums);
    TAP_RUN(ranks_share_files_that_are_summed_and_ranges_of_others);
    TAP_RUN(a_file_system_without_direct_io_is_written_to_with_buffers);
    TAP_RUN(a_rank_that_cannot_write_fails_them_all);
    TAP_RUN(a_rank_that_stops_creates_the_abort_marker_which_stops_the_others);
    TAP_RUN(a_cancelled_target_is_not_written);
    TAP_RUN(the_last_piece_ends_the_file);
    mics_store_close(&store);
    free(data);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
