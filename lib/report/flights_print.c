/* SPDX-License-Identifier: Apache-2.0 */
/* flights_print.c - documents mics.flight and mics.flights as tables. */
#include "report/flights_internal.h"

#include "base/utf8.h"
#include "doc/doc.h"
#include "doc/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_line(FILE *out, const char *text)
{
    mics_utf8_put(out, text, strlen(text));
    fputc('\n', out);
}

/* One row of the table of a rank's operations; times are seconds before the document. */
static void add_op(struct mics_table *table, const struct flight_rank *rank,
                   const struct flight_op *op, int tsv)
{
    static const char *const states[] = {
        [FLIGHT_ENDED] = "ended", [FLIGHT_RUNNING] = "running", [FLIGHT_DUE] = "due"};

    mics_table_cell(table, "%s", states[op->state]);
    mics_table_cell(table, "%s", op->of);
    mics_table_cell(table, "%u", op->step);
    mics_table_cell(table, "%u", op->micro_step);
    mics_table_cell(table, "%s", op->does);
    mics_table_cell(table, "%s", op->subject);
    mics_table_cell(table, "%s", op->stream);
    if (op->group) {
        mics_table_cell(table, "%s", op->group->communicator);
        mics_table_cell(table, "%zu", op->group->count);
        mics_table_cell(table, "%u", op->sequence);
    } else {
        mics_table_cell(table, "-");
        mics_table_cell(table, "-");
        mics_table_cell(table, "-");
    }
    mics_table_time(table, tsv, fmax(rank->time - op->since, 0));
    mics_table_time(table, tsv,
                    fmax((op->state == FLIGHT_ENDED ? op->end : rank->time) - op->since, 0));
}

enum mics_status mics_flight_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    struct flight_rank rank;
    enum mics_status status = mics_doc_expect(doc, MICS_FLIGHT_KIND, MICS_FLIGHT_VERSION, err);

    if (status != MICS_OK)
        return status;
    flight_rank_read(&root, &rank);
    status = reading.status;
    if (status == MICS_OK) {
        struct mics_table *table = mics_table_new("<state|<of|>step|>micro|<does|<unit|<stream|"
                                                  "<communicator|>ranks|>#|>ago|>took");

        for (size_t i = 0; i < rank.op_count; i++)
            add_op(table, &rank, &rank.ops[i], tsv);
        if (!tsv) {
            fprintf(out, "rank %u of %u (", rank.rank, rank.world_size);
            mics_utf8_put(out, rank.host, strlen(rank.host));
            fprintf(out, "), %s: ", rank.reason);
            put_line(out, rank.text);
        }
        status = mics_table_finish(table, out, tsv, err);
    }
    flight_rank_fini(&rank);
    return status;
}

/* What the table of all ranks says of one of them. */
struct row_notes {
    uint32_t blamed, first_waiting; /* or FLIGHT_NONE */
};

static void add_named(struct mics_table *table, const struct flight_op *op)
{
    char name[300], group[80] = "";

    if (!op) {
        mics_table_cell(table, "-");
        return;
    }
    flight_op_name(op, name, sizeof name);
    if (op->group)
        snprintf(group, sizeof group, " (%.40s #%u)", op->group->communicator, op->sequence);
    mics_table_cell(table, "step %u: %s%s", op->step, name, group);
}

static const char *note_of(uint32_t rank, const struct row_notes *notes)
{
    if (rank == notes->blamed)
        return "to blame";
    return rank == notes->first_waiting ? "first to wait" : "";
}

static void add_rank(struct mics_table *table, const struct flight_rank *rank,
                     const struct row_notes *notes, int tsv)
{
    const struct flight_op *current = flight_current(rank);

    mics_table_cell(table, "%u", rank->rank);
    mics_table_cell(table, "%s", rank->host);
    mics_table_cell(table, "%s", rank->reason);
    add_named(table, flight_last_ended(rank));
    if (current) {
        add_named(table, current);
        mics_table_time(table, tsv, fmax(rank->time - current->since, 0));
    } else {
        mics_table_cell(table, "%s", rank->doing);
        mics_table_time(table, tsv, rank->doing_s);
    }
    mics_table_cell(table, "%s", note_of(rank->rank, notes));
}

static void add_missing(struct mics_table *table, uint32_t rank, const struct row_notes *notes)
{
    mics_table_cell(table, "%u", rank);
    for (int i = 0; i < 5; i++)
        mics_table_cell(table, i == 1 ? "no document" : "-");
    mics_table_cell(table, "%s", note_of(rank, notes));
}

static uint32_t opt_rank(const struct mics_cursor *verdict, const char *key)
{
    return mics_cursor_opt_u32(verdict, key, 0, FLIGHT_NONE - 1, FLIGHT_NONE);
}

enum mics_status mics_flights_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    enum mics_status status = mics_doc_expect(doc, MICS_FLIGHTS_KIND, MICS_FLIGHTS_VERSION, err);

    if (status != MICS_OK)
        return status;
    const uint32_t world_size = mics_cursor_get_u32(&root, "world_size", 1, 1 << 20);
    const struct mics_cursor verdict = mics_cursor_get_object(&root, "verdict");
    const struct mics_cursor ranks = mics_cursor_get_array(&root, "ranks", 0, world_size);
    const struct row_notes notes = {opt_rank(&verdict, "rank"),
                                    opt_rank(&verdict, "first_waiting")};
    const char *text = mics_cursor_get_string(&verdict, "text");
    struct mics_table *table = mics_table_new("rank|<host|<wrote|<last completed|<current|>for|<");
    uint32_t next = 0;

    for (size_t i = 0; i < mics_cursor_count(&ranks); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&ranks, i);
        struct flight_rank rank;

        flight_rank_read(&item, &rank);
        for (; mics_cursor_ok(&item) && next < rank.rank && next < world_size; next++)
            add_missing(table, next, &notes);
        next = rank.rank + 1;
        add_rank(table, &rank, &notes, tsv);
        flight_rank_fini(&rank);
    }
    for (; mics_cursor_ok(&root) && next < world_size; next++)
        add_missing(table, next, &notes);
    if (reading.status != MICS_OK) {
        mics_table_free(table);
        return reading.status;
    }
    if (!tsv) {
        put_line(out, text);
        fputc('\n', out);
    }
    return mics_table_finish(table, out, tsv, err);
}
