/* SPDX-License-Identifier: Apache-2.0 */
/* flights.c - reads documents mics.flight, and finds which rank is to blame. */
#include "report/flights_internal.h"

#include "base/dir.h"
#include "base/file.h"
#include "base/utf8.h"
#include "doc/doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_RANKS = 1 << 20, MAX_OPS = 4096, MAX_GROUPS = 256 };

/* Members of a collective that all have begun: the last is suspected if it came so much later. */
static const double late_s = 1;

static bool is_flight_name(const char *name)
{
    const char *const prefix = "rank-";
    const size_t digits = strspn(name, "0123456789-rank");

    return strncmp(name, prefix, strlen(prefix)) == 0 && strcmp(name + digits, ".mp") == 0;
}

bool mics_flights_recognize(const char *path)
{
    struct mics_dir dir;
    struct mics_err err;
    const char *name;
    struct stat info;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode) ||
        mics_dir_open(path, &dir, &err) != MICS_OK)
        return false;
    do
        name = mics_dir_next(&dir);
    while (name && !is_flight_name(name));
    const bool found = name != NULL;
    mics_dir_close(&dir, MICS_OK, &err);
    return found;
}

/*
 * Reading.
 */

static void read_group(const struct mics_cursor *cursor, uint32_t world_size,
                       struct flight_group *group)
{
    const struct mics_cursor ranks = mics_cursor_get_array(cursor, "ranks", 1, world_size);

    group->communicator = mics_cursor_get_string(cursor, "communicator");
    group->ranks = mics_cursor_calloc(&ranks, sizeof *group->ranks);
    for (size_t i = 0; group->ranks && i < mics_cursor_count(&ranks); i++) {
        const struct mics_cursor item = mics_cursor_item_any(&ranks, i);
        const json_int_t rank = json_is_integer(item.value) ? json_integer_value(item.value) : -1;

        if (rank < 0 || rank >= world_size || (i > 0 && (uint32_t)rank <= group->ranks[i - 1]))
            mics_cursor_reject(&item, NULL, "expected ranks of the job in ascending order");
        else
            group->ranks[group->count++] = (uint32_t)rank;
    }
}

static enum flight_state read_state(const struct mics_cursor *cursor)
{
    static const char *const names[] = {
        [FLIGHT_ENDED] = "ended", [FLIGHT_RUNNING] = "running", [FLIGHT_DUE] = "due"};
    const char *text = mics_cursor_get_string(cursor, "state");

    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum flight_state)i;
    mics_cursor_reject(cursor, "state", "expected ended, running or due, found \"%s\"", text);
    return FLIGHT_ENDED;
}

static bool is_member(const struct flight_group *group, uint32_t rank)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->ranks[i] == rank)
            return true;
    return false;
}

static void read_op(const struct mics_cursor *cursor, const struct flight_rank *rank,
                    struct flight_op *op)
{
    *op = (struct flight_op){
        .state = read_state(cursor),
        .number = mics_cursor_get_u64(cursor, "number", 1, INT64_MAX),
        .step = mics_cursor_get_u32(cursor, "step", 0, UINT32_MAX),
        .index = mics_cursor_get_u32(cursor, "op", 0, UINT32_MAX),
        .micro_step = mics_cursor_get_u32(cursor, "micro_step", 0, UINT32_MAX),
        .of = mics_cursor_get_string(cursor, "of"),
        .does = mics_cursor_get_string(cursor, "does"),
        .subject = mics_cursor_get_string(cursor, "subject"),
        .stream = mics_cursor_get_string(cursor, "stream"),
        .since = mics_cursor_get_double(cursor, "since", 0, 1e12),
    };
    if (op->state == FLIGHT_ENDED)
        op->end = mics_cursor_get_double(cursor, "end", 0, 1e12);
    if (!mics_cursor_has(cursor, "group") || rank->group_count == 0)
        return;
    const uint32_t group = mics_cursor_get_u32(cursor, "group", 0, (uint32_t)rank->group_count - 1);
    op->group = &rank->groups[group];
    if (!is_member(op->group, rank->rank))
        mics_cursor_reject(cursor, "group", "rank %u is no member of it", rank->rank);
    op->sequence = mics_cursor_get_u32(cursor, "sequence", 1, UINT32_MAX);
}

