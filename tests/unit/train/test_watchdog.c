/* SPDX-License-Identifier: Apache-2.0 */
/* test_watchdog.c - an operation that hangs ends the job with its name; a job that progresses is
 * not ended. */
#include "tap.h"

#include "../parity/cases.h"
#include "base/clock.h"
#include "base/file.h"
#include "comm/backend.h"
#include "report/flights.h"
#include "train/watch/flight.h"
#include "train/watch/liveness_table.h"
#include "train/watch/watchdog.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2

/* One rank's training; an operation of rank 1 hangs until the watchdog has reported. */
struct rank {
    struct mics_comm *comm;
    const struct mics_plan *plan;
    double timeout_s;
    bool hangs;
    uint32_t steps;
    double generates_s; /* after the steps */
    atomic_int faults, reported;
    struct mics_err fault, err;
    uint32_t hung_op;
};

struct fixture {
    struct rank ranks[RANKS];
    struct mics_plan plan;
    bool waits_for_flight;
    json_t *flights; /* when the first rank reported, if it waited for them */
    atomic_bool trained;
    atomic_bool over; /* the hanging operation may go on */
};

static struct fixture *fixture;
static char folder[64];

/* Wait until a rank's document of what it did last is there, or is not. */
/* `faults`: nothing is waited for once it is not 0; NULL is fine. */
static void wait_for_flight(uint32_t rank, bool there, const atomic_int *faults)
{
    const double until = mics_now_s() + 60;
    char path[128];
    bool exists = !there;

    snprintf(path, sizeof path, "%s/" MICS_FLIGHT_FOLDER "/" MICS_FLIGHT_FILE, folder, rank);
    while (exists != there && mics_now_s() < until && !(faults && *faults)) {
        mics_sleep_s(0.01);
        mics_file_exists(path, &exists, NULL);
    }
    CHECK(exists == there || (faults && *faults));
}

/* Of the hanging rank, and of the one that waits for it. */
static void load_flights(void)
{
    char path[128];
    struct mics_err err = {""};

    snprintf(path, sizeof path, "%s/" MICS_FLIGHT_FOLDER, folder);
    for (uint32_t i = 0; i < RANKS; i++)
        wait_for_flight(i, true, NULL);
    CHECK_INT(mics_flights_load(path, &fixture->flights, &err), MICS_OK);
    CHECK_STR(err.text, "");
}

static void on_fault(void *context, bool reports, const struct mics_err *err)
{
    struct rank *rank = context;

    rank->fault = *err;
    rank->faults++;
    rank->reported += reports;
    if (reports && fixture->waits_for_flight)
        load_flights();
    if (reports)
        fixture->over = true;
}

static void before_op(void *context, uint32_t op)
{
    const struct rank *rank = context;

    while (rank->hangs && op == rank->hung_op && !fixture->over)
        mics_sleep_s(0.01);
}

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const struct rank *rank = context;
    const uint32_t count = rank->plan->choice.micro_batch * rank->plan->choice.seq;

    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)((i * 7 + micro_step) % 16);
        targets[i] = (int32_t)((i * 5) % 16);
    }
}

static enum mics_status train_watched(struct rank *rank, struct mics_engine *engine,
                                      struct mics_world *world)
{
    struct mics_run run = {.options.plan = rank->plan};
    struct mics_watchdog *watchdog = NULL;
    struct mics_flight *flight = NULL;
    if (mics_flight_open(world, engine, &run, folder, &flight, &rank->err) != MICS_OK)
        return MICS_ERR_NOMEM;
    const struct mics_watchdog_options options = {.world = world,
                                                  .engine = engine,
                                                  .run = &run,
                                                  .flight = flight,
                                                  .timeout_s = rank->timeout_s,
                                                  .on_fault = on_fault,
                                                  .context = rank};
    struct mics_step_result result;
    enum mics_status status = mics_watchdog_start(&options, &watchdog, &rank->err);

