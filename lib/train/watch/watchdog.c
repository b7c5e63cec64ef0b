/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank tells the others a word about itself: the step, and the number of the operation that it is at. Who
 * has not been heard for half of the time-out is silent: its process is stopped, or its node cut off. If nobody is,
 * the one that has got least far is to blame. Only two ranks hear the others; if the first is itself
 * silent, the last speaks, a little later, and then any.
 */
#include "train/watch/watchdog.h"

#include "base/clock.h"
#include "train/watch/liveness_table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double look_s = 0.1;               /* between looks */
static const double silence_min_s = 3;          /* of signs of life that come every second */
static const double asleep_s = 2, waking_s = 3; /* this process was stopped; then it is silent */
static const double second_word_s = 3;          /* the last rank waits for the first to speak */
static const double any_word_s = 6;             /* and any other for both */
static const double save_patience = 10; /* times the time-out, while a checkpoint is written */

struct mics_watchdog {
    struct mics_watchdog_options options;
    struct mics_board *board; /* or NULL */
    pthread_t thread;
    pthread_mutex_t lock; /* guards stop */
    pthread_cond_t ended;
    bool stop;

    /* The thread's. */
    uint64_t progress;
    bool saves;
    double progress_at, looked_at, silent_until, deserted_at;
};

/* A word: step, evaluating or saving or neither, operation + 1 (0: none). */
#define EVALUATES (1u << 31)
#define SAVES     (1u << 30)

static uint64_t word_of(const struct mics_engine_doing *doing, uint64_t step, bool saves)
{
    const uint32_t op = doing->op == MICS_NONE ? 0 : doing->op + 1;

    return (doing->step ? doing->step : step) << 32 | (doing->evaluating ? EVALUATES : 0) |
           (saves ? SAVES : 0) | op;
}

static const char *unit_name(const struct mics_watchdog *watchdog, const struct mics_op *op)
{
    const struct mics_model *model = watchdog->options.run->options.plan->model;

    return op->unit == MICS_NONE ? NULL : model->units[op->unit].name;
}

/* "step 12: gather of h.2, micro-step 1" */
static void describe(const struct mics_watchdog *watchdog, uint64_t word, char *text, size_t size)
{
    const uint32_t low = (uint32_t)word & ~(EVALUATES | SAVES);
    const bool evaluating = word & EVALUATES;
    const struct mics_op *op =
        low ? mics_engine_op(watchdog->options.engine, evaluating, low - 1) : NULL;
    int used = snprintf(text, size, "step %u: %s", (unsigned)(word >> 32),
                        evaluating ? "evaluation, " : "");

    text += used;
    size -= (size_t)used;
    if (!op) {
        snprintf(text, size, word & SAVES ? "writing a checkpoint" : "between its operations");
        return;
    }
    const char *unit = unit_name(watchdog, op);
    snprintf(text, size, "%s%s%s, micro-step %u", mics_op_kind_name(op->kind), unit ? " of " : "",
             unit ? unit : "", op->micro_step);
}

static uint32_t node_of(const struct mics_world *world, uint32_t rank, uint32_t *first)
{
    uint32_t node = 0;

    *first = 0;
    while (rank >= *first + world->ranks_of_node[node])
        *first += world->ranks_of_node[node++];
    return node;
}

static double heard(const struct mics_watchdog *watchdog, uint32_t rank, uint64_t *word)
{
    struct mics_comm *comm = watchdog->options.world->comm;

    return comm->heartbeat ? comm->heartbeat->age_s(comm, (int)rank, word) : -1;
}

static double silence_s(const struct mics_watchdog *watchdog)
{
    const double half = watchdog->options.timeout_s / 2;

    return half > silence_min_s ? half : silence_min_s;
}

