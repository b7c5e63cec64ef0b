/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl.c - NCCL's communicators, emulated, on emulated GPUs of ranks that are threads. */
#include "comm/staged.h"
#include "comm_checks.h"
#include "device/plugin.h"
#include "plugin_path.h"
#include "tap.h"

#include <pthread.h>
#include <unistd.h>

enum { MAX_RANKS = 4 };

struct rank {
    const struct mics_plugin *plugin;
    struct mics_comm *control;
    void (*check)(struct checker *checker);
    bool shares; /* all ranks are on one GPU */
    struct checker checker;
    pthread_t thread;
};

static struct mics_plugin_file *plugin;

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct checker *c = &rank->checker;
    struct mics_device *device = NULL;
    const unsigned gpu = rank->shares ? 0 : (unsigned)rank->control->rank;

    if (rank->plugin->device_open(gpu, &device, NULL) != MICS_OK)
        abort();
    checker_init_on(c, rank->control, device);
    c->max_count = 3001;
    rank->check(c);
    checker_fini(c);
    mics_comm_free(rank->control);
    return NULL;
}

static void run_ranks(int size, bool shares, void (*check)(struct checker *checker))
{
    struct rank ranks[MAX_RANKS] = {0};
    struct mics_comm *controls[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads(size, controls, NULL), MICS_OK);
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){.plugin = mics_plugin_table(plugin),
                                 .control = controls[i],
                                 .check = check,
                                 .shares = shares};
        pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK_STR(ranks[i].checker.why.text, "");
    }
}

/* With communicators of the device, then without them. */
static struct mics_comm *open_comm(struct checker *c)
{
    struct mics_comm *comm = NULL;

    EXPECT(mics_comm_new_for_device(c->world, c->device, &comm, &c->why) == MICS_OK, "not opened");
    return comm;
}

/* All ranks of `comm`: the first communicator itself joins NCCL only when it is used. */
static struct mics_comm *split_all(struct checker *c, struct mics_comm *comm)
{
    struct mics_comm *all = NULL;

    if (comm)
        EXPECT(mics_comm_split(comm, 0, comm->rank, comm->rank, &all, &c->why) == MICS_OK,
               "no split");
    return all;
}

static void check_all(struct checker *c)
{
    struct mics_comm *control = c->world, *comm = open_comm(c);

    if (!comm)
        return;
    c->world = comm;
    EXPECT(!strcmp(comm->backend, "nccl"), "%s", comm->backend);
    check_everything(c);
    EXPECT(comm->health->check(comm, NULL) == MICS_OK, "it reports an error");
    mics_comm_free(comm);
    c->world = control;
}

/* Three ranks suffice for a sanitizer, and two where the calls are the same. */
enum { MOST_RANKS = TAP_SANITIZED ? 3 : MAX_RANKS, SOME_RANKS = TAP_SANITIZED ? 2 : 3 };

static void every_collective_is_right_on_1_to_4_ranks(void)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        run_ranks(size, false, check_all);
}

static void check_refused(struct checker *c)
{
    struct mics_comm *comm = NULL;
    struct mics_err err;

    EXPECT(mics_comm_new_for_device(c->world, c->device, &comm, &err) == MICS_ERR_DEVICE, "opened");
    EXPECT(!strncmp(err.text, "ranks 0 and 1 are on the same GPU, ", 35), "%s", err.text);
}

static void ranks_on_one_GPU_are_refused(void)
{
    run_ranks(2, true, check_refused);
}

/* Rank 0 is in a collective that rank 1 does not enter; both abort, as their watchdogs would. */
static void *end_soon(void *context)
{
    struct mics_comm *comm = context;

    mics_sleep_s(0.1);
    mics_comm_abort(comm, 3);
    return NULL;
}

