/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_dot.h"

#include "base/units.h"
#include "doc/dot.h"
#include "plan/plan.h"

/* Groups that are drawn of a large plan: the first ones and the last. */
enum { FIRST_GROUPS = 2 };

static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#8C6D1F", "#444444"};

static const char *colour_of(uint32_t shard)
{
    return colours[shard % (sizeof colours / sizeof *colours)];
}

static void begin_cluster(FILE *out, const char *kind, uint32_t index, const char *colour)
{
    fprintf(
        out,
        "  subgraph cluster_%s%u {\n    style=\"rounded,filled\"; fontsize=13; color=\"#666666\"; "
        "fillcolor=\"%s\"; label=\"%s %u\"\n",
        kind, index, colour, kind, index);
}

static void put_rank(FILE *out, const struct mics_shape *shape, uint32_t rank)
{
    const struct mics_index index = mics_shape_index(shape, rank);

    fprintf(out, "    r%u [label=\"rank %u", rank, rank);
    if (shape->p_param > 1)
        fprintf(out, "\\nshard %u", index.param);
    fprintf(out, "\", color=\"%s\", penwidth=2]\n", colour_of(index.param));
}

/* The ranks [first, first + count) and clusters around every `inner` of them. */
static void put_ranks(FILE *out, const struct mics_shape *shape, uint32_t first, uint32_t count,
                      const char *inner_kind, uint32_t inner)
{
    for (uint32_t i = first; i < first + count; i++) {
        if (inner > 1 && i % inner == 0)
            begin_cluster(out, inner_kind, i / inner, "#ffffff");
        put_rank(out, shape, i);
        if (inner > 1 && (i + 1) % inner == 0)
            fputs("  }\n", out);
    }
}

/* Nodes around groups, or groups around nodes; a cluster as large as another would hide it. */
static void put_all_ranks(FILE *out, const struct mics_shape *shape)
{
    const uint32_t p = shape->p_param, k = shape->per_node, n = mics_shape_world_size(shape);
    const bool groups_outside = p > k;
    const uint32_t outer = groups_outside ? p : k;
    const uint32_t inner = groups_outside ? k : p == k ? 1 : p;

    for (uint32_t first = 0; first < n; first += outer) {
        if (outer > 1 && p == k) {
            fprintf(out,
                    "  subgraph cluster_node%u {\n    style=\"rounded,filled\"; fontsize=13; "
                    "color=\"#666666\"; fillcolor=\"#eef3fa\"; label=\"node %u = group %u\"\n",
                    first / k, first / k, first / p);
        } else if (outer > 1) {
            begin_cluster(out, groups_outside ? "group" : "node", first / outer, "#eef3fa");
        }
        put_ranks(out, shape, first, outer, groups_outside ? "node" : "group", inner);
        if (outer > 1)
            fputs("  }\n", out);
    }
}

/* A chain through the ranks that hold the same shard of the parameters. */
static void put_replicas(FILE *out, const struct mics_shape *shape)
{
    const uint32_t p = shape->p_param, n = mics_shape_world_size(shape);

    for (uint32_t i = 0; i + p < n; i++)
        fprintf(out, "  r%u -- r%u [color=\"%s\"]\n", i, i + p,
                colour_of(mics_shape_index(shape, i).param));
}

static void put_group(FILE *out, const struct mics_shape *shape, uint32_t group)
{
    const uint32_t p = shape->p_param, k = shape->per_node, first = group * p;

    fprintf(out, "  g%u [shape=box, margin=\"0.2,0.15\", fillcolor=\"#eef3fa\", label=", group);
    if (p == 1)
        mics_dot_textf(out, "rank %u\nall parameters", first);
    else if (p <= k)
        mics_dot_textf(out,
                       "partition group %u\nranks %u to %u, on node %u\neach 1/%u of the "
                       "parameters",
                       group, first, first + p - 1, first / k, p);
    else
        mics_dot_textf(out,
                       "partition group %u\nranks %u to %u\nnodes %u to %u x %u ranks\neach 1/%u "
                       "of the parameters",
                       group, first, first + p - 1, first / k, (first + p - 1) / k, k, p);
    fputs("]\n", out);
}

static void put_collapsed(FILE *out, const struct mics_shape *shape)
{
    const uint32_t p = shape->p_param, r = mics_shape_world_size(shape) / p;
    const uint32_t whole = r <= FIRST_GROUPS + 2 ? r : FIRST_GROUPS;

    for (uint32_t i = 0; i < whole; i++)
        put_group(out, shape, i);
    for (uint32_t i = 0; i + 1 < whole; i++)
        fprintf(out, "  g%u -- g%u [color=\"#0072B2\", penwidth=3]\n", i, i + 1);
    if (whole == r)
        return;
    fprintf(out, "  more [shape=plaintext, style=\"\", label=\"%u more groups\"]\n", r - whole - 1);
    put_group(out, shape, r - 1);
    fprintf(out,
            "  g%u -- more [color=\"#0072B2\", penwidth=3]\n  more -- g%u [color=\"#0072B2\", "
            "penwidth=3]\n",
            whole - 1, r - 1);
}

/* The plan, and what the edges are and carry. */
static void write_title(const struct mics_plan *plan, char *title, size_t size)
{
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE];
    const uint32_t n = mics_shape_world_size(shape), p = shape->p_param;
    const uint64_t width = mics_dtype_bytes(plan->choice.grad_dtype);
    const uint32_t interval = mics_choice_interval(&plan->choice);
    char bytes[32], how_often[40] = "once a step";
    int used = snprintf(title, size, "%.60s, %s: %u node%s x %u, partition groups of %u\n",
                        plan->model->config.name, plan->choice.strategy, shape->nodes,
                        shape->nodes == 1 ? "" : "s", shape->per_node, p);

    mics_format_bytes(plan->model->param_count / p * width, bytes, sizeof bytes);
    if (interval > 1)
        snprintf(how_often, sizeof how_often, "in turns, once in %u steps", interval);
    if (p == n)
        snprintf(title + used, size - (size_t)used, "each rank holds another shard");
    else
        snprintf(title + used, size - (size_t)used,
                 "edges: %u replication group%s of %u ranks with the same shard; their gradients, "
                 "%s a rank, are summed %s",
                 p, p == 1 ? "" : "s", n / p, bytes, how_often);
}

enum mics_status mics_plan_dot(FILE *out, const json_t *doc, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    const enum mics_status status = mics_plan_from_doc((json_t *)(uintptr_t)doc, &plan, err);
    char title[400];

    if (status != MICS_OK)
        return status;
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE];
    write_title(plan, title, sizeof title);
    mics_dot_begin(out, "LR", title);
    if (mics_shape_world_size(shape) <= MICS_DOT_RANKS) {
        put_all_ranks(out, shape);
        put_replicas(out, shape);
    } else {
        put_collapsed(out, shape);
    }
    fputs("}\n", out);
    mics_plan_free(plan);
    return MICS_OK;
}