/* The first silent rank, or else the one least far; *silent: how many are from there on its node. */
static uint32_t find_culprit(const struct mics_watchdog *watchdog, uint64_t *word, uint32_t *silent)
{
    const struct mics_world *world = watchdog->options.world;
    uint32_t least = world->rank, first, silent_node = 0, culprit = MICS_NONE;
    uint64_t each;

    *silent = 0;
    for (uint32_t rank = 0; rank < world->size; rank++) {
        const double age = heard(watchdog, rank, &each);

        if (age < 0)
            continue;
        const uint32_t node = node_of(world, rank, &first);
        if (age > silence_s(watchdog) && (culprit == MICS_NONE || node == silent_node)) {
            silent_node = node;
            if ((*silent)++ == 0) {
                culprit = rank;
                *word = each;
            }
        } else if (culprit == MICS_NONE && each < *word) {
            least = rank;
            *word = each;
        }
    }
    return culprit != MICS_NONE ? culprit : least;
}

static void report_stall(const struct mics_watchdog *watchdog, uint64_t own, double limit_s,
                         struct mics_err *err)
{
    const struct mics_world *world = watchdog->options.world;
    uint64_t word = own;
    uint32_t silent, first;
    const uint32_t rank = find_culprit(watchdog, &word, &silent);
    const uint32_t node = node_of(world, rank, &first);
    const char *host = world->host_of_node[node];
    char at[128], who[160];

    describe(watchdog, word, at, sizeof at);
    if (silent > 1 && rank == first && silent == world->ranks_of_node[node])
        snprintf(who, sizeof who, "node %s (ranks %u to %u) does not answer; last seen", host, rank,
                 rank + silent - 1);
    else if (silent)
        snprintf(who, sizeof who, "rank %u (%s) does not answer; last seen", rank, host);
    else
        snprintf(who, sizeof who, "rank %u (%s)", rank, host);
    mics_err_set(err, MICS_ERR_COMM, "no progress for %g s: %s in %s", limit_s, who, at);
}

static void report_death(const struct mics_watchdog *watchdog, int local_rank, struct mics_err *err)
{
    const struct mics_world *world = watchdog->options.world;
    uint32_t first;
    const uint32_t node = node_of(world, world->rank, &first);
    char at[128];

    describe(watchdog, mics_board_read(watchdog->board, local_rank), at, sizeof at);
    mics_err_set(err, MICS_ERR_COMM, "rank %u (%s) died in %s", first + (uint32_t)local_rank,
                 world->host_of_node[node], at);
}

/* Is a process of this node gone? */
static bool check_deaths(const struct mics_watchdog *watchdog)
{
    int speaker, missing;
    struct mics_err err = {""};

    if (!watchdog->board)
        return false;
    missing = mics_board_missing(watchdog->board, &speaker);
    if (missing < 0)
        return false;
    report_death(watchdog, missing, &err);
    watchdog->options.fault(watchdog->options.context,
                            speaker == (int)watchdog->options.world->local_rank, &err);
    return true;
}

/* Has a communicator failed? A rank that only sees another gone leaves the word to that one, or to who knows it to be
 * dead, for a while. */
static bool check_comms(struct mics_watchdog *watchdog)
{
    const struct mics_world *world = watchdog->options.world;
    struct mics_err err = {""};
    const enum mics_status status = mics_engine_check(watchdog->options.engine, &err);
    const double now = mics_now_s();
    double wait_s = 0;

    if (status == MICS_OK)
        return false;
    if (watchdog->deserted_at == 0)
        watchdog->deserted_at = now;
    if (status == MICS_ERR_IO)
        wait_s = world->rank == 0 ? second_word_s : any_word_s;
    if (now - watchdog->deserted_at < wait_s)
        return false;
    mics_err_prefix(&err, "rank %u (%s)", world->rank, world->host_of_node[world->node]);
    watchdog->options.fault(watchdog->options.context, true, &err);
    return true;
}

/* How much later than the time-out this rank raises its voice. */
static double hesitation_s(const struct mics_watchdog *watchdog)
{
    const struct mics_world *world = watchdog->options.world;
    uint64_t word;

    if (world->rank == 0)
        return 0;
    return heard(watchdog, world->rank, &word) >= 0 ? second_word_s : any_word_s;
}

