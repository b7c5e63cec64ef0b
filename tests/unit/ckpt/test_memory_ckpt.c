/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of state in the memory of nodes: ranks that are threads, nodes that are folders. */
#include "ckpt/memory/memory_saver.h"
#include "ckpt/memory/recover.h"
#include "ckpt_ranks.h"
#include "comm/backend.h"
#include "plan/copies.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODES = 5 };

/* A start of a job: on which nodes (folders) it runs, in its order. */
struct start {
    struct mics_shape shape;
    uint32_t segments, copies;
    uint32_t nodes[NODES]; /* [shape.nodes] */
    struct mics_memory_ckpt_record *record;
    uint64_t steps;    /* kept: record->step + 1 ... */
    uint32_t abort_us; /* one rank ends the job after this time; 0: none does */
    uint64_t seed;     /* of delays */
    bool damages;      /* rank 3 receives one copy with another bit */
    /* Results, of rank 0. */
    bool found;
    uint64_t step;      /* found */
    uint64_t completed; /* kept last */
    uint32_t damaged;
    uint64_t received_bytes, sent_bytes; /* of all ranks */
    uint64_t wrong;
    char why[256];
    char failure[256];
    char cause[256]; /* of rank 3 */
};

struct starter {
    struct start *start;
    struct rank rank;
    pthread_t thread;
};

static void node_folder(const struct start *start, uint32_t node, char *buf)
{
    char root[MICS_PATH_MAX];

    snprintf(root, sizeof root, "%s/node%u", folder, start->nodes[node]);
    mkdir(root, 0700);
    mics_memory_ckpt_folder(root, start->record->id, -1, buf, NULL);
}

static void pause_at(const struct starter *own, uint64_t index)
{
    if (own->start->seed)
        usleep(
            (useconds_t)(mics_philox_u64(own->start->seed, (uint64_t)own->rank.comm->rank, index) %
                         400));
}

static struct mics_manifest make_manifest(const struct rank *rank)
{
    return (struct mics_manifest){
        .step = rank->step,
        .samples = 10 * rank->step,
        .plan = json_pack("{s:s,s:{s:s}}", "kind", "mics.plan", "choice", "optimizer", "adamw"),
        .training = json_object()};
}

static enum mics_status keep_steps(struct starter *own, const struct mics_checkpoint *checkpoint,
                                   const struct mics_memory_saver_options *options, uint64_t from)
{
    struct start *start = own->start;
    struct rank *rank = &own->rank;
    struct mics_memory_saver *saver = NULL;
    struct mics_memory_ckpt kept;
    enum mics_status status = mics_memory_saver_new(checkpoint, options, &saver, &rank->err);

    for (uint64_t i = 1; status == MICS_OK && i <= start->steps; i++) {
        rank->step = from + i;
        struct mics_manifest manifest = make_manifest(rank);

        pause_at(own, 2 * i);
        mics_memory_saver_begin(saver, &manifest, 0.01);
        pause_at(own, 2 * i + 1);
        status = mics_memory_saver_advance(saver, &kept, &rank->err);
        if (status == MICS_OK)
            __atomic_fetch_add(&start->sent_bytes, kept.sent_bytes, __ATOMIC_RELAXED);
        if (status == MICS_OK && rank->comm->rank == 0)
            start->completed = kept.step;
    }
    mics_memory_saver_free(saver);
    return status;
}

static void note_found(struct starter *own, const struct mics_memory_state *state)
{
    struct start *start = own->start;

    if (own->rank.comm->rank == 0) {
        start->found = state->doc != NULL;
        start->step = state->step;
        start->damaged = state->damaged;
        memcpy(start->why, state->why, sizeof start->why);
    }
    __atomic_fetch_add(&start->received_bytes, state->received_bytes, __ATOMIC_RELAXED);
}

static enum mics_status run_start(struct starter *own)
{
    struct start *start = own->start;
    struct rank *rank = &own->rank;
    const uint32_t k = start->shape.per_node, at = (uint32_t)rank->comm->rank;
    const struct mics_memory_ckpt_record record = *start->record;
    char path[MICS_PATH_MAX];
    struct mics_memory_node node = {.folder = path,
                                    .node = at / k,
                                    .node_count = start->shape.nodes,
                                    .local_rank = at % k,
                                    .local_size = k};
    const struct mics_checkpoint checkpoint = {
        .comm = rank->comm, .form = &rank->form, .source = {take, put, rank}};
    struct mics_memory_state state = {.doc = NULL};
    int lock = -1;
    enum mics_status status;

