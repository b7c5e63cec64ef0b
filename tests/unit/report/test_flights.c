/* SPDX-License-Identifier: Apache-2.0 */
/* test_flights.c - which rank is to blame, by documents of ranks whose end is known. */
#include "doc/doc.h"
#include "report/flights.h"
#include "tap.h"

#include <string.h>

enum { MAX_RANKS = 4 };

static struct mics_err err;
static json_t *docs[MAX_RANKS];
static json_t *gathered;
static const double now = 1000;

/* A document of a rank without operations; group 0 has all ranks, group 1 the ranks 0 and 1, group
 * 2 the last two. */
static json_t *make_rank(int rank, int world_size)
{
    json_t *doc =
        json_pack("{s:s,s:i,s:i,s:i,s:s,s:f,s:s,s:s,s:i,s:s,s:f,s:[],s:[{s:s,s:[]},{s:s,"
                  "s:[i,i]},{s:s,s:[i,i]}],s:[]}",
                  "kind", MICS_FLIGHT_KIND, "v", MICS_FLIGHT_VERSION, "rank", rank, "world_size",
                  world_size, "host", "node", "time", now, "reason", "stall", "text", "no progress",
                  "step", 7, "doing", "agreeing", "doing_s", 4.0, "lost", "groups", "communicator",
                  "gather", "ranks", "communicator", "reduce", "ranks", 0, 1, "communicator",
                  "replica", "ranks", world_size - 2, world_size - 1, "ops");

    for (int i = 0; i < world_size; i++)
        json_array_append_new(
            json_object_get(json_array_get(json_object_get(doc, "groups"), 0), "ranks"),
            json_integer(i));
    return doc;
}

static void make_ranks(int count)
{
    for (int i = 0; i < count; i++)
        docs[i] = make_rank(i, count);
}

/* An operation that has been in `state` for `ago` seconds; group -1: a computation. */
static void add_op(int rank, const char *state, int index, const char *does, int group, double ago)
{
    json_t *op =
        json_pack("{s:s,s:s,s:i,s:i,s:i,s:s,s:s,s:i,s:s,s:f}", "state", state, "of", "step",
                  "number", 7, "step", 7, "op", index, "does", does, "subject", "h.1", "micro_step",
                  0, "stream", group < 0 ? "compute" : "gather_net", "since", now - ago);

    if (strcmp(state, "ended") == 0)
        json_object_set_new(op, "end", json_real(now - ago + 0.001));
    if (group >= 0) {
        json_object_set_new(op, "group", json_integer(group));
        json_object_set_new(op, "sequence", json_integer(index));
    }
    json_array_append_new(json_object_get(docs[rank], "ops"), op);
}

static enum mics_status gather(size_t count)
{
    const enum mics_status status = mics_flights_gather(docs, count, &gathered, &err);

    for (size_t i = 0; i < count; i++)
        json_decref(docs[i]);
    return status;
}

/* The verdict on documents that were made; -1: no rank. */
static void expect_verdict(size_t count, const char *what, int rank, const char *operation,
                           int first_waiting)
{
    if (gather(count) != MICS_OK) {
        CHECK_STR(err.text, "");
        return;
    }
    const json_t *verdict = json_object_get(gathered, "verdict");
    const json_t *op = json_object_get(verdict, "operation");

    CHECK_STR(json_string_value(json_object_get(verdict, "what")), what);
    CHECK_INT(json_object_get(verdict, "rank")
                  ? (int)json_integer_value(json_object_get(verdict, "rank"))
                  : -1,
              rank);
    CHECK_STR(op ? json_string_value(json_object_get(op, "does")) : "", operation);
    CHECK_INT(json_object_get(verdict, "first_waiting")
                  ? (int)json_integer_value(json_object_get(verdict, "first_waiting"))
                  : -1,
              first_waiting);
}

static bool verdict_has(const char *text)
{
    const json_t *verdict = json_object_get(gathered, "verdict");

    return verdict && strstr(json_string_value(json_object_get(verdict, "text")), text) != NULL;
}

