/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_comm.c - the checks of communicators over MPI; run under mpirun by tests/cli/comm_mpi.bats.
 *
 * usage: mpi_comm check | staged | gpu BACKEND | gpu-fault | gpu-join | delays | threads |
 * one-thread | yield | routes | copies | death | tuned | abort | fault [all_to_all] |
 * wait SECONDS | bench | world
 */
#include "comm/mpi/mpi.h"
#include "comm/staged.h"
#include "comm/world.h"
#include "comm_checks.h"
#include "device/plugin.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#if MICS_HAVE_MPI
#include <mpi.h>
#endif

/* Rank 0 prints the first error of every rank. */
static int report(struct checker *c)
{
    const int size = c->world->size;
    struct mics_err *all = calloc((size_t)size, sizeof *all);
    int bad = 0;

    mics_comm_all_gather_now(c->world, &c->why, all, sizeof *all, NULL);
    for (int i = 0; i < size; i++) {
        bad += all[i].text[0] != 0;
        if (c->world->rank == 0 && all[i].text[0])
            printf("%s\n", all[i].text);
    }
    if (c->world->rank == 0 && !bad)
        printf("all well on %d ranks\n", size);
    free(all);
    return bad != 0;
}

/* With RANKS_OF_NODE=k in the environment, each k ranks are a node. */
static const char *const ranks_of_node = "RANKS_OF_NODE";

/* The blocks of an all_to_all for ranks on other nodes are counted as such, whatever their size. */
static void check_net_bytes(struct checker *c)
{
    struct mics_comm *world = c->world;
    const uint64_t counts[] = {1, 1001, 100003};
    int nodes[64] = {0};
    uint64_t outside = 0;

    mics_comm_all_gather_now(world, &world->node, nodes, sizeof world->node, NULL);
    for (int rank = 0; rank < world->size; rank++)
        outside += nodes[rank] != world->node;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const uint64_t before = world->counts.net_bytes;

        check_all_to_all(c, world, counts[i], MICS_F32);
        EXPECT(world->counts.net_bytes - before == outside * counts[i] * sizeof(float),
               "all_to_all of %llu: %llu bytes left the node", (unsigned long long)counts[i],
               (unsigned long long)(world->counts.net_bytes - before));
    }
}

static int check(struct checker *c)
{
    c->max_count = 600011; /* several segments of the ring and of the chain */
    check_everything(c);
    check_net_bytes(c);
    return report(c);
}

/* The same through staging memory, in several rounds. */
static int check_staged(struct checker *c)
{
    struct mics_comm *world = c->world, *host = NULL;

    EXPECT(mics_comm_split(world, 0, world->rank, world->rank, &host, NULL) == MICS_OK, "split");
    EXPECT(mics_comm_new_staged(host, c->device, &c->world, NULL) == MICS_OK, "no staging");
    c->max_count = 1049000;
    check_everything(c);
    mics_comm_free(c->world);
    c->world = world;
    return report(c);
}

static void check_backend(struct checker *c, const char *backend)
{
    EXPECT(!strcmp(c->world->backend, backend), "backend %s", c->world->backend);
}

static enum mics_status open_gpu(const struct mics_comm *world, struct mics_plugin_file **plugin,
                                 struct mics_device **device, struct mics_err *err)
{
    enum mics_status status = mics_plugin_open(plugin, err);
    unsigned gpus = 0;

    if (status == MICS_OK)
        status = mics_plugin_table(*plugin)->gpu_count(&gpus, err);
    if (status == MICS_OK)
        status = mics_plugin_table(*plugin)->device_open((unsigned)world->rank % gpus, device, err);
    return status;
}

/* On GPUs: everything (the backend is as expected), or only what fails: a collective, beside its
 * stream. */
static int check_gpu(struct mics_comm *world, const char *backend, int (*then)(struct checker *c))
{
    struct mics_plugin_file *plugin = NULL;
    struct mics_device *device;
    struct checker c;
    struct mics_err err;
    int code = 1;

    if (open_gpu(world, &plugin, &device, &err) != MICS_OK) {
        fprintf(stderr, "mpi_comm: %s\n", err.text);
        mics_plugin_close(plugin);
        return 1;
    }
    checker_init_on(&c, world, device);
    if (mics_comm_new_for_device(world, device, &c.world, &err) == MICS_OK) {
        check_backend(&c, backend);
        code = then(&c);
        mics_comm_free(c.world);
        c.world = world;
        code |= report(&c);
    } else {
        printf("rank %d: %s\n", world->rank, err.text);
    }
    checker_fini(&c);
    mics_plugin_close(plugin);
    return code;
}

