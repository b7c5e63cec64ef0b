/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - facts of all nodes, their clocks, and the document. */
#include "probe/check.h"

#include "comm/agree.h"
#include "comm/world.h"
#include "doc/doc.h"
#include "measure/statistics.h"
#include "plan/plan.h"
#include "probe/check_collectives.h"
#include "probe/check_measure.h"
#include "probe/findings.h"
#include "probe/node_facts.h"

#include <stdlib.h>
#include <string.h>

/* Rounds in which all clocks are read after a barrier; the median counts. */
enum { CLOCK_ROUNDS = 5 };
/* Of $MICS_LEFT_OUT: a host, and a reason of up to 500 bytes. */
enum { LEFT_OUT_LINE = 800 };

static uint32_t first_rank_of(const struct mics_world *world, uint32_t node)
{
    uint32_t rank = 0;

    for (uint32_t i = 0; i < node; i++)
        rank += world->ranks_of_node[i];
    return rank;
}

/* The line of $MICS_HOSTS for a host that calls itself so; lines that are `used` belong to other
 * nodes, of which several may call themselves alike. NULL: there is none. */
static const char *find_line(const struct mics_world *world, uint32_t node, const bool *used,
                             size_t *number)
{
    const char *own = world->host_of_node[node], *line = getenv(MICS_HOSTS);
    const size_t length = mics_world_host_length(own), most = sizeof world->host_of_node[node] - 1;

    for (*number = 0; line && *line; ++*number) {
        const size_t name = strcspn(line, " \n");

        /* a world's names may be cut */
        if (!used[*number] && line[name] == ' ' && strncmp(line, own, length) == 0 &&
            (name == length || length == most))
            return line + name + 1;
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return NULL;
}

static size_t count_lines(const char *text)
{
    size_t count = 1;

    for (; text && *text; text++)
        count += *text == '\n';
    return count;
}

/* Name the nodes as the user does: as mics-run tells, which leaves out those that call themselves
 * so, else as Slurm. A declared node keeps its number. */
static enum mics_status name_nodes(const struct mics_world *world, json_t *nodes,
                                   struct mics_err *err)
{
    bool *used = calloc(count_lines(getenv(MICS_HOSTS)), sizeof *used);
    enum mics_status status = used ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; i < world->node_count && status == MICS_OK; i++) {
        const char *own = world->host_of_node[i], *suffix = own + mics_world_host_length(own);
        json_t *node = json_array_get(nodes, i);
        const char *slurm =
            json_string_value(json_object_get(json_object_get(node, "facts"), "slurm_node"));
        size_t number, length;
        const char *named = find_line(world, i, used, &number);

        if (named && !world->declared)
            used[number] = true;
        if (!named)
            named = slurm && !getenv(MICS_HOSTS) ? slurm : own;
        length = named == own ? (size_t)(suffix - own) : strcspn(named, " \n");
        const int port = named[length] == ' ' ? atoi(named + length + 1) : 0;
        json_t *host = json_sprintf("%.*s%s", (int)length, named, suffix);
        if (!host || json_object_set_new(node, "host", host) != 0 ||
            (port > 0 && json_object_set_new(node, "port", json_integer(port)) != 0))
            status = mics_err_nomem(err);
    }
    free(used);
    return status;
}

/* The text of each rank, padded to `*width` bytes with zeros; the caller's. NULL after an error.
 * Collective. */
static char *gather_texts(const struct mics_world *world, const char *own, size_t *width,
                          enum mics_status *status, struct mics_err *err)
{
    const uint64_t size = strlen(own) + 1;
    char *padded = NULL, *all = NULL;
    uint64_t *sizes = mics_all_gather(world->comm, &size, sizeof size, status, err);

    *width = 0;
    for (uint32_t i = 0; sizes && i < world->size; i++)
        *width = sizes[i] > *width ? sizes[i] : *width;
    free(sizes);
    if (*status == MICS_OK && !(padded = calloc(1, *width)))
        *status = mics_err_nomem(err);
    if (*status == MICS_OK) {
        memcpy(padded, own, size);
        all = mics_all_gather(world->comm, padded, *width, status, err);
    }
    free(padded);
    return all;
}

/* [{host, ranks, facts}] of all nodes: the first rank of each reads them. Collective. */
static enum mics_status gather_facts(const struct mics_world *world, json_t **out,
                                     struct mics_err *err)
{
    json_t *facts = NULL, *nodes = json_array();
    enum mics_status status = world->local_rank == 0 ? mics_node_facts(&facts, err) : MICS_OK;
    char *text = facts ? json_dumps(facts, JSON_COMPACT) : strdup(""), *all = NULL;
    size_t width = 0;