    node_folder(start, at / k, path);
    status = mics_memory_find(rank->comm, &node, &record, &state, &rank->err);
    if (status == MICS_OK && state.doc) {
        rank->step = state.step;
        status = mics_memory_load(&checkpoint, &node, &state, &rank->err);
    }
    note_found(own, &state);
    if (status == MICS_OK)
        status = mics_comm_barrier_now(rank->comm, &rank->err);
    if (status == MICS_OK && at == 0) { /* as the job does: a stamp of its own */
        start->record->from_stamp = state.doc ? state.stamp : 0;
        start->record->from_step = state.doc ? state.step : 0;
        start->record->stamp = record.stamp + 1;
    }
    if (status == MICS_OK)
        status = mics_agree(
            rank->comm, mics_memory_ckpt_folder_open(path, at % k, &lock, &rank->err), &rank->err);
    if (status == MICS_OK && at % k == 0)
        status = mics_memory_ckpt_prune(path, state.stamp, state.step, true, &rank->err);
    if (status == MICS_OK)
        status = mics_comm_barrier_now(rank->comm, &rank->err);
    if (status == MICS_OK) {
        const struct mics_memory_saver_options options = {.folder = path,
                                                          .lead = at % k == 0,
                                                          .copies = start->copies,
                                                          .stamp = record.stamp + 1,
                                                          .generation =
                                                              state.doc ? 1 - state.generation : 0};

        status = keep_steps(own, &checkpoint, &options, state.doc ? state.step : 0);
    }
    if (lock >= 0)
        close(lock);
    mics_memory_state_fini(&state);
    return status;
}

/* The backend of rank 3, which changes a bit of the sixth message: with two rounds of copies, each
 * a header and a shard, that is the first shard of the second step. */
static const struct comm_backend *undamaged_backend;
static struct comm_backend damaging_backend;
static int exchanges;

static enum mics_status execute_damaging(struct comm_base *base, const struct comm_call *calls,
                                         int count, struct comm_sent *sent, struct mics_err *err)
{
    const enum mics_status status = undamaged_backend->execute(base, calls, count, sent, err);

    if (calls->kind == COMM_EXCHANGE && ++exchanges == 6)
        *(char *)calls->recv ^= 1;
    return status;
}

static enum mics_status split_damaging(struct mics_comm *comm, int color, int key, int block,
                                       struct mics_comm **out, struct mics_err *err)
{
    const enum mics_status status = undamaged_backend->split(comm, color, key, block, out, err);

    if (status == MICS_OK)
        ((struct comm_base *)*out)->backend = &damaging_backend;
    return status;
}

static void damage(struct mics_comm *comm)
{
    struct comm_base *base = (struct comm_base *)comm;

    undamaged_backend = base->backend;
    damaging_backend = *undamaged_backend;
    damaging_backend.split = split_damaging;
    damaging_backend.execute = execute_damaging;
    exchanges = 0;
    base->backend = &damaging_backend;
}

static void *start_main(void *context)
{
    struct starter *own = context;

    own->rank.status = run_start(own);
    return NULL;
}

/* Run a start: find and load what is there, then keep some steps. */
static void go(struct start *start)
{
    const uint32_t count = start->shape.nodes * start->shape.per_node;
    struct starter ranks[MAX_RANKS] = {{.start = start}};
    struct mics_comm *comms[MAX_RANKS];

    start->found = false;
    start->step = start->completed = start->wrong = 0;
    start->received_bytes = start->sent_bytes = 0;
    start->failure[0] = 0;
    CHECK_INT(mics_comm_new_threads((int)count, comms, NULL), MICS_OK);
    if (start->damages)
        damage(comms[3]);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i].start = start;
        ranks[i].rank = (struct rank){.comm = comms[i]};
        make_rank(&ranks[i].rank, start->shape, start->segments);
        pthread_create(&ranks[i].thread, NULL, start_main, &ranks[i]);
    }
    if (start->abort_us) {
        usleep(start->abort_us);
        mics_comm_abort(comms[0], 9);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(ranks[i].thread, NULL);
        start->wrong += ranks[i].rank.wrong;
        if (ranks[i].rank.status != MICS_OK && !start->failure[0])
            snprintf(start->failure, sizeof start->failure, "%.255s", ranks[i].rank.err.text);
        if (i == 3)
            snprintf(start->cause, sizeof start->cause, "%.255s", ranks[i].rank.err.text);
    }
    for (uint32_t i = 0; i < count; i++)
        mics_comm_free(comms[i]);
}