static int gpu_does_everything(struct checker *c)
{
    c->max_count = 600011;
    check_everything(c);
    return 0;
}

/* The watchdog's part: the stream may hang for ever. */
static void *watch_gpu(void *context)
{
    struct mics_comm *comm = context;
    struct mics_err err;

    while (comm->health->check(comm, &err) == MICS_OK)
        mics_sleep_s(0.05);
    printf("rank %d: %s\n", comm->rank, err.text);
    fflush(stdout);
    mics_comm_abort(comm, 9);
    return NULL;
}

/* The first collective of the first communicator, which joins NCCL for it. */
static int gpu_joins(struct checker *c)
{
    struct mics_err err;

    mics_comm_barrier(c->world, c->stream);
    if (c->device->ops->stream_sync(c->stream, &err) == MICS_OK)
        return 0;
    printf("rank %d: %s\n", c->world->rank, err.text);
    return 1;
}

static int gpu_hangs(struct checker *c)
{
    float *data = grab(c, 4, sizeof *data);
    pthread_t watcher;

    pthread_create(&watcher, NULL, watch_gpu, c->world);
    for (int i = 0; i < 5; i++)
        mics_comm_all_reduce(c->world, c->stream, data, 4, MICS_F32);
    settle(c, "all_reduce");
    printf("rank %d: %s\n", c->world->rank, c->why.text); /* the watcher ends this */
    mics_sleep_s(30);
    return 0;
}

static int check_delays(struct checker *c)
{
    c->max_count = 150001;
    c->delays = true;
    check_collectives_of(c, c->world);
    check_two_at_once(c);
    return report(c);
}

#if MICS_HAVE_MPI
/* In MPI's place, by its profiling interface. */
static bool is_funneled; /* MPI allows calls of the thread that initialised it only */
static pthread_t mpi_thread;
static atomic_int callers;
static atomic_bool line_is_down, is_misused;

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const int code = PMPI_Init_thread(argc, argv, required, provided);

    mpi_thread = pthread_self();
    if (is_funneled)
        *provided = MPI_THREAD_FUNNELED;
    return code;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    const char *text = getenv(ranks_of_node);
    int rank;

    if (!text)
        return PMPI_Comm_split_type(comm, type, key, info, out);
    PMPI_Comm_rank(comm, &rank);
    return PMPI_Comm_split(comm, rank / atoi(text), key, out);
}

static void enter_mpi(void)
{
    if (atomic_fetch_add(&callers, 1) > 0 ||
        (is_funneled && !pthread_equal(pthread_self(), mpi_thread)))
        atomic_store(&is_misused, true);
}

static int leave_mpi(int code)
{
    atomic_fetch_sub(&callers, 1);
    return code;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (atomic_load(&line_is_down))
        return MPI_ERR_OTHER;
    enter_mpi();
    return leave_mpi(PMPI_Isend(data, count, type, to, tag, comm, request));
}

int MPI_Issend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    if (atomic_load(&line_is_down))
        return MPI_ERR_OTHER;
    enter_mpi();
    return leave_mpi(PMPI_Issend(data, count, type, to, tag, comm, request));
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    enter_mpi();
    return leave_mpi(PMPI_Test(request, done, status));
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *found, MPI_Status *status)
{
    enter_mpi();
    return leave_mpi(PMPI_Iprobe(from, tag, comm, found, status));
}

enum { THREADS = 4, ROUNDS = 150 };

/* A thread and its communicator. */
struct caller {
    struct mics_comm *comm;
    int index, wrong;
};