static void read_lost(const struct mics_cursor *cursor, uint32_t world_size,
                      struct flight_lost *lost)
{
    *lost = (struct flight_lost){
        .rank = mics_cursor_get_u32(cursor, "rank", 0, world_size - 1),
        .dead = mics_cursor_get_bool(cursor, "dead"),
        .host = mics_cursor_get_string(cursor, "host"),
        .last_seen = mics_cursor_get_string(cursor, "last_seen"),
    };
}

void flight_rank_read(const struct mics_cursor *cursor, struct flight_rank *out)
{
    const uint32_t world_size = mics_cursor_get_u32(cursor, "world_size", 1, MAX_RANKS);
    const struct mics_cursor groups = mics_cursor_get_array(cursor, "groups", 0, MAX_GROUPS);
    const struct mics_cursor ops = mics_cursor_get_array(cursor, "ops", 0, MAX_OPS);
    const struct mics_cursor lost = mics_cursor_get_array(cursor, "lost", 0, world_size);

    *out = (struct flight_rank){
        .rank = mics_cursor_get_u32(cursor, "rank", 0, world_size - 1),
        .world_size = world_size,
        .host = mics_cursor_get_string(cursor, "host"),
        .reason = mics_cursor_get_string(cursor, "reason"),
        .text = mics_cursor_get_string(cursor, "text"),
        .doing = mics_cursor_get_string(cursor, "doing"),
        .time = mics_cursor_get_double(cursor, "time", 0, 1e12),
        .doing_s = mics_cursor_get_double(cursor, "doing_s", 0, 1e12),
        .suspended_s = mics_cursor_opt_double(cursor, "suspended_s", 0, 1e12, 0),
        .suspended_until = mics_cursor_opt_double(cursor, "suspended_until", 0, 1e12, 0),
        .groups = mics_cursor_calloc(&groups, sizeof *out->groups),
        .ops = mics_cursor_calloc(&ops, sizeof *out->ops),
        .lost = mics_cursor_calloc(&lost, sizeof *out->lost),
    };
    for (size_t i = 0; out->groups && i < mics_cursor_count(&groups); i++) {
        const struct mics_cursor group = mics_cursor_get_item(&groups, i);

        read_group(&group, world_size, &out->groups[i]);
        out->group_count = i + 1;
    }
    for (size_t i = 0; out->ops && i < mics_cursor_count(&ops); i++) {
        const struct mics_cursor op = mics_cursor_get_item(&ops, i);

        read_op(&op, out, &out->ops[i]);
        out->op_count = i + 1;
    }
    for (size_t i = 0; out->lost && i < mics_cursor_count(&lost); i++) {
        const struct mics_cursor one = mics_cursor_get_item(&lost, i);

        read_lost(&one, world_size, &out->lost[i]);
        out->lost_count = i + 1;
    }
}

void flight_rank_fini(struct flight_rank *rank)
{
    for (size_t i = 0; i < rank->group_count; i++)
        free(rank->groups[i].ranks);
    free(rank->groups);
    free(rank->ops);
    free(rank->lost);
}

const struct flight_op *flight_last_ended(const struct flight_rank *rank)
{
    const struct flight_op *last = NULL;

    for (size_t i = 0; i < rank->op_count; i++)
        if (rank->ops[i].state == FLIGHT_ENDED && (!last || rank->ops[i].end >= last->end))
            last = &rank->ops[i];
    return last;
}

/* The earliest operation of a state; with `own` only what waits for no other rank: a computation,
 * or a collective that has not begun. */