    json_decref(facts);
    if (status == MICS_OK && !(text && nodes))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        all = gather_texts(world, text, &width, &status, err);
    for (uint32_t i = 0; i < world->node_count && status == MICS_OK; i++) {
        json_t *found = json_loads(all + first_rank_of(world, i) * width, 0, NULL);
        json_t *node = json_pack("{s:s, s:i, s:o}", "host", world->host_of_node[i], "ranks",
                                 (int)world->ranks_of_node[i], "facts", found);

        if (json_array_append_new(nodes, node) != 0)
            status = mics_err_nomem(err);
    }
    free(all);
    free(text);
    if (status == MICS_OK)
        *out = nodes;
    else
        json_decref(nodes);
    return status;
}

/* Add "time_offset_s" to each node: its clock against the median of all. A rank that leaves a
 * barrier late is behind in one round only. Collective. */
static enum mics_status add_clocks(const struct mics_world *world, json_t *nodes,
                                   struct mics_err *err)
{
    double own[CLOCK_ROUNDS], offsets[CLOCK_ROUNDS],
        *all = NULL, *times = calloc(world->node_count, sizeof *times);
    enum mics_status status = times ? MICS_OK : mics_err_nomem(err);

    for (int round = 0; round < CLOCK_ROUNDS && status == MICS_OK; round++) {
        status = mics_comm_barrier_now(world->comm, err);
        own[round] = mics_time_of_day_s();
    }
    if (status == MICS_OK)
        all = mics_all_gather(world->comm, own, sizeof own, &status, err);
    for (uint32_t node = 0; node < world->node_count && status == MICS_OK; node++) {
        for (int round = 0; round < CLOCK_ROUNDS; round++) {
            for (uint32_t i = 0; i < world->node_count; i++)
                times[i] = all[first_rank_of(world, i) * CLOCK_ROUNDS + round];
            const double mine = times[node];
            offsets[round] = mine - mics_median(times, world->node_count);
        }
        if (json_object_set_new(json_array_get(nodes, node), "time_offset_s",
                                json_real(mics_median(offsets, CLOCK_ROUNDS))) != 0)
            status = mics_err_nomem(err);
    }
    free(all);
    free(times);
    return status;
}

/* Add "throttled" to each node that tells: times that heat slowed its processors since the facts
 * were read. Collective. */
static enum mics_status add_throttled(const struct mics_world *world, json_t *nodes,
                                      struct mics_err *err)
{
    const long long own = mics_node_throttled();
    enum mics_status status = MICS_OK;
    long long *all = mics_all_gather(world->comm, &own, sizeof own, &status, err);

    for (uint32_t i = 0; i < world->node_count && status == MICS_OK; i++) {
        json_t *node = json_array_get(nodes, i);
        const json_t *before = json_object_get(json_object_get(node, "facts"), "throttled");
        const long long now = all[first_rank_of(world, i)];

        if (now < 0 || !json_is_integer(before))
            continue;
        if (json_object_set_new(node, "throttled", json_integer(now - json_integer_value(before))))
            status = mics_err_nomem(err);
    }
    free(all);
    return status;
}

/* A host of $MICS_LEFT_OUT: an entry of `list`, and a finding. */
static void add_left_out(struct mics_findings *findings, json_t *list, const char *host,
                         const char *why)
{
    const bool few = strncmp(why, "it has slots=", 13) == 0; /* it was not asked */
    json_t *entry = json_pack("{s:s, s:s}", "host", host, "why", why), *finding;

    if (json_array_append_new(list, entry) != 0)
        findings->failed = true;
    mics_findings_add(findings, few ? "fewer_slots" : "unreachable", -1, NULL, why,
                      few ? "the same slots" : "an answer");
    finding = json_array_get(findings->list, json_array_size(findings->list) - 1);
    if (json_object_set_new(finding, "host", json_string(host)) != 0)
        findings->failed = true;
}

/* [{host, why}] of $MICS_LEFT_OUT, and a finding for each. The reasons are what programs on the way
 * to the hosts have printed. An IPv6 address has colons, but no space behind them. */
static json_t *list_left_out(struct mics_findings *findings)
{
    const char *text = getenv(MICS_LEFT_OUT);
    json_t *list = json_array();

    while (text && *text) {
        const size_t length = strcspn(text, "\n");
        char line[LEFT_OUT_LINE], *why;

        snprintf(line, sizeof line, "%.*s", (int)length, text);
        for (char *c = line; *c; c++)
            if (*c < 0x20 || *c > 0x7e)
                *c = '?';
        why = strstr(line, ": ");
        if (why) {
            *why = '\0';
            why += 2;
        }
        if (line[0])
            add_left_out(findings, list, line, why ? why : "");
        text += length + (text[length] == '\n');
    }
    return list;
}

static json_t *list_hosts(const json_t *nodes)
{
    json_t *hosts = json_array();

    for (size_t i = 0; i < json_array_size(nodes); i++)
        json_array_append(hosts, json_object_get(json_array_get(nodes, i), "host"));
    return hosts;
}

static bool has_fault(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *level = json_string_value(json_object_get(json_array_get(list, i), "level"));

        if (level && strcmp(level, "fault") == 0)
            return true;
    }
    return false;
}