/* Gathers of 8 bytes to 200 KB, with pauses in which other threads wait alone. */
static void *gather_in_turn(void *context)
{
    struct caller *caller = context;
    const int size = caller->comm->size, rank = caller->comm->rank;
    const size_t longest = 25000;
    uint64_t *send = calloc(longest, sizeof *send);
    uint64_t *recv = calloc(longest * (size_t)size, sizeof *recv);

    for (int round = 0; round < ROUNDS; round++) {
        const size_t count = round % 10 == caller->index ? longest : 1 + (size_t)round * 7 % 600;

        for (size_t i = 0; i < count; i++)
            send[i] = (uint64_t)(rank * 1000003 + round * 101 + caller->index) + i;
        if (round % 13 == caller->index * 3 + rank % 2)
            mics_sleep_s(0.002);
        if (mics_comm_all_gather_now(caller->comm, send, recv, count * sizeof *send, NULL) !=
            MICS_OK)
            caller->wrong++;
        for (int from = 0; from < size; from++)
            for (size_t i = 0; i < count; i++)
                caller->wrong += recv[(size_t)from * count + i] !=
                                 (uint64_t)(from * 1000003 + round * 101 + caller->index) + i;
    }
    free(send);
    free(recv);
    return NULL;
}

/* Threads that wait for collectives of their own hand MPI over to each other. */
static int check_threads(struct checker *c)
{
    struct caller callers_of[THREADS] = {0};
    pthread_t threads[THREADS];

    setenv("MICS_NODE_COPY", "0", 1);
    for (int i = 0; i < THREADS; i++) {
        callers_of[i].index = i;
        EXPECT(mics_comm_split(c->world, 0, c->world->rank, c->world->rank, &callers_of[i].comm,
                               NULL) == MICS_OK,
               "split");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, gather_in_turn, &callers_of[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(callers_of[i].wrong == 0, "thread %d: %d wrong", i, callers_of[i].wrong);
        mics_comm_free(callers_of[i].comm);
    }
    EXPECT(!atomic_load(&is_misused), "two threads called MPI at once, or the wrong one");
    return report(c);
}
#else
static bool is_funneled;

static int check_threads(struct checker *c)
{
    (void)c;
    return 2;
}
#endif

/* While ranks of the node wait in a gather for the last rank, an exchange takes the time that it
 * may; and it does not wait for the end of the gather. */
static int check_yielding(struct checker *c)
{
    const uint64_t count = 1 << 20;
    const int size = c->world->size, rank = c->world->rank;
    const double within_s = 0.4;
    struct mics_comm *gathers = NULL, *exchanges = NULL;
    float *all = grab(c, count * (uint64_t)size, sizeof *all);
    float *send = grab(c, count, sizeof *send), *recv = grab(c, count, sizeof *recv);

    setenv("MICS_NODE_COPY", "0", 1);
    EXPECT(mics_comm_split(c->world, 0, rank, rank, &gathers, NULL) == MICS_OK, "split");
    EXPECT(mics_comm_split(c->world, 0, rank, rank, &exchanges, NULL) == MICS_OK, "split");
    if (rank < size - 1) {
        mics_comm_all_gather(gathers, c->stream, all + (uint64_t)rank * count, all, count,
                             MICS_F32);
        mics_sleep_s(0.1);
    }

    const double begin_s = mics_now_s();
    EXPECT(mics_comm_sendrecv_now(exchanges, send, count * sizeof *send, (rank + 1) % size, recv,
                                  count * sizeof *recv, (rank + size - 1) % size, within_s,
                                  NULL) == MICS_OK,
           "sendrecv_now failed");
    EXPECT(rank == size - 1 || mics_now_s() - begin_s > 0.75 * within_s, "it gave way for %g s",
           mics_now_s() - begin_s);
    if (rank == size - 1)
        mics_comm_all_gather(gathers, c->stream, all + (uint64_t)rank * count, all, count,
                             MICS_F32);
    settle(c, "all_gather");
    mics_comm_free(gathers);
    mics_comm_free(exchanges);
    drop(c, all);
    drop(c, send);
    drop(c, recv);
    return report(c);
}

/* Sums that round, of every kind, into `out` [3 * count * size]: what a route gives, bit for
 * bit. */
static void sums_of_route(struct checker *c, struct mics_comm *comm, uint64_t short_bytes,
                          uint64_t count, float *out)
{
    const uint64_t total = count * (uint64_t)comm->size;
    float *scattered = out, *own = out + total + (uint64_t)comm->block * count,
          *all = out + 2 * total;

    mics_mpi_set_direct_limits(comm, (struct mpi_direct_limits){short_bytes, short_bytes});
    for (uint64_t i = 0; i < 3 * total; i++)
        out[i] = 1.0f / (float)(1 + i % total * 7 + (uint64_t)comm->rank * 13);
    mics_comm_reduce_scatter(comm, c->stream, out + total, scattered, count, MICS_F32);
    settle(c, "reduce_scatter");
    memcpy(own, scattered, count * sizeof *own);
    mics_comm_all_gather(comm, c->stream, own, out + total, count, MICS_F32);
    mics_comm_all_reduce(comm, c->stream, all, total, MICS_F32);
    settle(c, "all_reduce");
    memset(scattered + count, 0, (total - count) * sizeof *scattered);
}

/* `copies`: the same ranks and blocks, without messages where they may copy. */
static void compare_routes(struct checker *c, struct mics_comm *comm, struct mics_comm *copies,
                           uint64_t count)
{
    const size_t bytes = 3 * count * (size_t)comm->size * sizeof(float);
    float *ring = malloc(bytes), *other = malloc(bytes);

    sums_of_route(c, comm, 0, count, ring);
    sums_of_route(c, comm, UINT64_MAX, count, other);
    EXPECT(memcmp(ring, other, bytes) == 0, "%d ranks: the routes give other bits for %llu each",
           comm->size, (unsigned long long)count);
    sums_of_route(c, copies, 0, count, other);
    EXPECT(memcmp(ring, other, bytes) == 0, "%d ranks: copies give other bits for %llu each",
           comm->size, (unsigned long long)count);
    free(ring);
    free(other);
}

/* Another order and other blocks than the world's. */
static struct mics_comm *reorder(struct checker *c, const char *node_copy)
{
    const int size = c->world->size, rank = c->world->rank;
    struct mics_comm *comm;

    setenv("MICS_NODE_COPY", node_copy, 1);
    EXPECT(mics_comm_split(c->world, 0, -rank, (rank * (size - 1) + 1) % size, &comm, NULL) ==
               MICS_OK,
           "split");
    return comm;
}

/* Short data of a power of two of ranks are summed in pairs, then in pairs of pairs, by every
 * route. */
static void check_pairs(struct checker *c, struct mics_comm *comm, uint64_t count)
{
    const int size = comm->size;
    float *sums = malloc((size_t)size * sizeof *sums), *data = grab(c, count, sizeof *data);

    for (int rank = 0; rank < size; rank++)
        sums[rank] = 1.0f / (float)(3 + 7 * rank * rank);
    for (uint64_t i = 0; i < count; i++)
        data[i] = sums[comm->rank] / (float)(1 + i);
    mics_comm_all_reduce(comm, c->stream, data, count, MICS_F32);
    settle(c, "all_reduce");
    for (uint64_t i = 0; i < count; i++) {
        for (int rank = 0; rank < size; rank++)
            sums[rank] = 1.0f / (float)(3 + 7 * rank * rank) / (float)(1 + i);
        for (int distance = 1; distance < size; distance *= 2)
            for (int rank = 0; rank < size; rank += 2 * distance)
                sums[rank] += sums[rank + distance];
        EXPECT(data[i] == sums[0], "%d ranks: element %llu of %llu is not summed in pairs", size,
               (unsigned long long)i, (unsigned long long)count);
    }
    drop(c, data);
    free(sums);
}

/* Every route gives the same result and counts. */
static int check_routes(struct checker *c)
{
    static const uint64_t limits[] = {0, 300, UINT64_MAX};
    struct mics_comm *comm = reorder(c, "0"), *copies = reorder(c, "1");

    c->max_count = 60011;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        mics_mpi_set_direct_limits(comm, (struct mpi_direct_limits){limits[i], limits[i]});
        check_collectives_of(c, comm);
    }
    check_collectives_of(c, copies);
    for (uint64_t count = 129; count <= 8192 && mics_comm_short_bytes(c->world->size) > 0;
         count *= 3) {
        check_pairs(c, comm, count);
        check_pairs(c, copies, count);
    }
    for (uint64_t count = 1; count <= 5 * c->max_count; count = count * 4 + 1)
        compare_routes(c, comm, copies, count);
    EXPECT(mics_mpi_direct_limits(comm).gather_bytes * (uint64_t)c->world->size <=
               MICS_COMM_STAGING_BYTES,
           "longer than the staging memory");
    mics_comm_free(copies);
    mics_comm_free(comm);
    return report(c);
}