static const struct flight_op *earliest(const struct flight_rank *rank, enum flight_state state,
                                        bool own)
{
    const struct flight_op *found = NULL;

    for (size_t i = 0; i < rank->op_count; i++) {
        const struct flight_op *op = &rank->ops[i];

        if (op->state == state && (!own || state == FLIGHT_DUE || !op->group) &&
            (!found || op->since < found->since))
            found = op;
    }
    return found;
}

/* What the rank itself is at, and no other rank keeps it from ending. */
static const struct flight_op *own_work(const struct flight_rank *rank)
{
    const struct flight_op *op = earliest(rank, FLIGHT_RUNNING, true);

    return op ? op : earliest(rank, FLIGHT_DUE, true);
}

const struct flight_op *flight_current(const struct flight_rank *rank)
{
    const struct flight_op *op = own_work(rank);

    return op ? op : earliest(rank, FLIGHT_RUNNING, false);
}

void flight_op_name(const struct flight_op *op, char *text, size_t size)
{
    const bool in_step = strcmp(op->of, "step") == 0;

    snprintf(text, size, "%s%s%s%s%s, micro-step %u", in_step ? "" : op->of, in_step ? "" : ": ",
             op->does, *op->subject ? " of " : "", op->subject, op->micro_step);
}

/*
 * The verdict.
 */

struct flights {
    struct flight_rank *ranks;     /* [count] ascending */
    const struct flight_rank **of; /* [world_size] NULL: it wrote none */
    size_t count;
    uint32_t world_size;
};

/* A collective that a rank is in. */
struct pending {
    const struct flight_rank *by; /* who has waited longest */
    const struct flight_op *op;
};

struct verdict {
    const char *what; /* "died", "failed", "suspended", "silent", "missing", "late", "undecided" */
    uint32_t rank;    /* or FLIGHT_NONE */
    const struct flight_op *own; /* that the rank is at */
    struct pending first;        /* op NULL: nobody waits for it */
    const struct flight_lost *lost;
    double spread_s; /* undecided, last: between the first and the last beginning */
};

static bool is_later(const struct flight_op *a, const struct flight_op *b)
{
    return a->number != b->number ? a->number > b->number : a->index > b->index;
}

/* Has the rank begun this collective? It has if it began a later one of the same stream, or of a
 * later step; what it began long ago is not in its document. */
static bool has_entered(const struct flights *all, uint32_t rank, const struct flight_op *op)
{
    const struct flight_rank *member = all->of[rank];

    for (size_t i = 0; member && i < member->op_count; i++) {
        const struct flight_op *own = &member->ops[i];

        if (own->state == FLIGHT_DUE)
            continue;
        if ((own->number == op->number && own->index == op->index) ||
            (is_later(own, op) &&
             (own->number > op->number || strcmp(own->stream, op->stream) == 0)))
            return true;
    }
    return false;
}

/* The collective in which a rank has waited longest for `rank`, or, FLIGHT_NONE, for any member;
 * `begun`: even if that one has begun it since. */
static struct pending find_pending(const struct flights *all, uint32_t rank, bool begun)
{
    struct pending found = {0};

    for (size_t i = 0; i < all->count; i++)
        for (size_t j = 0; j < all->ranks[i].op_count; j++) {
            const struct flight_op *op = &all->ranks[i].ops[j];
            bool waits = false;

            if (op->state != FLIGHT_RUNNING || !op->group || all->ranks[i].rank == rank ||
                (found.op && op->since >= found.op->since))
                continue;
            for (size_t k = 0; k < op->group->count && !waits; k++)
                waits = (rank == FLIGHT_NONE || op->group->ranks[k] == rank) &&
                        (begun || !has_entered(all, op->group->ranks[k], op));
            if (waits)
                found = (struct pending){&all->ranks[i], op};
        }
    return found;
}

/* Something of the main thread that no other rank takes part in. An evaluation consists of
 * collectives, as a step does, and links are measured by all ranks. */
static bool is_busy(const struct flight_rank *rank)
{
    static const char *const common[] = {"training", "agreeing", "validating", "measuring links"};

    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(rank->doing, common[i]) == 0)
            return false;
    return true;
}