    for (uint32_t step = 1; status == MICS_OK && step <= rank->steps; step++) {
        const struct mics_step_input input = {
            .step = step, .lr = 0.01f, .fill = fill, .fill_context = rank};

        run.submitted_step = step;
        status = mics_engine_submit(engine, &input, &rank->err);
        if (status == MICS_OK)
            status = mics_engine_collect(engine, &result, &rank->err);
    }
    run.generating = rank->generates_s > 0 || fixture->waits_for_flight;
    if (fixture->waits_for_flight && rank->hangs)
        wait_for_flight(1, false, &rank->faults); /* it is withdrawn, as the rank goes on */
    mics_sleep_s(rank->generates_s);
    mics_watchdog_stop(watchdog);
    if (!fixture->waits_for_flight)
        mics_flight_remove(flight);
    mics_flight_close(flight);
    return status;
}

/* Read what the engine did last, again and again while it does more. */
static void *read_last_ops(void *context)
{
    const struct mics_engine *engine = context;
    struct mics_engine_op_times ops[MICS_FLIGHT_OPS];
    uint64_t unordered = 0;
    size_t count;

    while (!fixture->trained)
        if (mics_engine_last_ops(engine, ops, MICS_FLIGHT_OPS, &count, NULL) == MICS_OK)
            for (size_t i = 1; i < count; i++)
                unordered += ops[i].state < ops[i - 1].state || ops[i].begin_s > ops[i].end_s;
    CHECK_INT(unordered, 0);
    return NULL;
}

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct mics_world *world = NULL;
    struct mics_device *device = NULL;
    struct mics_engine *engine = NULL;
    enum mics_status status = mics_world_open_over(rank->comm, 0, &world, &rank->err);

    if (status == MICS_OK)
        status = mics_device_new_host(1, &device, &rank->err);
    if (status == MICS_OK) {
        const struct mics_engine_options options = {.model = rank->plan->model,
                                                    .choice = &rank->plan->choice,
                                                    .world = world,
                                                    .device = device,
                                                    .optimizer = {.momentum = 0.9f},
                                                    .before_op = before_op,
                                                    .context = rank};
        status = mics_engine_new(&options, &engine, &rank->err);
    }
    if (status == MICS_OK)
        status = mics_engine_init(engine, 1, &rank->err);
    if (status == MICS_OK) {
        pthread_t reader;

        pthread_create(&reader, NULL, read_last_ops, engine);
        train_watched(rank, engine, world);
        fixture->trained = true;
        pthread_join(reader, NULL);
    }
    mics_engine_free(engine);
    if (device)
        device->ops->free(device);
    mics_world_close(world);
    return NULL;
}

static uint32_t first_gather(const struct mics_plan *plan)
{
    struct mics_schedule *schedule;
    uint32_t op = 0;

    if (mics_schedule_new(plan->model, &plan->choice, true, &schedule, NULL) != MICS_OK)
        return MICS_NONE;
    while (schedule->ops[op].kind != MICS_OP_GATHER)
        op++;
    mics_schedule_free(schedule);
    return op;
}

/* Communicators that fail beside their streams, on rank 1; rank 0 only sees a lost peer. */
static struct comm_backend faulty;
static enum mics_status (*real_split)(struct mics_comm *comm, int color, int key, int block,
                                      struct mics_comm **out, struct mics_err *err);

static enum mics_status faulty_check(struct mics_comm *comm, struct mics_err *err)
{
    if (comm->rank == 1)
        return mics_err_set(err, MICS_ERR_COMM, "the cable is out");
    return mics_err_set(err, MICS_ERR_PEER, "a peer has exited");
}

static const struct mics_comm_health_ops faulty_health = {.check = faulty_check};

static enum mics_status faulty_split(struct mics_comm *comm, int color, int key, int block,
                                     struct mics_comm **out, struct mics_err *err)
{
    const enum mics_status status = real_split(comm, color, key, block, out, err);