/* Does the world copy from process to process? */
static int show_copies(struct checker *c)
{
    const struct mpi_comm *world = (const struct mpi_comm *)c->world;

    if (c->world->rank == 0)
        puts(world->node ? "copies" : "messages");
    return 0;
}

/* All ranks must have the same limits of the direct algorithm. */
static int check_tuned(struct checker *c)
{
    const struct mpi_direct_limits mine = mics_mpi_direct_limits(c->world);
    struct mpi_direct_limits all[64];

    mics_comm_all_gather_now(c->world, &mine, all, sizeof mine, NULL);
    for (int i = 0; i < c->world->size; i++)
        EXPECT(memcmp(&all[i], &mine, sizeof mine) == 0, "rank %d would take another route", i);
    EXPECT(c->world->size > 2 || mine.gather_bytes + mine.reduce_bytes == 0,
           "two ranks are one hop");
    return report(c);
}

/* Rank 1 ends the job while the others wait for it, and prints when. */
static int abort_job(struct checker *c)
{
    float data[4] = {0};

    if (c->world->rank == 1) {
        mics_sleep_s(0.3);
        printf("aborted at %lld\n", (long long)time(NULL));
        fflush(stdout);
        mics_comm_abort(c->world, 7);
    }
    mics_comm_all_reduce(c->world, c->stream, data, 4, MICS_F32);
    settle(c, "all_reduce");
    return 0;
}

