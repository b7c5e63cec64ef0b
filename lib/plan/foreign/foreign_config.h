/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_config.h - the configuration of another trainer as the same job in mics.
 *
 * The kind of a file is recognised by its content. Each key of the file gets a verdict with a
 * reason; nothing is dropped without one. What decides about the plan becomes members of struct
 * mics_foreign_config, what belongs to mics-train becomes its options.
 *
 * Sources: deepspeed/runtime/config.py and zero/config.py of DeepSpeed 0.19.8, lr_schedules.py, and
 * zero/mics.py of 0.19.6; commands/config/config_args.py, launch.py and utils/dataclasses.py of
 * accelerate 1.15; config/configs.py and components of torchtitan 0.2 and 0.3.
 */
#ifndef MICS_PLAN_FOREIGN_FOREIGN_CONFIG_H
#define MICS_PLAN_FOREIGN_FOREIGN_CONFIG_H

#include "plan/search/search.h"

enum mics_verdict {
    MICS_TAKEN,
    MICS_TAKEN_DIFFERENTLY, /* the reason says how */
    MICS_IGNORED,           /* it changes nothing here */
    MICS_REFUSED,           /* there is nothing like it here */
    MICS_VERDICTS
};

const char *mics_verdict_name(enum mics_verdict verdict); /* "taken", "taken differently", ... */

/* What a file says about the plan. 0, "" or MICS_AUTO: nothing. */
struct mics_foreign_config {
    const char *trainer; /* "DeepSpeed" */
    uint64_t global_batch;
    uint32_t micro_batch, seq;
    char strategy[48];   /* as in struct mics_search_options */
    uint32_t dtype;      /* enum mics_dtype */
    uint32_t grad_dtype; /* likewise */
    uint32_t recompute;  /* enum mics_recompute */
    uint32_t optimizer;  /* enum mics_optimizer */
    uint32_t clips;      /* 0, 1; a plan in fp16 has to, to a norm that clips nothing */
    bool hierarchical;   /* exchanges between nodes in two hops */
    bool offloads;       /* states of the optimizer to host memory */
    json_t *keys;        /* [{key, value, verdict, why}], in the order of the file */
    json_t *settings;    /* options of mics-train by name */
    uint32_t refused;    /* keys that are refused */
    char refusals[1024]; /* "optimizer.type Lamb: ...; ..." */
};

/* Read `path` ("-": standard input) for a cluster of nodes x per_node ranks. Everything is checked
 * but the group sizes, which the search checks. MICS_ERR_FORMAT, which begins with the path: the
 * file is malformed, has an unknown key, or contradicts itself or the number of ranks. Refused keys
 * are no error of this function. Call mics_foreign_config_fini() after success. */
enum mics_status mics_foreign_config_read(const char *path, uint32_t nodes, uint32_t per_node,
                                          struct mics_foreign_config *out, struct mics_err *err);

/* The same from memory; errors have no path. */
enum mics_status mics_foreign_config_parse(const char *text, size_t size, uint32_t nodes,
                                           uint32_t per_node, struct mics_foreign_config *out,
                                           struct mics_err *err);

void mics_foreign_config_fini(struct mics_foreign_config *config);

/* For a document of a plan: {trainer, keys, plans}, where `plans` compares the plan as configured,
 * unless it is NULL, with the best one. NULL: out of memory. */
json_t *mics_foreign_config_to_doc(const struct mics_foreign_config *config,
                                   const struct mics_plan *configured,
                                   const struct mics_plan *best);

#define MICS_FOREIGN_CONFIG_KEY "configured" /* of that in the plan's document */

/* Both as tables: each key with its verdict, and the two plans. MICS_ERR_FORMAT. */
enum mics_status mics_foreign_config_print(FILE *out, const json_t *doc, int tsv,
                                           struct mics_err *err);

#endif