    if (status == MICS_OK && *out) {
        ((struct comm_base *)*out)->backend = &faulty;
        (*out)->health = &faulty_health;
    }
    return status;
}

static void make_faulty(struct mics_comm *comms[RANKS])
{
    faulty = *((struct comm_base *)comms[0])->backend;
    real_split = faulty.split;
    faulty.split = faulty_split;
    for (int i = 0; i < RANKS; i++) {
        ((struct comm_base *)comms[i])->backend = &faulty;
        comms[i]->health = &faulty_health;
    }
}

/* Train on both ranks. `hangs`: the first gather of rank 1 hangs; `fails`: its communicators
 * fail. Both generate for generates_s after the steps. */
static void run_and_generate(bool hangs, bool fails, double timeout_s, uint32_t steps,
                             double generates_s)
{
    struct mics_comm *comms[RANKS];
    pthread_t threads[RANKS];
    static struct fixture own;
    const struct mics_shape shape = {1, RANKS, RANKS, RANKS, RANKS};

    own = (struct fixture){.waits_for_flight = hangs && !fails};
    fixture = &own;
    own.plan.model = cases_gpt2();
    own.plan.choice = cases_choice(&shape);
    CHECK_INT(mics_comm_new_threads(RANKS, comms, NULL), MICS_OK);
    if (fails)
        make_faulty(comms);
    for (int i = 0; i < RANKS; i++) {
        own.ranks[i] = (struct rank){.comm = comms[i],
                                     .plan = &own.plan,
                                     .timeout_s = timeout_s,
                                     .hangs = hangs && i == 1,
                                     .steps = steps,
                                     .generates_s = generates_s,
                                     .hung_op = first_gather(&own.plan)};
        CHECK_INT(pthread_create(&threads[i], NULL, rank_main, &own.ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_STR(own.ranks[i].err.text, "");
    }
    mics_model_free(own.plan.model);
}

static void run_ranks(bool hangs, bool fails, double timeout_s, uint32_t steps)
{
    run_and_generate(hangs, fails, timeout_s, steps, 0);
}

static void an_operation_that_hangs_is_reported_by_the_first_rank(void)
{
    run_ranks(true, false, 0.5, 1);
    const char *text = fixture->ranks[0].fault.text;

    CHECK_INT(fixture->ranks[0].faults, 1);
    CHECK_INT(fixture->ranks[0].reported, 1);
    CHECK_INT(fixture->ranks[1].faults, 0);
    json_decref(fixture->flights);
    CHECK(strstr(text, "no progress for 0.5 s: rank 0 (") == text);
    CHECK(strstr(text, ") in step 1: gather of ") != NULL);
    CHECK(strstr(text, ", micro-step 0") != NULL);
}

static void what_ranks_did_last_names_the_one_that_hangs(void)
{
    char path[128], old[140];
    struct mics_err err;

    run_ranks(true, false, 3, 1); /* long enough for the other rank to begin its part */
    snprintf(path, sizeof path, "%s/" MICS_FLIGHT_FOLDER, folder);
    snprintf(old, sizeof old, "%s.old", path);
    CHECK(mics_flights_recognize(path));
    const json_t *verdict = json_object_get(fixture->flights, "verdict");
    CHECK_STR(json_string_value(json_object_get(verdict, "what")), "late");
    CHECK_INT(json_integer_value(json_object_get(verdict, "rank")), 1);
    CHECK_STR(json_string_value(json_object_get(json_object_get(verdict, "operation"), "does")),
              "gather");
    CHECK_INT(json_integer_value(json_object_get(verdict, "first_waiting")), 0);
    CHECK_INT(mics_flight_clear(folder, &err), MICS_OK);
    CHECK(!mics_flights_recognize(path) && mics_flights_recognize(old));
    CHECK_INT(mics_flight_clear(folder, &err), MICS_OK); /* nothing to put aside */
    json_decref(fixture->flights);
    run_ranks(false, false, 60, 5);
    CHECK(!mics_flights_recognize(path));
}

static void a_communicator_that_fails_while_streams_hang_is_reported_by_its_rank(void)
{
    run_ranks(true, true, 60, 1);
    const char *text = fixture->ranks[1].fault.text;

    CHECK_INT(fixture->ranks[0].faults, 0);
    CHECK_INT(fixture->ranks[1].reported, 1);
    CHECK(strstr(text, "rank 1 (") == text);
    CHECK(strstr(text, "): communicator ") && strstr(text, ": the cable is out"));
}

static void a_job_that_progresses_is_not_ended(void)
{
    run_ranks(false, false, 0.5, 20);
    for (int i = 0; i < RANKS; i++)
        CHECK_INT(fixture->ranks[i].faults, 0);
}

static void a_job_that_generates_may_take_longer_than_the_time_out(void)
{
    run_and_generate(false, false, 0.5, 1, 1.5);
    for (int i = 0; i < RANKS; i++)
        CHECK_INT(fixture->ranks[i].faults, 0);
}

static void a_rank_that_fails_while_others_generate_is_reported(void)
{
    run_and_generate(false, true, 60, 1, 1.5);
    CHECK_INT(fixture->ranks[1].reported, 1);
}

struct node_rank {
    struct mics_comm *comm;
    struct mics_liveness_table *table;
    struct mics_err err;
};

static void *open_table(void *context)
{
    struct node_rank *own = context;

    mics_liveness_table_open(own->comm, &own->table, &own->err);
    return NULL;
}

static void ranks_of_a_node_read_what_the_others_write(void)
{
    struct mics_comm *comms[RANKS];
    struct node_rank each[RANKS] = {0};
    pthread_t threads[RANKS];
    int first_alive;

    CHECK_INT(mics_comm_new_threads(RANKS, comms, NULL), MICS_OK);
    for (int i = 0; i < RANKS; i++) {
        each[i].comm = comms[i];
        CHECK_INT(pthread_create(&threads[i], NULL, open_table, &each[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    CHECK(each[0].table && each[1].table);
    mics_liveness_table_write(each[1].table, 0x1234567890);
    CHECK_INT(mics_liveness_table_read(each[0].table, 1), 0x1234567890);
    CHECK_INT(mics_liveness_table_read(each[0].table, 0), 0);
    CHECK_INT(mics_liveness_table_find_dead(each[0].table, &first_alive), -1);
    CHECK_INT(first_alive, 0);
    for (int i = 0; i < RANKS; i++) {
        mics_liveness_table_close(each[i].table);
        mics_comm_free(comms[i]);
    }
}

static void a_single_rank_has_no_table(void)
{
    struct mics_comm *comm;
    struct mics_liveness_table *table = (struct mics_liveness_table *)1;

    CHECK_INT(mics_comm_new_self(&comm, NULL), MICS_OK);
    CHECK_INT(mics_liveness_table_open(comm, &table, NULL), MICS_OK);
    CHECK(table == NULL);
    mics_comm_free(comm);
}

int main(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/watch-XXXXXX", base && strlen(base) < 40 ? base : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(an_operation_that_hangs_is_reported_by_the_first_rank);
    TAP_RUN(what_ranks_did_last_names_the_one_that_hangs);
    TAP_RUN(a_communicator_that_fails_while_streams_hang_is_reported_by_its_rank);
    TAP_RUN(a_job_that_progresses_is_not_ended);
    TAP_RUN(a_job_that_generates_may_take_longer_than_the_time_out);
    TAP_RUN(a_rank_that_fails_while_others_generate_is_reported);
    TAP_RUN(ranks_of_a_node_read_what_the_others_write);
    TAP_RUN(a_single_rank_has_no_table);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