/* Follow the chain from a collective to a rank that waits for none: the member that is missing from
 * it, and has been at its own work for longest. */
static uint32_t follow(const struct flights *all, const struct flight_op *op, bool *seen)
{
    uint32_t waiting = FLIGHT_NONE, found = FLIGHT_NONE;
    double since = INFINITY;

    for (size_t i = 0; i < op->group->count; i++) {
        const uint32_t member = op->group->ranks[i];
        const struct flight_rank *doc = all->of[member];

        if (has_entered(all, member, op))
            continue;
        if (!doc)
            return member;
        const struct flight_op *own = own_work(doc);
        const struct flight_op *waits = earliest(doc, FLIGHT_RUNNING, false);
        if (!own && !is_busy(doc) && waits && waits->group) {
            if (waiting == FLIGHT_NONE && !seen[member])
                waiting = member;
            continue;
        }
        const double begin = own ? own->since : doc->time - doc->doing_s;
        if (begin < since) {
            since = begin;
            found = member;
        }
    }
    if (found != FLIGHT_NONE || waiting == FLIGHT_NONE)
        return found;
    seen[waiting] = true;
    const struct flight_op *next = earliest(all->of[waiting], FLIGHT_RUNNING, false);
    const uint32_t end = follow(all, next, seen);
    return end != FLIGHT_NONE ? end : waiting;
}

/* All members of a collective have begun it, and none has ended it: the last to begin. */
static void judge_entered(const struct flights *all, struct verdict *verdict)
{
    const struct flight_op *first = NULL, *last = NULL;
    const struct flight_rank *first_rank = NULL, *last_rank = NULL;

    for (size_t i = 0; i < all->count; i++) {
        const struct flight_op *op = earliest(&all->ranks[i], FLIGHT_RUNNING, false);

        if (op && op->group && op->group->count > 1 && (!first || op->since < first->since)) {
            first = op;
            first_rank = &all->ranks[i];
        }
    }
    for (size_t i = 0; first && i < all->count; i++)
        for (size_t j = 0; j < all->ranks[i].op_count; j++) {
            const struct flight_op *op = &all->ranks[i].ops[j];

            if (op->state == FLIGHT_RUNNING && op->number == first->number &&
                op->index == first->index && is_member(first->group, all->ranks[i].rank) &&
                (!last || op->since > last->since)) {
                last = op;
                last_rank = &all->ranks[i];
            }
        }
    if (!last)
        return;
    verdict->first = (struct pending){first_rank, first};
    verdict->spread_s = last->since - first->since;
    if (verdict->spread_s < late_s)
        return;
    verdict->what = "last";
    verdict->rank = last_rank->rank;
}

static const struct flight_lost *find_lost(const struct flights *all, bool dead)
{
    const struct flight_lost *found = NULL;

    for (size_t i = 0; i < all->count; i++)
        for (size_t j = 0; j < all->ranks[i].lost_count; j++) {
            const struct flight_lost *lost = &all->ranks[i].lost[j];

            if (lost->dead == dead && (!found || lost->rank < found->rank))
                found = lost;
        }
    return found;
}

/* A rank that failed on its own account, or was suspended longest. */
static const struct flight_rank *find_failed(const struct flights *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->ranks[i].reason, "failure") == 0 ||
            strcmp(all->ranks[i].reason, "communication") == 0)
            return &all->ranks[i];
    return NULL;
}

static const struct flight_rank *find_suspended(const struct flights *all)
{
    const struct flight_rank *found = NULL;

    for (size_t i = 0; i < all->count; i++)
        if (all->ranks[i].suspended_s > 0 &&
            (!found || all->ranks[i].suspended_s > found->suspended_s))
            found = &all->ranks[i];
    return found;
}

/* A rank without a document: the one that others have waited for longest, else the first. */
static uint32_t find_missing(const struct flights *all, struct pending *first)
{
    uint32_t found = FLIGHT_NONE;

    *first = (struct pending){0};
    for (uint32_t rank = 0; rank < all->world_size; rank++) {
        if (all->of[rank])
            continue;
        const struct pending pending = find_pending(all, rank, false);
        if (found == FLIGHT_NONE ||
            (pending.op && (!first->op || pending.op->since < first->op->since))) {
            found = rank;
            *first = pending;
        }
    }
    return found;
}