/* The memory of a node is gone. */
static void lose(uint32_t node)
{
    char path[MICS_PATH_MAX];

    snprintf(path, sizeof path, "%s/node%u", folder, node);
    mics_file_remove_tree(path, NULL);
}

static void lose_all(void)
{
    for (uint32_t i = 0; i < NODES; i++)
        lose(i);
}

static struct mics_memory_ckpt_record new_record(void)
{
    return (struct mics_memory_ckpt_record){.id = mics_memory_ckpt_random(), .stamp = 1};
}

static const struct mics_shape zero3 = {4, 2, 8, 8, 8}, half = {4, 2, 4, 4, 4},
                               pair = {4, 2, 2, 2, 2}, other = {3, 2, 6, 6, 6},
                               single = {1, 2, 2, 2, 2};

static void every_node_can_be_lost_and_a_spare_takes_its_place(void)
{
    const struct mics_shape shapes[] = {zero3, half, pair};

    for (size_t s = 0; s < 3; s++)
        for (uint32_t lost = 0; lost < 4; lost++) {
            struct mics_memory_ckpt_record record = new_record();
            struct start start = {.shape = shapes[s],
                                  .segments = 2,
                                  .copies = 2,
                                  .nodes = {0, 1, 2, 3},
                                  .record = &record,
                                  .steps = 3};

            if (tap_leaves_out(5))
                continue;
            go(&start);
            CHECK_STR(start.failure, "");
            CHECK_INT(start.completed, 3);
            CHECK(s == 0 ? start.sent_bytes > 0 : start.sent_bytes == 0);
            lose(lost);
            start.nodes[lost] = 4;
            go(&start);
            CHECK_STR(start.failure, "");
            CHECK(start.found);
            CHECK_INT(start.step, 3);
            CHECK_INT(start.completed, 6);
            CHECK_INT(start.wrong, 0);
            CHECK(start.received_bytes > 0);
            lose_all();
        }
}

static void a_copy_damaged_on_its_way_fails_its_step_on_all_ranks_and_the_one_before_is_found(void)
{
    struct mics_memory_ckpt_record record = new_record();
    struct start start = {.shape = zero3,
                          .segments = 2,
                          .copies = 3,
                          .nodes = {0, 1, 2, 3},
                          .record = &record,
                          .steps = 4,
                          .damages = true};

    go(&start);
    CHECK_INT(exchanges, 8); /* no rank leaves the rounds */
    CHECK(strstr(start.cause, "the copy of shard ") &&
          strstr(start.cause, " was damaged on its way"));
    CHECK_INT(start.completed, 1);
    start.damages = false;
    lose(1);
    start.nodes[1] = 4;
    go(&start);
    CHECK_STR(start.failure, "");
    CHECK(start.found);
    CHECK_INT(start.step, 1);
    CHECK_INT(start.completed, 5);
    CHECK_INT(start.wrong, 0);
    lose_all();
}

static void any_shape_can_continue(void)
{
    const struct mics_shape shapes[] = {zero3, half, pair, other, single};

    for (size_t from = 0; from < 3; from++)
        for (size_t to = 0; to < 5; to++) {
            struct mics_memory_ckpt_record record = new_record();
            struct start start = {.shape = shapes[from],
                                  .segments = 1,
                                  .copies = 2,
                                  .nodes = {0, 1, 2, 3},
                                  .record = &record,
                                  .steps = 2};

            if (tap_leaves_out(3))
                continue;
            go(&start);
            start.shape = shapes[to];
            start.segments = 3;
            if (shapes[to].nodes == 3) { /* the first is lost */
                lose(0);
                start.nodes[0] = 3;
            }
            if (shapes[to].nodes == 1 && shapes[from].p_optim > 2) {
                lose_all();
                continue; /* one node does not have all of it */
            }
            go(&start);
            CHECK_STR(start.failure, "");
            CHECK(start.found);
            CHECK_INT(start.step, 2);
            CHECK_INT(start.wrong, 0);
            lose_all();
        }
}

