/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_memory_ckpt.c - libFuzzer target for what is read of state in memory: the record of a run's
 * folder, and a node's shards and manifests.
 *
 * The first byte of the input chooses. 'r': the rest is a record; one that is accepted must be read
 * again from what is written. Other bytes are flags. Then the second is a count of bytes: after 64
 * bytes of a header follow so many of a shard's data, and after them a manifest. A job of one rank
 * looks for them. With the flags the checksums are made right, so that what is behind them is
 * reached. What is found must be the shard that the manifest describes.
 *
 * sources: lib/base lib/doc lib/model lib/plan/layout.c lib/plan/group.c
 * sources: lib/plan/trainer_exchanges.c
 * sources: lib/device/device.c lib/device/host/immediate.c
 * sources: lib/ckpt/memory/memory_ckpt.c lib/ckpt/memory/find.c lib/ckpt/manifest.c
 * sources: lib/ckpt/ckpt_table.c lib/comm/host.c lib/comm/backend.c lib/comm/cpu_time.c
 * sources: lib/comm/agree.c kernels/host kernels/optimizer.c
 */
#include "ckpt/memory/recover.h"
#include "comm/comm.h"
#include "doc/doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { WHOLE_HEADER = 1, HEADER_SUM = 2, DATA_SUM = 4, STAMP = 1, STEP = 5 };

static char root[] = "/dev/shm/mics-fuzz-kept-XXXXXX", node_folder[MICS_PATH_MAX];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void remove_root(void)
{
    mics_file_remove_tree(root, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    must(mkdtemp(root) != NULL);
    must(mics_memory_ckpt_folder(root, 1, -1, node_folder, NULL) == MICS_OK);
    must(mkdir(node_folder, 0700) == 0);
    atexit(remove_root);
    return 0;
}

static void check_record(const uint8_t *data, size_t size)
{
    struct mics_memory_ckpt_record record, again;
    struct mics_err err = {.text = ""};
    char text[4097];
    bool found = false;

    size = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!mics_memory_ckpt_record_parse(text, &record))
        return;
    must(record.id != 0 && record.stamp != 0);
    must(mics_memory_ckpt_record_write(root, &record, &err) == MICS_OK);
    must(mics_memory_ckpt_record_read(root, &again, &found, &err) == MICS_OK && found);
    must(memcmp(&record, &again, sizeof record) == 0);
}

static void write_file(const char *path, const void *head, size_t head_bytes, size_t gap,
                       const void *rest, size_t rest_bytes)
{
    FILE *file = fopen(path, "wb");

    must(file != NULL && fchmod(fileno(file), 0600) == 0);
    fwrite(head, 1, head_bytes, file);
    fseek(file, (long)gap, SEEK_CUR);
    fwrite(rest, 1, rest_bytes, file);
    must(fclose(file) == 0);
}

static void write_shard(uint8_t flags, const uint8_t *raw, const uint8_t *data, uint8_t count)
{
    struct mics_memory_ckpt_header header;
    char path[MICS_PATH_MAX];

    memcpy(&header, raw, sizeof header);
    if (flags & WHOLE_HEADER)
        header = mics_memory_ckpt_header(0, 1, STAMP, STEP, count, XXH64(data, count, 0));
    if (flags & HEADER_SUM)
        header.header_xxh64 =
            XXH64(&header, offsetof(struct mics_memory_ckpt_header, header_xxh64), 0);
    must(mics_memory_ckpt_shard_path(node_folder, 0, 1, 0, path, NULL) == MICS_OK);
    write_file(path, &header, sizeof header, MICS_MEMORY_CKPT_DATA - sizeof header, data, count);
}

/* Give the first file of a manifest the sum of the shard's data, and the manifest its own. */
static json_t *with_sum(const uint8_t *manifest, size_t bytes, uint64_t sum)
{
    json_t *doc = NULL;
    char hash[17];

    if (mics_doc_decode((const char *)manifest, bytes, &doc, NULL) != MICS_OK)
        return NULL;
    snprintf(hash, sizeof hash, "%016" PRIx64, sum);
    json_object_set_new(json_array_get(json_object_get(doc, "files"), 0), "xxh64",
                        json_string(hash));
    mics_manifest_seal(doc, NULL);
    return doc;
}

static void write_manifest(uint8_t flags, const uint8_t *manifest, size_t bytes, uint64_t sum)
{
    json_t *doc = flags & DATA_SUM ? with_sum(manifest, bytes, sum) : NULL;
    char path[MICS_PATH_MAX], *data = NULL;
    size_t size = 0;

    must(mics_memory_ckpt_manifest_path(node_folder, STAMP, STEP, path, NULL) == MICS_OK);
    if (doc && mics_doc_encode(doc, MICS_DOC_MSGPACK, &data, &size, NULL) == MICS_OK)
        write_file(path, data, size, 0, NULL, 0);
    else
        write_file(path, manifest, bytes, 0, NULL, 0);
    free(data);
    json_decref(doc);
}

static void check_found(const struct mics_memory_state *state)
{
    const struct mics_memory_ckpt_entry *entry = &state->entries[0];
    struct mics_manifest manifest;

    must(state->step == STEP && state->stamp == STAMP && state->entry_count == 1);
    must(entry->shard == 0 && entry->shards == 1 && !entry->damaged && entry->generation == 0);
    must(mics_manifest_from_doc(state->doc, &manifest, NULL) == MICS_OK);
    must(manifest.file_count == 1 && manifest.files[0].xxh64 == entry->xxh64);
    must(manifest.step == STEP);
    mics_manifest_free(&manifest);
}

static void find(void)
{
    const struct mics_memory_ckpt_record record = {.id = 1, .stamp = STAMP};
    const struct mics_memory_node node = {.folder = node_folder, .node_count = 1, .local_size = 1};
    struct mics_memory_state state = {.doc = NULL};
    struct mics_err err = {.text = ""};
    struct mics_comm *comm = NULL;

    must(mics_comm_new_self(&comm, NULL) == MICS_OK);
    must(mics_memory_find(comm, &node, &record, &state, &err) == MICS_OK);
    if (state.doc)
        check_found(&state);
    else
        must(state.why[0] != '\0');
    mics_memory_state_fini(&state);
    mics_comm_free(comm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t header = sizeof(struct mics_memory_ckpt_header);

    if (size > 0 && data[0] == 'r') {
        check_record(data + 1, size - 1);
        return 0;
    }
    if (size < 2 || size < 2 + header + data[1])
        return 0;
    const uint8_t *shard = data + 2 + header, *manifest = shard + data[1];

    write_shard(data[0], data + 2, shard, data[1]);
    write_manifest(data[0], manifest, size - 2 - header - data[1], XXH64(shard, data[1], 0));
    find();
    return 0;
}