static void check_abort(struct checker *c)
{
    struct mics_comm *control = c->world, *first = open_comm(c), *comm = split_all(c, first);
    float *data = grab(c, 8, sizeof *data);
    struct mics_err err = {""};
    pthread_t watchdog;

    if (!comm)
        return;
    pthread_create(&watchdog, NULL, end_soon, comm);
    if (control->rank == 0) {
        const double began = mics_now_s();

        mics_comm_all_reduce(comm, c->stream, data, 8, MICS_F32);
        EXPECT(c->device->ops->stream_sync(c->stream, &err) == MICS_ERR_COMM, "no failure");
        EXPECT(!strcmp(err.text, "NCCL: the job is being aborted"), "%s", err.text);
        EXPECT(mics_now_s() - began < 3, "it took %g s", mics_now_s() - began);
    }
    pthread_join(watchdog, NULL);
    mics_comm_all_reduce(comm, c->stream, data, 8, MICS_F32); /* nothing any more */
    mics_comm_free(comm);
    mics_comm_free(first);
    drop(c, data);
}

static void an_abort_frees_a_rank_that_waits_in_a_collective(void)
{
    run_ranks(2, false, check_abort);
}

/* Three in a group, and two separately. */
static void check_groups(struct checker *c)
{
    struct mics_comm *first = open_comm(c), *comm = split_all(c, first);
    float *data = grab(c, 4 * 5, sizeof *data);

    if (!comm)
        return;
    for (int i = 0; i < 5; i++) {
        if (i == 0)
            mics_comm_group_begin(comm);
        mics_comm_all_reduce(comm, c->stream, data + 4 * i, 4, MICS_F32);
        if (i == 2)
            mics_comm_group_end(comm);
    }
    settle(c, "all_reduce");
    EXPECT(comm->counts.calls == 5, "%llu calls", (unsigned long long)comm->counts.calls);
    mics_comm_free(comm);
    mics_comm_free(first);
    drop(c, data);
}

/* How often `line` is in the log of the emulated NCCL. */
static int times_logged(const char *log, const char *line)
{
    FILE *in = fopen(log, "r");
    char text[256];
    int times = 0;

    while (in && fgets(text, sizeof text, in))
        times += strstr(text, line) != NULL;
    if (in)
        fclose(in);
    return times;
}

static void run_logged(int size, void (*check)(struct checker *checker), const char *line,
                       int times)
{
    char log[] = "/tmp/mics-nccl-log-XXXXXX";
    const int fd = mkstemp(log);

    CHECK(fd >= 0);
    close(fd);
    setenv("MICS_EMULATED_NCCL_LOG", log, 1);
    run_ranks(size, false, check);
    unsetenv("MICS_EMULATED_NCCL_LOG");
    CHECK_INT(times_logged(log, line), times);
    unlink(log);
}

/* The communicator that was only split has not joined NCCL. */
static void collectives_of_a_group_are_one_NCCL_group(void)
{
    run_logged(2, check_groups, "of 2: 5 collectives, 1 groups", 2);
    run_logged(2, check_groups, "of 2: ", 2);
}

/* An all-gather in place, in memory of the device from before and from after the communicator
 * joined. */
static void check_memory(struct checker *c)
{
    struct mics_comm *first = open_comm(c), *comm = NULL;
    const uint64_t each = 3 << 18; /* elements: memory of 6 MiB for two ranks */
    void *memory[2] = {NULL};

    if (!first)
        return;
    const size_t bytes = each * 4 * (size_t)first->size;
    for (int i = 0; i < 2; i++) {
        EXPECT(c->device->ops->alloc(c->device, bytes, &memory[i], &c->why) == MICS_OK,
               "no memory");
        if (i == 0)
            comm = split_all(c, first);
    }
    for (int i = 0; i < 2; i++) {
        float *all = memory[i], *own = all + each * (uint64_t)comm->block;

        for (uint64_t k = 0; k < each; k++)
            own[k] = (float)(comm->block + 1);
        mics_comm_all_gather(comm, c->stream, own, all, each, MICS_F32);
        settle(c, "all_gather");
        for (uint64_t k = 0; k < each * (uint64_t)comm->size; k++)
            EXPECT(all[k] == (float)(k / each + 1), "element %llu is %g", (unsigned long long)k,
                   (double)all[k]);
    }
    c->device->ops->release(c->device, memory[0]);
    mics_comm_free(comm);
    mics_comm_free(first);
    c->device->ops->release(c->device, memory[1]);
}