static void units_of_two_shapes_are_kept_and_continued_by_any_pair(void)
{
    const struct mics_shape pairs[][2] = {
        {zero3, pair}, {pair, zero3}, {half, zero3}, {zero3, zero3}};

    for (size_t from = 0; from < 3; from++)
        for (size_t to = 0; to < 4; to++)
            for (uint32_t lost = 0; lost < 4; lost += 3) {
                struct mics_memory_ckpt_record record = new_record();
                struct start start = {.shape = pairs[from][0],
                                      .segments = 2,
                                      .copies = 2,
                                      .nodes = {0, 1, 2, 3},
                                      .record = &record,
                                      .steps = 3};

                if (tap_leaves_out(5))
                    continue;
                set_experts(pairs[from][1]);
                go(&start);
                CHECK_STR(start.failure, "");
                CHECK_INT(start.completed, 3);
                CHECK(start.sent_bytes > 0);
                lose(lost);
                start.nodes[lost] = 4;
                start.shape = pairs[to][0];
                start.segments = 1;
                set_experts(pairs[to][1]);
                go(&start);
                CHECK_STR(start.failure, "");
                CHECK(start.found);
                CHECK_INT(start.step, 3);
                CHECK_INT(start.completed, 6);
                CHECK_INT(start.wrong, 0);
                lose_all();
            }
    set_experts((struct mics_shape){0});
}

static void more_lost_nodes_than_copies_are_told(void)
{
    struct mics_memory_ckpt_record record = new_record();
    struct start start = {.shape = zero3,
                          .segments = 1,
                          .copies = 2,
                          .nodes = {0, 1, 2, 3},
                          .record = &record,
                          .steps = 1};

    go(&start);
    lose(1);
    lose(2);
    go(&start);
    CHECK(!start.found);
    CHECK(strstr(start.why, "of step 1 is in the memory of no node of this job") != NULL);
    lose_all();
    start.copies = 3;
    record = new_record();
    go(&start);
    lose(1);
    lose(2);
    go(&start);
    CHECK(start.found);
    CHECK_INT(start.wrong, 0);
    lose_all();
}

/* Flip one bit of a file of a node; false: there is none with this beginning. Incomplete shards,
 * whose headers begin with zeros, are left alone. */
static bool flip(const struct start *start, uint32_t node, const char *begin, uint64_t bit)
{
    char path[MICS_PATH_MAX], name[2 * MICS_PATH_MAX];
    const struct dirent *item;
    bool flipped = false;
    unsigned char byte;

    node_folder(start, node, path);
    DIR *dir = opendir(path);
    while (dir && !flipped && (item = readdir(dir)) != NULL) {
        if (strncmp(item->d_name, begin, strlen(begin)) != 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, item->d_name);
        const int fd = open(name, O_RDWR);
        struct stat info;
        const bool is_shard = begin[0] == 's';

        fstat(fd, &info);
        if (pread(fd, &byte, 1, 0) != 1 || byte == 0) {
            close(fd);
            continue;
        }
        /* Beyond the header its page is not used. */
        const uint64_t used =
            is_shard ? sizeof(struct mics_memory_ckpt_header) : (uint64_t)info.st_size;
        const uint64_t data = is_shard ? (uint64_t)info.st_size - MICS_MEMORY_CKPT_DATA : 0;
        const uint64_t at = bit / 8 % (used + data);
        const off_t offset = (off_t)(at < used ? at : at - used + MICS_MEMORY_CKPT_DATA);

        flipped = pread(fd, &byte, 1, offset) == 1;
        byte ^= (unsigned char)(1 << bit % 8);
        flipped = flipped && pwrite(fd, &byte, 1, offset) == 1;
        close(fd);
    }
    if (dir)
        closedir(dir);
    return flipped;
}

static void a_flipped_bit_is_noticed_and_the_other_copy_taken(void)
{
    const uint32_t flips = TAP_SANITIZED ? 20 : 100;
    uint32_t noticed = 0;

    for (uint64_t i = 0; i < flips; i++) {
        struct mics_memory_ckpt_record record = new_record();
        struct start start = {.shape = zero3,
                              .segments = 1,
                              .copies = 2,
                              .nodes = {0, 1, 2, 3},
                              .record = &record,
                              .steps = 1};

        go(&start);
        /* All 16 header bits and more are hit in turn, and all of the data at random. */
        const uint64_t bit = i % 4 == 0 ? i * 8 : mics_philox_u64(5, 0, i);
        CHECK(flip(&start, (uint32_t)(i % 4), i % 10 >= 8 ? "manifest" : "shard", bit));
        start.steps = 0;
        go(&start);
        CHECK(start.found);
        CHECK_INT(start.wrong, 0);
        CHECK_INT(start.step, 1);
        CHECK_INT(start.damaged, 1);
        noticed += start.damaged == 1;
        lose_all();
    }
    printf("# %u of %u noticed\n", noticed, flips);
}