/* What a check has found so far. */
struct check {
    const struct mics_world *world;
    json_t *nodes, *measured, *links, *collectives; /* of the document; findings */
    const char *device, *dtype; /* that was measured, and of products; NULL: none */
};

/* The members that `check` owns are shared with the document. */
static enum mics_status make_document(const struct check *check, json_t **out, struct mics_err *err)
{
    const struct mics_world *world = check->world;
    json_t *doc = mics_doc_new(MICS_CHECK_KIND, MICS_CHECK_VERSION), *list = json_array();
    struct mics_findings findings = {.nodes = check->nodes, .list = list};
    json_t *unreachable = list_left_out(&findings);
    enum mics_status status = mics_findings_of_facts(check->nodes, list, err);
    bool failed = findings.failed || !doc || json_array_extend(list, check->measured) != 0;

    failed |= json_object_set_new(doc, "verdict", json_string(has_fault(list) ? "bad" : "good"));
    failed |= json_object_set_new(doc, "hosts", list_hosts(check->nodes)) != 0;
    failed |= json_object_set_new(doc, "declared_nodes", json_boolean(world->declared)) != 0;
    failed |= json_object_set_new(doc, "per_node", json_integer(world->ranks_of_node[0])) != 0;
    failed |= json_object_set_new(doc, "unreachable", unreachable) != 0;
    failed |= json_object_set_new(doc, "bad_nodes",
                                  mics_findings_bad_nodes(list, world->node_count)) != 0;
    failed |= json_object_set_new(doc, "findings", list) != 0;
    failed |= json_object_set(doc, "nodes", check->nodes) != 0;
    if (check->device)
        failed |= json_object_set_new(doc, "device", json_string(check->device)) != 0 ||
                  json_object_set_new(doc, "flops_dtype", json_string(check->dtype)) != 0;
    if (check->links)
        failed |= json_object_set(doc, "links", check->links) != 0;
    if (check->collectives)
        failed |= json_object_set(doc, "collectives", check->collectives) != 0;
    if (status == MICS_OK && failed)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

/* Seconds of each kind of work of a rank, of a transfer between nodes, and of a collective. */
static const double quick_work_s = 0.1, whole_work_s = 0.5, quick_transfer_s = 0.1,
                    whole_transfer_s = 0.4, quick_collective_s = 0.1, whole_collective_s = 2;

/* Collective. */
static enum mics_status measure(struct check *check, struct mics_world *world, bool quick,
                                enum mics_device_kind device, struct mics_err *err)
{
    struct mics_findings findings = {.nodes = check->nodes, .list = check->measured};
    struct mics_bench bench;
    enum mics_status status = mics_bench_init(&bench, world, device, 0, err);

    if (status != MICS_OK)
        return status;
    status = mics_check_measure_ranks(&findings, &bench, quick ? quick_work_s : whole_work_s,
                                      check->nodes, err);
    check->device = bench.device->on_host ? "host" : "cuda";
    check->dtype = mics_dtype_name(bench.product_dtype);
    if (status == MICS_OK)
        status = mics_check_measure_collectives(&findings, &bench,
                                                quick ? quick_collective_s : whole_collective_s,
                                                check->nodes, &check->collectives, err);
    mics_bench_fini(&bench);
    if (status == MICS_OK && world->node_count > 1)
        status = mics_check_measure_links(
            &findings, world, quick ? quick_transfer_s : whole_transfer_s, &check->links, err);
    if (status == MICS_OK)
        mics_check_compare_with_links(&findings, check->collectives, check->links);
    return status == MICS_OK && findings.failed ? mics_err_nomem(err) : status;
}

enum mics_status mics_check_run(struct mics_world *world, enum mics_check_extent extent,
                                enum mics_device_kind device, json_t **out, struct mics_err *err)
{
    struct check check = {.world = world, .measured = json_array()};
    enum mics_status status = gather_facts(world, &check.nodes, err);

    if (status == MICS_OK)
        status = name_nodes(world, check.nodes, err);
    if (status == MICS_OK)
        status = add_clocks(world, check.nodes, err);
    if (status == MICS_OK && extent != MICS_CHECK_FACTS)
        status = measure(&check, world, extent == MICS_CHECK_QUICK, device, err);
    if (status == MICS_OK)
        status = add_throttled(world, check.nodes, err);
    if (status == MICS_OK)
        status = make_document(&check, out, err);
    json_decref(check.nodes);
    json_decref(check.measured);
    json_decref(check.links);
    json_decref(check.collectives);
    return status;
}

enum mics_status mics_check_settle(json_t *doc, struct mics_err *err)
{
    const json_t *list = json_object_get(doc, "findings");
    json_t *bad = mics_findings_bad_nodes(list, json_array_size(json_object_get(doc, "nodes")));

    if (json_object_set_new(doc, "bad_nodes", bad) != 0 ||
        json_object_set_new(doc, "verdict", json_string(has_fault(list) ? "bad" : "good")) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

bool mics_check_is_good(const json_t *doc)
{
    return !has_fault(json_object_get(doc, "findings"));
}