/* The operation that a suspended rank was in. */
static const struct flight_op *suspended_in(const struct flight_rank *rank)
{
    const double from = rank->suspended_until - rank->suspended_s;
    const struct flight_op *found = NULL;

    for (size_t i = 0; i < rank->op_count; i++) {
        const struct flight_op *op = &rank->ops[i];

        if (op->since <= rank->suspended_until && (op->state != FLIGHT_ENDED || op->end >= from) &&
            (!found || (found->group && !op->group) ||
             (!found->group == !op->group && op->since > found->since && op->since <= from)))
            found = op;
    }
    return found;
}

static void judge(const struct flights *all, bool *seen, struct verdict *verdict)
{
    const struct flight_lost *dead = find_lost(all, true), *silent = find_lost(all, false);
    const struct flight_rank *failed = find_failed(all), *suspended = find_suspended(all);
    struct pending missed;
    const uint32_t missing = find_missing(all, &missed);

    *verdict = (struct verdict){.what = "undecided", .rank = FLIGHT_NONE};
    if (dead) {
        *verdict = (struct verdict){.what = "died", .rank = dead->rank, .lost = dead};
    } else if (failed) {
        *verdict = (struct verdict){.what = "failed", .rank = failed->rank};
    } else if (suspended) {
        *verdict = (struct verdict){
            .what = "suspended", .rank = suspended->rank, .own = suspended_in(suspended)};
    } else if (silent) {
        *verdict = (struct verdict){.what = "silent", .rank = silent->rank, .lost = silent};
    } else if (missing != FLIGHT_NONE && missed.op) {
        *verdict = (struct verdict){.what = "missing", .rank = missing};
    }
    if (verdict->rank == FLIGHT_NONE) {
        const struct pending first = find_pending(all, FLIGHT_NONE, false);

        if (first.op)
            verdict->rank = follow(all, first.op, seen);
        if (verdict->rank != FLIGHT_NONE)
            verdict->what = all->of[verdict->rank] ? "late" : "missing";
        else
            judge_entered(all, verdict);
        if (!first.op && all->count + 1 == all->world_size) /* between steps, of all but one */
            *verdict = (struct verdict){.what = "missing", .rank = missing};
        if (verdict->rank == FLIGHT_NONE)
            return;
    }
    const struct flight_rank *doc = all->of[verdict->rank];
    if (strcmp(verdict->what, "last") != 0)
        verdict->first = find_pending(all, verdict->rank, strcmp(verdict->what, "suspended") == 0);
    if (doc && !verdict->own)
        verdict->own = own_work(doc);
}

static const char *host_of(const struct flights *all, const struct verdict *verdict)
{
    if (all->of[verdict->rank])
        return all->of[verdict->rank]->host;
    return verdict->lost ? verdict->lost->host : "";
}