static void damage_of_all_copies_is_told(void)
{
    struct mics_memory_ckpt_record record = new_record();
    struct start start = {
        .shape = single, .segments = 1, .copies = 2, .nodes = {0}, .record = &record, .steps = 2};

    go(&start);
    CHECK(flip(&start, 0, "shard-00001-of-00002.1", 8 * 4096));
    start.steps = 0;
    go(&start);
    CHECK(start.found); /* the generation before */
    CHECK_INT(start.step, 1);
    CHECK_INT(start.damaged, 1);
    CHECK_STR(start.why, "shard 1 of step 2 is damaged in memory");
    lose_all();
}

static void damage_of_all_manifests_is_told(void)
{
    struct mics_memory_ckpt_record record = new_record();
    struct start start = {
        .shape = half, .segments = 1, .copies = 2, .nodes = {0, 1, 2, 3}, .record = &record};

    start.steps = 1;
    go(&start);
    for (uint32_t node = 0; node < 4; node++)
        CHECK(flip(&start, node, "manifest", 777));
    start.steps = 0;
    go(&start);
    CHECK(!start.found);
    CHECK_INT(start.damaged, 4);
    CHECK_STR(start.why, "the manifest of step 1 is damaged in memory");
    lose_all();
}

static void state_of_another_run_or_an_older_start_is_not_taken(void)
{
    struct mics_memory_ckpt_record record = new_record(), theirs;
    struct start start = {.shape = half,
                          .segments = 1,
                          .copies = 2,
                          .nodes = {0, 1, 2, 3},
                          .record = &record,
                          .steps = 3};

    go(&start);
    theirs = record;
    theirs.id++;
    start.record = &theirs;
    start.steps = 0;
    go(&start);
    CHECK(!start.found);
    CHECK_STR(start.why, "the nodes of this job have no state in memory");
    theirs = record;
    theirs.stamp += 7; /* another start since */
    theirs.from_stamp = record.stamp;
    theirs.from_step = 2; /* which continued an older generation */
    start.record = &theirs;
    go(&start);
    CHECK(start.found);
    CHECK_INT(start.step, 2);
    lose_all();
}

static void a_record_belongs_to_its_folder(void)
{
    struct mics_memory_ckpt_record record = new_record(), read;
    char a[MICS_PATH_MAX], b[MICS_PATH_MAX], command[3 * MICS_PATH_MAX];
    bool found = false;

    in_folder(a, "a");
    in_folder(b, "b");
    CHECK(mkdir(a, 0777) == 0);
    record.step = 30;
    CHECK_INT(mics_memory_ckpt_record_write(a, &record, NULL), MICS_OK);
    CHECK_INT(mics_memory_ckpt_record_read(a, &read, &found, NULL), MICS_OK);
    CHECK(found && memcmp(&read, &record, sizeof read) == 0);
    snprintf(command, sizeof command, "cp -r %s %s", a, b);
    CHECK(system(command) == 0);
    CHECK_INT(mics_memory_ckpt_record_read(b, &read, &found, NULL), MICS_OK);
    CHECK(!found);
    mics_memory_ckpt_record_remove(a);
    CHECK_INT(mics_memory_ckpt_record_read(a, &read, &found, NULL), MICS_OK);
    CHECK(!found);
}

static void files_that_others_can_write_are_not_taken(void)
{
    struct mics_memory_ckpt_record record = new_record();
    struct start start = {
        .shape = single, .segments = 1, .copies = 1, .nodes = {0}, .record = &record, .steps = 1};
    char path[MICS_PATH_MAX];

    go(&start);
    node_folder(&start, 0, path);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0700);
    chmod(path, 0777);
    start.steps = 0;
    go(&start);
    CHECK(!start.found);
    CHECK(strstr(start.failure, "is not a folder of this user alone") != NULL);
    lose_all();
}

/* Starts follow one another, each ended at a random moment; nodes are lost at random, or were away
 * and come back with what they had. What is found is never wrong, and never older than the last
 * generation that was complete unless more nodes were lost than may be. */