/* Rank 1 dies while the ranks add what they read of each other: rank 0 waits until somebody ends
 * the job. */
static int die_while_copying(struct checker *c)
{
    const struct itimerval soon = {.it_value.tv_usec = 200000};
    const uint64_t count = 8 << 20;
    float *data = grab(c, 3 * count, sizeof *data);
    struct mics_err err = {""};

    if (c->world->rank == 1)
        setitimer(ITIMER_REAL, &soon, NULL); /* SIGALRM ends the process */
    for (;;) {
        mics_comm_reduce_scatter(c->world, c->stream, data, data + 2 * count, count, MICS_F32);
        if (c->device->ops->stream_sync(c->stream, &err) != MICS_OK)
            break;
    }
    printf("rank %d: %s\n", c->world->rank, err.text);
    return 1;
}

#if MICS_HAVE_MPI
/* Rank 1 cannot send: its collective fails, every later one fails too, and it aborts the job. */
static int break_line(struct checker *c, bool all_to_all)
{
    float data[256] = {0}, received[256];
    struct mics_err err = {""};

    atomic_store(&line_is_down, c->world->rank == 1);
    if (all_to_all)
        mics_comm_all_to_all(c->world, c->stream, data, received, 256 / (uint64_t)c->world->size,
                             MICS_F32);
    else
        mics_comm_all_reduce(c->world, c->stream, data, 256, MICS_F32);
    if (c->device->ops->stream_sync(c->stream, &err) == MICS_OK)
        return 0;
    printf("%s\n", err.text);
    if (mics_comm_barrier_now(c->world, &err) != MICS_OK)
        printf("%s\n", err.text);
    fflush(stdout);
    mics_sleep_s(0.5); /* the ranks that fail with it print, too */
    mics_comm_abort(c->world, 9);
    return 0;
}
#else
static int break_line(struct checker *c, bool all_to_all)
{
    (void)c, (void)all_to_all;
    return 2;
}
#endif

static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* All other ranks wait for rank 0 inside a collective; rank 0 is idle. Prints the greatest share of
 * a core. */
static int wait_for_others(struct checker *c, double seconds)
{
    double shares[64] = {0};

    mics_comm_barrier_now(c->world, NULL);
    double cpu = cpu_s(), began = mics_now_s();
    if (c->world->rank == 0)
        mics_sleep_s(seconds);
    mics_comm_barrier_now(c->world, NULL);
    double share = (cpu_s() - cpu) / (mics_now_s() - began), greatest = 0;
    mics_comm_all_gather_now(c->world, &share, shares, sizeof share, NULL);
    for (int i = 0; i < c->world->size; i++)
        greatest = fmax(greatest, shares[i]);
    if (c->world->rank == 0)
        printf("%.4f\n", greatest);
    return 0;
}