static void drop(void)
{
    json_decref(gathered);
    gathered = NULL;
}

static void a_rank_that_computes_while_others_wait_is_to_blame(void)
{
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 4.5);
    add_op(1, "ended", 3, "forward", -1, 6);
    add_op(1, "running", 4, "backward", -1, 5);
    expect_verdict(2, "late", 1, "backward", 0);
    CHECK(verdict_has("rank 1 (node) is to blame: backward of h.1, micro-step 0, step 7, has run"));
    CHECK(verdict_has("rank 0 was the first to wait"));
    drop();
}

static void a_collective_that_is_due_and_not_begun_is_named(void)
{
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 4.5);
    add_op(1, "due", 5, "gather", 0, 4.6);
    expect_verdict(2, "late", 1, "gather", 0);
    CHECK(verdict_has("has been due for 4.6 s"));
    drop();
}

static void who_waits_itself_is_not_to_blame(void)
{
    make_ranks(3);
    add_op(0, "running", 5, "reduce", 1, 4); /* for rank 1 */
    add_op(1, "running", 3, "sync", 2, 4.5); /* for rank 2 */
    add_op(2, "running", 2, "update", -1, 5);
    expect_verdict(3, "late", 2, "update", 1);
    drop();
}

static void a_rank_that_began_a_later_collective_has_begun_the_earlier(void)
{
    make_ranks(3);
    add_op(0, "running", 4, "gather", 0, 4);
    add_op(1, "running", 6, "gather", 0, 3);
    add_op(2, "running", 1, "forward", -1, 5);
    expect_verdict(3, "late", 2, "forward", 0);
    drop();
}

static void a_main_thread_that_reads_is_to_blame(void)
{
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 4);
    json_object_set_new(docs[1], "doing", json_string("reading"));
    expect_verdict(2, "late", 1, "gather", 0);
    CHECK(verdict_has("rank 1 (node) is to blame: it has been reading for 4 s"));
    drop();
}

static void a_rank_that_validates_and_waits_in_a_collective_is_not_to_blame(void)
{
    make_ranks(4);
    for (int i = 0; i < 4; i++)
        json_object_set_new(docs[i], "doing", json_string("validating"));
    add_op(0, "running", 5, "gather", 1, 5); /* of the ranks 0 and 1 */
    json_object_set_new(json_array_get(json_object_get(docs[1], "groups"), 2), "ranks",
                        json_pack("[i,i]", 1, 3));
    add_op(1, "running", 4, "gather", 2, 4);
    add_op(3, "running", 3, "forward", -1, 3.5);
    expect_verdict(4, "late", 3, "forward", 1);
    drop();
}

static void a_text_that_is_cut_within_a_character_is_still_text(void)
{
    char host[300] = "node";

    for (int i = 0; i < 2; i++) { /* whatever is before it: one of the two is cut in a character */
        make_ranks(2);
        add_op(0, "running", 5, "gather", 0, 4.5);
        add_op(1, "running", 4, "backward", -1, 5);
        for (size_t at = 4 + (size_t)i; at + 3 < sizeof host; at += 2)
            memcpy(host + at, "\303\274", 3); /* u umlaut */
        json_object_set_new(docs[1], "host", json_string(host));
        expect_verdict(2, "late", 1, "backward", 0);
        CHECK(verdict_has("rank 1 (node"));
        drop();
        host[4] = 'x';
    }
}