static void any_order_of_events(void)
{
    uint32_t found = 0, starts = 0, aborted = 0;

    for (uint64_t seed = 1; seed <= (TAP_SANITIZED ? 15 : 60); seed++) {
        struct mics_memory_ckpt_record record = new_record();
        const struct mics_shape shapes[] = {zero3, half, pair, other};
        uint64_t newest = 0;

        for (uint64_t i = 0; i < 4; i++) {
            uint64_t word = mics_philox_u64(seed, 1, i);
            struct start start = {.shape = shapes[word % 4],
                                  .segments = 1 + word / 4 % 2,
                                  .copies = 2 + word / 8 % 2,
                                  .record = &record,
                                  .steps = 1 + word / 16 % 4,
                                  .seed = word | 1,
                                  .abort_us = word / 64 % 2 ? 500 + word / 128 % 30000 : 0};
            const uint32_t lost = (uint32_t)(word / 8192 % NODES);
            const bool loses = i > 0 && word / 65536 % 2;

            for (uint32_t n = 0; n < NODES; n++) /* the one lost is the spare */
                start.nodes[n] = (n + lost + 1) % NODES;
            if (loses)
                lose(lost);
            go(&start);
            starts++;
            aborted += start.failure[0] != 0;
            CHECK_INT(start.wrong, 0);
            if (start.found) {
                found++;
                CHECK(start.step >= newest || loses || start.shape.nodes < 4);
            }
            newest = start.completed ? start.completed : start.step;
        }
        lose_all();
    }
    printf("# %u starts, %u aborted, %u continued from memory\n", starts, aborted, found);
    CHECK(found > starts / 12 && aborted > starts / 12);
}

static void copies_are_on_distinct_nodes(void)
{
    for (uint32_t nodes = 1; nodes <= 8; nodes++)
        for (uint32_t k = 1; k <= 4; k *= 2)
            for (uint32_t p = 1; p <= nodes * k; p++)
                for (uint32_t wanted = 1; wanted <= 4; wanted++) {
                    const struct mics_shape shape = {nodes, k, 1, 1, p};
                    uint32_t kept = 0, holders[32] = {0}; /* bits of nodes, by shard */

                    if (mics_shape_check(&shape, NULL) != MICS_OK)
                        continue;
                    const struct mics_copies copies = mics_copies_make(&shape, wanted);
                    for (uint32_t rank = 0; rank < nodes * k; rank++) {
                        const uint32_t shard = mics_shape_index(&shape, rank).optim;

                        if (mics_copies_keeps_own(&copies, rank)) {
                            CHECK(!(holders[shard] & 1u << rank / k));
                            holders[shard] |= 1u << rank / k;
                        }
                    }
                    for (uint32_t rank = 0; rank < nodes * k; rank++)
                        for (uint32_t r = 0; r < copies.rounds; r++) {
                            const int64_t to = mics_copies_target(&copies, rank, r);
                            const uint32_t shard = mics_shape_index(&shape, rank).optim;

                            if (to < 0)
                                continue;
                            CHECK(!(holders[shard] & 1u << to / k));
                            CHECK_INT(mics_copies_source(&copies, (uint32_t)to, r), rank);
                            holders[shard] |= 1u << to / k;
                        }
                    for (uint32_t shard = 0; shard < p; shard++) {
                        CHECK(holders[shard] != 0);
                        CHECK_INT(__builtin_popcount(holders[shard]),
                                  mics_copies_nodes_to_lose(&copies) + 1);
                        kept += (uint32_t)__builtin_popcount(holders[shard]);
                    }
                    CHECK(mics_copies_per_node(&copies) * nodes >= kept);
                    CHECK(mics_copies_nodes_to_lose(&copies) + 1 >=
                          (wanted < nodes ? wanted : nodes));
                }
}

int main(void)
{
    begin_ckpt();
    TAP_RUN(copies_are_on_distinct_nodes);
    TAP_RUN(every_node_can_be_lost_and_a_spare_takes_its_place);
    TAP_RUN(a_copy_damaged_on_its_way_fails_its_step_on_all_ranks_and_the_one_before_is_found);
    TAP_RUN(any_shape_can_continue);
    TAP_RUN(units_of_two_shapes_are_kept_and_continued_by_any_pair);
    TAP_RUN(more_lost_nodes_than_copies_are_told);
    TAP_RUN(a_flipped_bit_is_noticed_and_the_other_copy_taken);
    TAP_RUN(damage_of_all_copies_is_told);
    TAP_RUN(damage_of_all_manifests_is_told);
    TAP_RUN(state_of_another_run_or_an_older_start_is_not_taken);
    TAP_RUN(a_record_belongs_to_its_folder);
    TAP_RUN(files_that_others_can_write_are_not_taken);
    TAP_RUN(any_order_of_events);
    return end_ckpt();
}