/* "rank 3 (node2) died" and what else is known, one sentence. */
static void describe(const struct flights *all, const struct verdict *verdict, char *text,
                     size_t size)
{
    const struct flight_rank *doc = verdict->rank == FLIGHT_NONE ? NULL : all->of[verdict->rank];
    char who[160], op[256] = "", waited[400] = "", seen[256] = "", own[300] = "";
    const struct pending *first = &verdict->first;

    if (first->op)
        flight_op_name(first->op, op, sizeof op);
    if (verdict->rank == FLIGHT_NONE) {
        if (first->op)
            snprintf(text, size,
                     "it cannot be told which rank is to blame: all ranks of %s, step %u, have "
                     "begun it, within %.3g s",
                     op, first->op->step, verdict->spread_s);
        else
            snprintf(text, size, "no rank waited for another");
        return;
    }
    const char *host = host_of(all, verdict);
    snprintf(who, sizeof who, *host ? "rank %u (%s)" : "rank %u%s", verdict->rank, host);
    if (first->op && strcmp(verdict->what, "last") != 0)
        snprintf(waited, sizeof waited, "; rank %u was the first to wait for it, in %s, step %u",
                 first->by->rank, op, first->op->step);
    if (verdict->lost && *verdict->lost->last_seen)
        snprintf(seen, sizeof seen, "; last seen in %s", verdict->lost->last_seen);
    if (verdict->own) {
        flight_op_name(verdict->own, op, sizeof op);
        snprintf(own, sizeof own, "%s, step %u", op, verdict->own->step);
    }
    if (strcmp(verdict->what, "failed") == 0)
        snprintf(text, size, "%s failed: %s%s", who, doc->text, waited);
    else if (strcmp(verdict->what, "suspended") == 0)
        snprintf(text, size, "%s was suspended for %.3g s%s%s%s", who, doc->suspended_s,
                 *own ? " in " : "", own, waited);
    else if (strcmp(verdict->what, "last") == 0)
        snprintf(text, size, "%s began %s, step %u, last, %.3g s after rank %u", who, op,
                 first->op->step, verdict->spread_s, first->by->rank);
    else if (strcmp(verdict->what, "late") == 0 && verdict->own)
        snprintf(text, size, "%s is to blame: %s, %s for %.3g s%s", who, own,
                 verdict->own->state == FLIGHT_DUE ? "has been due" : "has run",
                 fmax(doc->time - verdict->own->since, 0), waited);
    else if (strcmp(verdict->what, "late") == 0)
        snprintf(text, size, "%s is to blame: it has been %s for %.3g s%s", who, doc->doing,
                 doc->doing_s, waited);
    else
        snprintf(text, size, "%s %s%s%s", who,
                 strcmp(verdict->what, "died") == 0     ? "died"
                 : strcmp(verdict->what, "silent") == 0 ? "does not answer"
                                                        : "wrote no document",
                 waited, seen);
}

static json_t *op_to_json(const struct flight_op *op)
{
    return json_pack("{s:s,s:s,s:I,s:I,s:I}", "does", op->does, "subject", op->subject, "step",
                     (json_int_t)op->step, "micro_step", (json_int_t)op->micro_step, "op",
                     (json_int_t)op->index);
}

static json_t *verdict_to_json(const struct flights *all, const struct verdict *verdict)
{
    const struct flight_op *op = verdict->own ? verdict->own : verdict->first.op;
    char text[2048];

    describe(all, verdict, text, sizeof text);
    mics_utf8_make_line(text); /* its parts may have been cut within a character */
    json_t *json = json_pack("{s:s,s:s}", "what", verdict->what, "text", text);
    if (json && verdict->rank != FLIGHT_NONE) {
        json_object_set_new(json, "rank", json_integer(verdict->rank));
        json_object_set_new(json, "host", json_string(host_of(all, verdict)));
    }
    if (json && verdict->lost)
        json_object_set_new(json, "last_seen", json_string(verdict->lost->last_seen));
    if (json && op)
        json_object_set_new(json, "operation", op_to_json(op));
    if (json && verdict->first.op) {
        json_object_set_new(json, "waited_in", op_to_json(verdict->first.op));
        json_object_set_new(json, "first_waiting", json_integer(verdict->first.by->rank));
    }
    return json;
}

/*
 * Gathering.
 */