static void a_death_that_was_seen_counts_first(void)
{
    make_ranks(3);
    add_op(0, "running", 5, "gather", 0, 4);
    add_op(1, "running", 4, "backward", -1, 5);
    json_array_append_new(json_object_get(docs[1], "lost"),
                          json_pack("{s:i,s:s,s:b,s:s}", "rank", 2, "host", "far", "dead", 1,
                                    "last_seen", "step 7: forward of h.0, micro-step 0"));
    json_decref(docs[2]);
    expect_verdict(2, "died", 2, "gather", 0);
    CHECK(verdict_has("rank 2 (far) died; "));
    CHECK(verdict_has("last seen in step 7: forward of h.0, micro-step 0"));
    CHECK_STR(json_string_value(json_object_get(json_object_get(gathered, "verdict"), "last_seen")),
              "step 7: forward of h.0, micro-step 0");
    drop();
}

static void a_rank_without_a_document_that_others_wait_for_is_to_blame(void)
{
    make_ranks(3);
    json_decref(docs[1]);
    docs[1] = docs[2];
    add_op(0, "running", 5, "reduce", 1, 4); /* of the ranks 0 and 1 */
    expect_verdict(2, "missing", 1, "reduce", 0);
    CHECK(verdict_has("rank 1 wrote no document"));
    drop();
    make_ranks(3); /* between steps, in what is no operation of one */
    json_decref(docs[1]);
    docs[1] = docs[2];
    expect_verdict(2, "missing", 1, "", -1);
    CHECK(verdict_has("rank 1 wrote no document"));
    drop();
    make_ranks(3); /* of more than one that is not known */
    json_decref(docs[1]);
    json_decref(docs[2]);
    expect_verdict(1, "undecided", -1, "", -1);
    drop();
}

static void a_rank_that_was_suspended_is_to_blame_for_what_it_was_in(void)
{
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 4.5);
    add_op(1, "running", 5, "gather", 0, 0.1);
    json_array_insert_new(json_object_get(docs[1], "ops"), 0,
                          json_pack("{s:s,s:s,s:i,s:i,s:i,s:s,s:s,s:i,s:s,s:f,s:f}", "state",
                                    "ended", "of", "step", "number", 7, "step", 7, "op", 4, "does",
                                    "backward", "subject", "h.1", "micro_step", 0, "stream",
                                    "compute", "since", now - 5, "end", now - 0.2));
    json_object_set_new(docs[1], "suspended_s", json_real(4.7));
    json_object_set_new(docs[1], "suspended_until", json_real(now - 0.2));
    expect_verdict(2, "suspended", 1, "backward", 0);
    CHECK(verdict_has("rank 1 (node) was suspended for 4.7 s in backward of h.1"));
    drop();
    make_ranks(2); /* it has done so much since that what it was in is not in its document */
    add_op(0, "running", 5, "gather", 0, 4.5);
    add_op(1, "running", 9, "gather", 0, 0.1);
    json_object_set_new(docs[1], "suspended_s", json_real(4.7));
    json_object_set_new(docs[1], "suspended_until", json_real(now - 0.2));
    expect_verdict(2, "suspended", 1, "gather", 0);
    drop();
}

static void the_last_of_all_is_named_if_it_came_much_later(void)
{
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 4.5);
    add_op(1, "running", 5, "gather", 0, 4.4);
    expect_verdict(2, "undecided", -1, "gather", 0);
    CHECK(verdict_has("it cannot be told which rank is to blame: all ranks of gather of h.1"));
    drop();
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 9);
    add_op(1, "running", 5, "gather", 0, 4);
    expect_verdict(2, "last", 1, "gather", 0);
    drop();
    make_ranks(2);
    expect_verdict(2, "undecided", -1, "", -1);
    CHECK(verdict_has("no rank waited for another"));
    drop();
}

static void a_failure_of_a_rank_counts_before_what_follows_from_it(void)
{
    make_ranks(2);
    add_op(0, "running", 5, "gather", 0, 4.5);
    json_object_set_new(docs[0], "reason", json_string("peer"));
    json_object_set_new(docs[1], "reason", json_string("failure"));
    json_object_set_new(docs[1], "text", json_string("the disk is full"));
    expect_verdict(2, "failed", 1, "gather", 0);
    CHECK(verdict_has("rank 1 (node) failed: the disk is full"));
    drop();
}

