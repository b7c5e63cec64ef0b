/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_log.h - the output of nccl-tests: its text, as people keep it, and its JSON (-J).
 *
 * The text may have lines of NCCL_DEBUG, of launchers and of other programs between its own, and
 * a prefix that a launcher puts before each line. A file may hold several runs. Versions differ in
 * their columns: root is missing before 2022, redop where there is none, and --per-iteration adds
 * some. What a row says twice is compared: algbw is size / time, busbw follows from algbw, the
 * collective and the number of ranks.
 */
#ifndef MICS_MEASURE_NCCL_LOG_H
#define MICS_MEASURE_NCCL_LOG_H

#include "measure/measure_run.h"

enum { MICS_NCCL_LOG_HOSTS = 4096 };

/* One program that ran: a table and what is known of its ranks. */
struct mics_nccl_run {
    char program[32];         /* "all_reduce"; empty: not stated */
    uint32_t nodes, per_node; /* of one group; 0: the log does not list devices */
    uint32_t groups;          /* side by side (NCCL_TESTS_SPLIT); 1 or more */
    /* All groups together; as `nodes` and `per_node` if the log does not list devices. */
    uint32_t job_nodes, job_per_node;
    char (*hosts)[64];      /* [job_nodes], or NULL */
    char device[64];        /* of rank 0; empty: not listed */
    char network[32];       /* what NCCL said it uses between nodes: "Socket", "IB"; or empty */
    bool shared_memory;     /* NCCL said that GPUs exchange through the host's memory */
    bool has_p2p;           /* or directly */
    uint32_t warmup, iters; /* 0: not stated */
    size_t left_out;        /* rows of collectives that mics does not have, or of 0 bytes */
    struct mics_bench_result result; /* rows, with `nodes` and `per_node` as above */
};

struct mics_nccl_log {
    size_t count;
    struct mics_nccl_run *runs;
};

/* What is to be assumed where a log does not say it. */
struct mics_nccl_hints {
    uint32_t nodes, per_node; /* of runs that list no devices; 0: not known */
    unsigned ops;             /* a set of enum mics_bench_op; several: none is assumed */
};

/* Read a file's contents; `name` is that of the file, which may name the collective, and begins
 * every error: "run.log:57: ...". On success *out is the caller's. MICS_ERR_FORMAT: a row that is
 * cut or contradicts itself, ranks that cannot be, or no rows at all. MICS_ERR_ARG: what the hints
 * should say. */
enum mics_status mics_nccl_log_parse(const char *name, const char *text, size_t size,
                                     const struct mics_nccl_hints *hints, struct mics_nccl_log *out,
                                     struct mics_err *err);
void mics_nccl_log_fini(struct mics_nccl_log *log);

#endif