static int compare_ranks(const void *left, const void *right)
{
    const struct flight_rank *a = left, *b = right;

    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static enum mics_status read_all(json_t *const *docs, size_t count, struct flights *all,
                                 struct mics_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct mics_reading reading = {.err = err};
        const struct mics_cursor root = mics_cursor_begin(docs[i], &reading);

        enum mics_status status =
            mics_doc_expect(docs[i], MICS_FLIGHT_KIND, MICS_FLIGHT_VERSION, err);
        if (status != MICS_OK)
            return status;
        flight_rank_read(&root, &all->ranks[all->count++]);
        if (reading.status != MICS_OK)
            return reading.status;
        if (all->ranks[i].world_size != all->ranks[0].world_size)
            return mics_err_set(err, MICS_ERR_FORMAT, "of jobs of %u and of %u ranks",
                                all->ranks[0].world_size, all->ranks[i].world_size);
    }
    qsort(all->ranks, all->count, sizeof *all->ranks, compare_ranks);
    for (size_t i = 1; i < count; i++)
        if (all->ranks[i].rank == all->ranks[i - 1].rank)
            return mics_err_set(err, MICS_ERR_FORMAT, "two documents of rank %u",
                                all->ranks[i].rank);
    return MICS_OK;
}

/* The documents in the order of ranks, with the verdict. */
static enum mics_status make_doc(json_t *const *docs, const struct flights *all,
                                 const struct verdict *verdict, json_t **out, struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_FLIGHTS_KIND, MICS_FLIGHTS_VERSION), *list = json_array();
    bool failed = !doc || json_object_set_new(doc, "world_size", json_integer(all->world_size)) ||
                  json_object_set_new(doc, "verdict", verdict_to_json(all, verdict));

    for (size_t i = 0; i < all->count; i++)
        for (size_t j = 0; j < all->count; j++)
            if ((json_int_t)all->ranks[i].rank ==
                json_integer_value(json_object_get(docs[j], "rank")))
                failed = json_array_append(list, docs[j]) != 0 || failed;
    failed = json_object_set_new(doc, "ranks", list) != 0 || failed;
    if (!failed)
        *out = doc;
    else
        json_decref(doc);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_flights_gather(json_t *const *docs, size_t count, json_t **out,
                                     struct mics_err *err)
{
    struct flights all = {.ranks = calloc(count + 1, sizeof *all.ranks)};
    struct verdict verdict;
    bool *seen = NULL;
    enum mics_status status = MICS_OK;

    if (count == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "no document " MICS_FLIGHT_KIND);
    else
        status = all.ranks ? read_all(docs, count, &all, err) : mics_err_nomem(err);
    if (status == MICS_OK) {
        all.world_size = all.ranks[0].world_size;
        all.of = calloc(all.world_size, sizeof *all.of);
        seen = calloc(all.world_size, sizeof *seen);
        if (!all.of || !seen)
            status = mics_err_nomem(err);
    }
    if (status == MICS_OK) {
        for (size_t i = 0; i < all.count; i++)
            all.of[all.ranks[i].rank] = &all.ranks[i];
        judge(&all, seen, &verdict);
        status = make_doc(docs, &all, &verdict, out, err);
    }
    for (size_t i = 0; i < all.count; i++)
        flight_rank_fini(&all.ranks[i]);
    free(all.ranks);
    free(all.of);
    free(seen);
    return status;
}

struct doc_list {
    json_t **items;
    size_t count, capacity;
};

static enum mics_status add_file(const char *folder, const char *name, struct doc_list *list,
                                 struct mics_err *err)
{
    char path[MICS_PATH_MAX];

    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        json_t **items = realloc(list->items, capacity * sizeof *items);

        if (!items)
            return mics_err_nomem(err);
        list->items = items;
        list->capacity = capacity;
    }
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);
    if (status == MICS_OK)
        status = mics_doc_read_regular(path, &list->items[list->count], err);
    list->count += status == MICS_OK;
    return status;
}

enum mics_status mics_flights_load(const char *folder, json_t **out, struct mics_err *err)
{
    struct doc_list list = {0};
    struct mics_dir dir;
    const char *name;
    enum mics_status status = mics_dir_open(folder, &dir, err);

    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
        if (is_flight_name(name))
            status = add_file(folder, name, &list, err);
    status = mics_dir_close(&dir, status, err);
    if (status == MICS_OK) {
        status = mics_flights_gather(list.items, list.count, out, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", folder);
    }
    for (size_t i = 0; i < list.count; i++)
        json_decref(list.items[i]);
    free(list.items);
    return status;
}