static void memory_is_registered_only_when_asked_for(void)
{
    run_logged(2, check_memory, "of 2: 2 collectives, 0 groups, 0 registered", 2);
    setenv("MICS_NCCL_REGISTER", "0", 1);
    run_logged(2, check_memory, "of 2: 2 collectives, 0 groups, 0 registered", 2);
    setenv("MICS_NCCL_REGISTER", "1", 1);
    run_logged(2, check_memory, "of 2: 2 collectives, 0 groups, 2 registered", 2);
    unsetenv("MICS_NCCL_REGISTER");
}

static void an_NCCL_that_cannot_register_is_used_without(void)
{
    setenv("MICS_EMULATED_NCCL_VERSION", "21805", 1);
    run_logged(2, check_memory, ", 0 registered", 2);
    unsetenv("MICS_EMULATED_NCCL_VERSION");
}

static void every_collective_is_right_in_registered_memory(void)
{
    setenv("MICS_NCCL_REGISTER", "1", 1);
    run_ranks(SOME_RANKS, false, check_all);
    unsetenv("MICS_NCCL_REGISTER");
}

static void check_no_registering(struct checker *c)
{
    struct mics_comm *comm = NULL;
    struct mics_err err;

    EXPECT(mics_comm_new_for_device(c->world, c->device, &comm, &err) == MICS_ERR_UNSUPPORTED,
           "opened");
    EXPECT(strstr(err.text, "MICS_NCCL_REGISTER=1: not possible on rank 0: NCCL is version 2.18.5"),
           "%s", err.text);
}

static void check_nonsense(struct checker *c)
{
    struct mics_comm *comm = NULL;
    struct mics_err err;

    EXPECT(mics_comm_new_for_device(c->world, c->device, &comm, &err) == MICS_ERR_ARG, "opened");
    EXPECT(!strcmp(err.text, "MICS_NCCL_REGISTER: expected 0 or 1"), "%s", err.text);
}

static void unsupported_registration_is_refused(void)
{
    setenv("MICS_NCCL_REGISTER", "1", 1);
    setenv("MICS_EMULATED_NCCL_VERSION", "21805", 1);
    run_ranks(2, false, check_no_registering);
    unsetenv("MICS_EMULATED_NCCL_VERSION");
    setenv("MICS_NCCL_REGISTER", "yes", 1);
    run_ranks(2, false, check_nonsense);
    unsetenv("MICS_NCCL_REGISTER");
}

/* NCCL before 2.26, whose launches an event keeps in order. */
static void an_older_NCCL_is_right_too(void)
{
    setenv("MICS_EMULATED_NCCL_VERSION", "21805", 1);
    run_ranks(SOME_RANKS, false, check_all);
    unsetenv("MICS_EMULATED_NCCL_VERSION");
}

int main(void)
{
    char emulated[4096];
    struct mics_err err;

    in_build("emulated", emulated);
    setenv("MICS_PLUGIN_PATH", emulated, 1);
    unsetenv("MICS_COMM");
    unsetenv("MICS_NCCL_REGISTER");
    unsetenv("NCCL_HOSTID");
    if (mics_plugin_open(&plugin, &err) != MICS_OK) {
        printf("1..0 # SKIP %s\n", err.text);
        return 0;
    }
    TAP_RUN(every_collective_is_right_on_1_to_4_ranks);
    TAP_RUN(ranks_on_one_GPU_are_refused);
    TAP_RUN(an_abort_frees_a_rank_that_waits_in_a_collective);
    TAP_RUN(collectives_of_a_group_are_one_NCCL_group);
    TAP_RUN(an_older_NCCL_is_right_too);
    TAP_RUN(memory_is_registered_only_when_asked_for);
    TAP_RUN(an_NCCL_that_cannot_register_is_used_without);
    TAP_RUN(every_collective_is_right_in_registered_memory);
    TAP_RUN(unsupported_registration_is_refused);
    mics_plugin_close(plugin);
    return tap_done();
}