/* Seconds for one collective, the best of several rounds. */
static double time_of(struct checker *c, int what, float *data, uint64_t count)
{
    struct mics_comm *world = c->world;
    const uint64_t each = count / (uint64_t)world->size;
    double best = 1e9;

    for (int round = 0; round < 9; round++) {
        mics_comm_barrier_now(world, NULL);
        double began = mics_now_s();
        if (what == 0)
            mics_comm_all_gather(world, c->stream, data + (uint64_t)world->rank * each, data, each,
                                 MICS_F32);
        else if (what == 1)
            mics_comm_reduce_scatter(world, c->stream, data, data + (uint64_t)world->rank * each,
                                     each, MICS_F32);
        else
            mics_comm_all_reduce(world, c->stream, data, count, MICS_F32);
        settle(c, "bench");
        mics_comm_barrier_now(world, NULL);
        best = fmin(best, mics_now_s() - began);
    }
    return best;
}

static int bench(struct checker *c)
{
    static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce"};
    float *data = calloc(16 << 20, sizeof *data);

    for (uint64_t count = 2; count <= 16 << 20; count *= 8)
        for (int what = 0; what < 3; what++) {
            double seconds = time_of(c, what, data, count * 2);

            if (c->world->rank == 0)
                printf("%-14s %9llu bytes %9.1f us %6.2f GB/s\n", names[what],
                       (unsigned long long)count * 8, seconds * 1e6,
                       (double)count * 8 / seconds / 1e9);
        }
    free(data);
    return 0;
}

/* Rank 0 prints the nodes; every rank checks that the communicators agree with the numbers. */
static int show_world(void)
{
    struct mics_world *world;
    struct mics_err err;
    enum mics_status status = mics_world_open(&world, &err);

    if (status != MICS_OK) {
        fprintf(stderr, "mpi_comm: %s\n", err.text);
        return 1;
    }
    int wrong = world->comm->rank != (int)world->rank || world->comm->size != (int)world->size ||
                world->node_comm->rank != (int)world->local_rank ||
                world->node_comm->size != (int)world->local_size;
    for (uint32_t i = 0; world->rank == 0 && i < world->node_count; i++) {
        const char *number = strchr(world->host_of_node[i], '#');

        printf("node %u: %u ranks %s\n", i, world->ranks_of_node[i], number ? number : "alone");
    }
    mics_world_close(world);
    return wrong;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "check";
    struct mics_comm *world;
    struct mics_err err;
    struct checker c;
    int code = 2;

    if (!strcmp(what, "world"))
        return show_world();
    is_funneled = !strcmp(what, "one-thread");
    if (mics_comm_new_mpi(&world, &err) != MICS_OK) {
        fprintf(stderr, "mpi_comm: %s\n", err.text);
        return 1;
    }
    if (!strcmp(what, "gpu-fault") || !strcmp(what, "gpu-join")) {
        code = check_gpu(world, "nccl", !strcmp(what, "gpu-join") ? gpu_joins : gpu_hangs);
        mics_comm_free(world);
        return code;
    }
    if (!strcmp(what, "gpu") && argc > 2) {
        code = check_gpu(world, argv[2], gpu_does_everything);
        mics_comm_free(world);
        return code;
    }
    checker_init(&c, world, 1);
    if (!strcmp(what, "check"))
        code = check(&c);
    else if (!strcmp(what, "staged"))
        code = check_staged(&c);
    else if (!strcmp(what, "delays"))
        code = check_delays(&c);
    else if (!strcmp(what, "threads") || is_funneled)
        code = check_threads(&c);
    else if (!strcmp(what, "yield"))
        code = check_yielding(&c);
    else if (!strcmp(what, "routes"))
        code = check_routes(&c);
    else if (!strcmp(what, "copies"))
        code = show_copies(&c);
    else if (!strcmp(what, "death"))
        code = die_while_copying(&c);
    else if (!strcmp(what, "tuned"))
        code = check_tuned(&c);
    else if (!strcmp(what, "abort"))
        code = abort_job(&c);
    else if (!strcmp(what, "fault"))
        code = break_line(&c, argc > 2 && !strcmp(argv[2], "all_to_all"));
    else if (!strcmp(what, "wait") && argc > 2)
        code = wait_for_others(&c, atof(argv[2]));
    else if (!strcmp(what, "bench"))
        code = bench(&c);
    checker_fini(&c);
    mics_comm_free(world);
    return code;
}