static void both_kinds_of_documents_are_printed(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    make_ranks(3);
    add_op(0, "running", 5, "gather", 0, 4.5);
    add_op(1, "ended", 3, "forward", -1, 6);
    add_op(1, "running", 4, "backward", -1, 5);
    CHECK_INT(mics_flight_print(out, docs[1], 0, &err), MICS_OK);
    json_decref(docs[2]);
    CHECK_INT(gather(2), MICS_OK);
    CHECK_INT(mics_flights_print(out, gathered, 0, &err), MICS_OK);
    CHECK_INT(mics_flights_print(out, gathered, 1, &err), MICS_OK);
    fclose(out);
    CHECK(strstr(text, "rank 1 of 3 (node), stall: no progress\n") != NULL);
    CHECK(strstr(text, "step 7: backward of h.1, micro-step 0") != NULL);
    CHECK(strstr(text, "no document") != NULL);
    CHECK(strstr(text, "first to wait\n") != NULL);
    free(text);
    drop();
}

static void refused(size_t count, const char *text)
{
    CHECK_INT(gather(count), MICS_ERR_FORMAT);
    CHECK_STR(err.text, text);
}

static void malformed_documents_are_refused(void)
{
    CHECK_INT(mics_flights_gather(docs, 0, &gathered, &err), MICS_ERR_FORMAT);
    make_ranks(2);
    json_object_set_new(docs[1], "rank", json_integer(0));
    refused(2, "two documents of rank 0");
    docs[0] = make_rank(0, 2);
    docs[1] = make_rank(1, 3);
    refused(2, "of jobs of 2 and of 3 ranks");
    docs[0] = make_rank(0, 2);
    add_op(0, "over", 1, "gather", 0, 1);
    refused(1, "ops[0].state: expected ended, running or due, found \"over\"");
    docs[0] = make_rank(0, 2);
    add_op(0, "running", 1, "gather", 7, 1);
    refused(1, "ops[0].group: expected 0 to 2, found 7");
    make_ranks(3); /* the rank is not in the group of its collective, which others have ended */
    json_object_set_new(json_array_get(json_object_get(docs[0], "groups"), 1), "ranks",
                        json_pack("[i,i]", 1, 2));
    add_op(0, "running", 5, "gather", 1, 1);
    add_op(1, "ended", 6, "gather", 0, 1);
    add_op(2, "ended", 6, "gather", 0, 1);
    refused(3, "ops[0].group: rank 0 is no member of it");
    docs[0] = make_rank(0, 2);
    json_object_set_new(json_array_get(json_object_get(docs[0], "groups"), 1), "ranks",
                        json_pack("[i,i]", 1, 0));
    refused(1, "groups[1].ranks[1]: expected ranks of the job in ascending order");
}

int main(void)
{
    TAP_RUN(a_rank_that_computes_while_others_wait_is_to_blame);
    TAP_RUN(a_collective_that_is_due_and_not_begun_is_named);
    TAP_RUN(who_waits_itself_is_not_to_blame);
    TAP_RUN(a_rank_that_began_a_later_collective_has_begun_the_earlier);
    TAP_RUN(a_main_thread_that_reads_is_to_blame);
    TAP_RUN(a_rank_that_validates_and_waits_in_a_collective_is_not_to_blame);
    TAP_RUN(a_text_that_is_cut_within_a_character_is_still_text);
    TAP_RUN(a_death_that_was_seen_counts_first);
    TAP_RUN(a_rank_without_a_document_that_others_wait_for_is_to_blame);
    TAP_RUN(a_rank_that_was_suspended_is_to_blame_for_what_it_was_in);
    TAP_RUN(the_last_of_all_is_named_if_it_came_much_later);
    TAP_RUN(a_failure_of_a_rank_counts_before_what_follows_from_it);
    TAP_RUN(both_kinds_of_documents_are_printed);
    TAP_RUN(malformed_documents_are_refused);
    return tap_done();
}