static bool check_progress(struct mics_watchdog *watchdog, const struct mics_engine_doing *doing,
                           uint64_t word)
{
    const struct mics_watchdog_options *options = &watchdog->options;
    const bool saves = options->run->saves;
    const double now = mics_now_s(), hesitation = hesitation_s(watchdog);
    const double limit_s = options->timeout_s * (saves ? save_patience : 1);
    struct mics_err err = {""};

    if (doing->progress != watchdog->progress || saves != watchdog->saves) {
        watchdog->progress = doing->progress;
        watchdog->saves = saves;
        watchdog->progress_at = now;
    }
    if (now - watchdog->progress_at < limit_s + hesitation)
        return false;
    report_stall(watchdog, word, limit_s, &err);
    options->fault(options->context, hesitation < any_word_s, &err);
    return true;
}

/* A process that was stopped itself knows nothing of the others, and most likely is woken to be ended. */
static bool was_asleep(struct mics_watchdog *watchdog)
{
    const double now = mics_now_s();

    if (watchdog->looked_at > 0 && now - watchdog->looked_at > asleep_s) {
        watchdog->progress_at = now;
        watchdog->silent_until = now + waking_s;
    }
    watchdog->looked_at = now;
    return now < watchdog->silent_until;
}

static bool look(struct mics_watchdog *watchdog)
{
    const struct mics_watchdog_options *options = &watchdog->options;
    struct mics_comm *comm = options->world->comm;
    struct mics_engine_doing doing;

    mics_engine_watch(options->engine, &doing);
    const uint64_t word = word_of(&doing, options->run->told_step, options->run->saves);
    if (comm->heartbeat)
        comm->heartbeat->set(comm, word);
    if (watchdog->board)
        mics_board_write(watchdog->board, word);
    if (was_asleep(watchdog))
        return false;
    return check_deaths(watchdog) || check_comms(watchdog) ||
           check_progress(watchdog, &doing, word);
}

static void *watch(void *context)
{
    struct mics_watchdog *watchdog = context;
    struct timespec until;

    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->stop) {
        pthread_mutex_unlock(&watchdog->lock);
        const bool fault = look(watchdog);
        pthread_mutex_lock(&watchdog->lock);
        if (fault)
            break;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(look_s * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!watchdog->stop)
            pthread_cond_timedwait(&watchdog->ended, &watchdog->lock, &until);
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

enum mics_status mics_watchdog_start(const struct mics_watchdog_options *options,
                                     struct mics_watchdog **out, struct mics_err *err)
{
    struct mics_watchdog *watchdog = calloc(1, sizeof *watchdog);
    enum mics_status status;
    int code;

    if (!watchdog)
        return mics_err_nomem(err);
    watchdog->options = *options;
    watchdog->progress_at = mics_now_s();
    status = mics_board_open(options->world->node_comm, &watchdog->board, err);
    if (status != MICS_OK) {
        free(watchdog);
        return status;
    }
    pthread_mutex_init(&watchdog->lock, NULL);
    pthread_cond_init(&watchdog->ended, NULL);
    code = pthread_create(&watchdog->thread, NULL, watch, watchdog);
    if (code != 0) {
        mics_board_close(watchdog->board);
        free(watchdog);
        return mics_err_set(err, MICS_ERR_NOMEM, "watchdog: cannot start a thread: %s",
                            strerror(code));
    }
    pthread_setname_np(watchdog->thread, "mics-watchdog");
    *out = watchdog;
    return MICS_OK;
}

void mics_watchdog_excuse(struct mics_watchdog *watchdog)
{
    if (watchdog && watchdog->board)
        mics_board_excuse(watchdog->board);
}

void mics_watchdog_stop(struct mics_watchdog *watchdog)
{
    if (!watchdog)
        return;
    mics_watchdog_excuse(watchdog);
    pthread_mutex_lock(&watchdog->lock);
    watchdog->stop = true;
    pthread_cond_signal(&watchdog->ended);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->ended);
    pthread_mutex_destroy(&watchdog->lock);
    mics_board_close(watchdog->board);
    free(watchdog);
}
