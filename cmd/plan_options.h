/* SPDX-License-Identifier: Apache-2.0 */
/* plan_options.h - what the command line of mics-plan asks for. */
#ifndef MICS_CMD_PLAN_OPTIONS_H
#define MICS_CMD_PLAN_OPTIONS_H

#include "cli/cli.h"
#include "plan/search/search.h"
#include "plan/target.h"
#include "plan/usable_nodes.h"

struct plan_request {
    struct cli_common common;
    /* outer_lr, outer_momentum < 0, sync_warmup MICS_AUTO: the default */
    struct mics_search_options search;
    struct mics_cluster_options cluster;
    const char *model, *topology, *catalogue, *launch, *file, *trace, *hostfile, *check, *like;
    struct mics_training training;
    uint32_t vocab_size; /* 0: the model's */
    /* kind MICS_BALANCE_KINDS, z_coefficient < 0: the model's */
    struct mics_balance balance;
    double mask_rate;                 /* 0: the model's */
    double capacity;                  /* of experts; 0: they take all rows */
    uint32_t like_nodes;              /* 0: those of `like` */
    const struct mics_target *target; /* --for, or NULL */
    const char *from, *settings;      /* --from, --settings, or NULL */
    json_t *configured;               /* with `from`: what the plan's document says of it */
    bool schedule, list_models;
    /* Are these options given? */
    bool has_optimizer, has_sync_dtype, has_rounding, has_gather_dtype, has_experts, has_offload;
    uint32_t profile; /* enum mics_profile; MICS_AUTO: the topology's */
};

extern const struct cli_program plan_program;

/* Into `request`, with the defaults; *operands is the index of the first operand. -1 to go on, else
 * the exit code. */
int plan_parse(int argc, char **argv, struct plan_request *request, int *operands);

/* Do formats, interval and outer steps go together? MICS_ERR_ARG. */
enum mics_status plan_check_exchanges(const struct plan_request *request, struct mics_err *err);

/* Do the options and the operands go together? -1 to go on, else the exit code. */
int plan_check_usage(struct plan_request *request, int argc, char **argv, int operands);

/* plan_like.c: read the plan of --like. Its global batch, sequence length, optimizer, types,
 * clipping and memory limit become those of the request, for a plan that can continue its training;
 * so do formats, interval, outer steps and how often its state is kept in memory, unless the
 * command line says otherwise. MICS_ERR_ARG: the two do not go together.
 * *topology is its cluster with request->like_nodes nodes (0: as many), *model its model; both
 * belong to the caller. */
enum mics_status plan_open_like(struct plan_request *request, struct mics_topology **topology,
                                struct mics_model **model, struct mics_err *err);

/* plan_target.c: search with copies of topology and model, which then belong to the plan. Errors as
 * of mics_plan_search_usable(). */
enum mics_status plan_search_copies(const struct plan_request *request,
                                    const struct mics_topology *topology,
                                    const struct mics_model *model,
                                    const struct mics_search_options *options,
                                    struct mics_plan **out, struct mics_err *err);

/* plan_from.c: the plan of the job that the configuration request->from describes, or with
 * --strategy=auto the best one. Compares the two in messages and in request->configured, and writes
 * request->settings. Options that were given win. On success *out has its own topology and model;
 * those that are given stay the caller's. MICS_ERR_INFEASIBLE: keys are refused, or nothing fits;
 * else errors as of mics_foreign_config_read() and mics_plan_search_usable(). */
enum mics_status plan_from_config(struct plan_request *request,
                                  const struct mics_topology *topology,
                                  const struct mics_model *model, struct mics_plan **out,
                                  struct mics_err *err);

/* plan_target.c: the best plan that request->target can express, with its overheads. Says what it
 * does not do, and what that costs. On success *out has its own topology and model; those that are
 * given stay the caller's. Errors as of mics_plan_search_usable(). */
enum mics_status plan_for_target(const struct plan_request *request,
                                 const struct mics_topology *topology,
                                 const struct mics_model *model, struct mics_plan **out,
                                 struct mics_err *err);

#endif
