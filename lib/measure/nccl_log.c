/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_log.c - rows of nccl-tests from its text or its JSON (NVIDIA/nccl-tests 2.19.6, src/util.cu,
 * and the columns of versions back to 2019). */
#include "measure/nccl_log.h"

#include "doc/cursor.h"
#include "doc/foreign.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 2048, MAX_TOKENS = 40, MAX_JSON_VALUES = 4 << 20 };

/* Programs of nccl-tests: those of enum mics_bench_op, in its order, and those of collectives that
 * mics does not have. */
static const char *const programs[] = {"all_gather", "reduce_scatter", "all_reduce", "alltoall",
                                       "alltoallv",  "broadcast",      "gather",     "hypercube",
                                       "reduce",     "scatter",        "sendrecv"};

enum { COMMON_PROGRAMS = MICS_BENCH_ALL_TO_ALL + 1 };

static const struct type {
    const char *name;
    unsigned bytes;
} types[] = {
    {"int8", 1},  {"char", 1},    {"uint8", 1},    {"f8e4m3", 1}, {"f8e5m2", 1}, {"fp8_e4m3", 1},
    {"half", 2},  {"float16", 2}, {"bfloat16", 2}, {"int32", 4},  {"int", 4},    {"uint32", 4},
    {"float", 4}, {"int64", 8},   {"uint64", 8},   {"double", 8},
};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* A file being read. */
struct reader {
    const char *name;
    const struct mics_nccl_hints *hints;
    struct mics_nccl_log *log;
    struct mics_nccl_run *run;             /* the current one; NULL before the first */
    size_t line;                           /* 0: JSON */
    uint32_t ranks;                        /* of the current run that were listed */
    uint32_t on_host[MICS_NCCL_LOG_HOSTS]; /* [job_nodes] ranks of the first group */
    bool begun;                            /* the run has rows already */
    char program[32];                      /* that a line named before the table */
    struct mics_err *err;
};

static enum mics_status reject(const struct reader *reader, const char *text)
{
    if (reader->line == 0)
        return mics_err_set(reader->err, MICS_ERR_FORMAT, "%s: %s", reader->name, text);
    return mics_err_set(reader->err, MICS_ERR_FORMAT, "%s:%zu: %s", reader->name, reader->line,
                        text);
}

/* The index of a program; -1: none. */
static int find_program(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT_OF(programs); i++)
        if (strlen(programs[i]) == length && strncmp(programs[i], name, length) == 0)
            return (int)i;
    return -1;
}

/* The last program "NAME_perf" that a text names; -1: none. */
static int program_in(const char *text)
{
    int found = -1;

    for (const char *end = strstr(text, "_perf"); end; end = strstr(end + 1, "_perf")) {
        const char *begin = end;

        while (begin > text && (islower((unsigned char)begin[-1]) || begin[-1] == '_'))
            begin--;
        const int program = find_program(begin, (size_t)(end - begin));
        found = program >= 0 ? program : found;
    }
    return found;
}

/* The longest name of a collective that a file's name has: "all_gather.log", "2n-allreduce.txt".
 * -1: none. */
static int program_of_file(const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char plain[256], wanted[32];
    size_t used = 0, longest = 0;
    int found = -1;

    for (; *name && used + 1 < sizeof plain; name++)
        if (*name != '_' && *name != '-')
            plain[used++] = (char)tolower((unsigned char)*name);
    plain[used] = '\0';
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        size_t length = 0;

        for (const char *c = programs[i]; *c; c++)
            if (*c != '_')
                wanted[length++] = *c;
        wanted[length] = '\0';
        if (length > longest && strstr(plain, wanted)) {
            longest = length;
            found = (int)i;
        }
    }
    return found;
}

/* The program of the next run is the one that a text names, if any. */
static void name_program(struct reader *reader, const char *text)
{
    const int program = program_in(text);

    if (program >= 0)
        snprintf(reader->program, sizeof reader->program, "%s", programs[program]);
}

static enum mics_status begin_run(struct reader *reader)
{
    struct mics_nccl_log *log = reader->log;
    struct mics_nccl_run *runs = realloc(log->runs, (log->count + 1) * sizeof *runs);

    if (!runs)
        return mics_err_nomem(reader->err);
    log->runs = runs;
    reader->run = &runs[log->count++];
    *reader->run = (struct mics_nccl_run){.groups = 1};
    snprintf(reader->run->program, sizeof reader->run->program, "%s", reader->program);
    reader->program[0] = '\0';
    reader->ranks = 0;
    reader->begun = false;
    memset(reader->on_host, 0, sizeof reader->on_host);
    return MICS_OK;
}

/* What is listed or configured belongs to the next run once there are rows. */
static enum mics_status need_run(struct reader *reader)
{
    return reader->run && !reader->begun ? MICS_OK : begin_run(reader);
}

/* One rank of the list of devices. */
static enum mics_status add_rank(struct reader *reader, uint32_t rank, uint32_t group,
                                 const char *host, const char *device)
{
    struct mics_nccl_run *run = reader->run;
    uint32_t i = 0;

    if (rank != reader->ranks)
        return reject(reader, rank < reader->ranks
                                  ? "a rank is listed twice: nccl-tests was built without MPI=1, "
                                    "and each process measured alone"
                                  : "the list of ranks has a gap");
    reader->ranks++;
    if (group + 1 > run->groups)
        run->groups = group + 1;
    if (rank == 0)
        snprintf(run->device, sizeof run->device, "%s", device);
    while (i < run->job_nodes && strcmp(run->hosts[i], host) != 0)
        i++;
    if (i == MICS_NCCL_LOG_HOSTS)
        return reject(reader, "more hosts than 4096");
    if (i == run->job_nodes) {
        char(*hosts)[64] = realloc(run->hosts, (i + 1) * sizeof *hosts);

        if (!hosts)
            return mics_err_nomem(reader->err);
        run->hosts = hosts;
        snprintf(run->hosts[i], sizeof run->hosts[i], "%.63s", host);
        run->job_nodes++;
    }
    reader->on_host[i] += group == 0;
    return MICS_OK;
}

/* The shape of the ranks that were listed. */
static enum mics_status close_ranks(struct reader *reader)
{
    struct mics_nccl_run *run = reader->run;

    if (reader->ranks == 0) {
        run->nodes = run->job_nodes = reader->hints->nodes;
        run->per_node = run->job_per_node = reader->hints->per_node;
        return MICS_OK;
    }
    run->job_per_node = reader->ranks / run->job_nodes;
    for (uint32_t i = 0; i < run->job_nodes; i++) {
        const uint32_t ranks = reader->on_host[i];

        if (ranks > 0 && run->nodes++ == 0)
            run->per_node = ranks;
        if (ranks > 0 && ranks != run->per_node)
            return reject(reader, "the hosts have different numbers of ranks");
    }
    return MICS_OK;
}

/* A row of a table, as written. */
struct row {
    uint64_t bytes, count;
    unsigned type_bytes;
    bool reduces;
    struct half {
        bool present, checked;
        double us, algbw, busbw; /* GB/s */
        double min_us, median_us, p99_us;
        uint64_t wrong;
    } halves[2]; /* out of place, in place */
};

/* Bus bandwidth relative to algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md). */
static double bus_factor(enum mics_bench_op op, double ranks)
{
    return (op == MICS_BENCH_ALL_REDUCE ? 2 : 1) * (ranks - 1) / ranks;
}

/* Two printed digits after the point, four to five digits of the time. */
static bool is_close(double printed, double computed)
{
    return fabs(printed - computed) <= .0061 + .006 * computed;
}

static bool has_shape(const struct row *row, enum mics_bench_op op, uint32_t ranks)
{
    return row->count * row->type_bytes * (op == MICS_BENCH_ALL_REDUCE ? 1 : ranks) == row->bytes;
}

/* Until 2020-06 algbw of gathers and reduce-scatters was busbw (nccl-tests issue 45). */
static bool has_rates(const struct row *row, enum mics_bench_op op, uint32_t ranks)
{
    for (int i = 0; i < 2; i++) {
        const struct half *half = &row->halves[i];
        const double rate = (double)row->bytes / half->us / 1e3;
        const double bus = rate * bus_factor(op, ranks);

        if (half->present && half->us > 0 &&
            (!is_close(half->busbw, bus) ||
             (!is_close(half->algbw, rate) && !is_close(half->algbw, bus))))
            return false;
    }
    return true;
}

/* The collective of a table whose program is not named: by what its numbers say. */
static enum mics_status guess_op(const struct reader *reader, const struct row *row, uint32_t ranks,
                                 int *op)
{
    const unsigned wanted = reader->hints->ops;

    if (wanted && (wanted & (wanted - 1)) == 0 && !(wanted & 1u << MICS_BENCH_SYNC)) {
        for (*op = 0; 1u << *op != wanted; ++*op)
            ;
        return MICS_OK;
    }
    if (row->reduces) {
        const bool scatter = ranks > 1 && has_shape(row, MICS_BENCH_REDUCE_SCATTER, ranks);

        *op = scatter ? MICS_BENCH_REDUCE_SCATTER : MICS_BENCH_ALL_REDUCE;
        return MICS_OK;
    }
    mics_err_set(reader->err, MICS_ERR_ARG,
                 "%s:%zu: the log does not name its program; say --op=all_gather if it is that",
                 reader->name, reader->line);
    return MICS_ERR_ARG;
}

static enum mics_status find_op(const struct reader *reader, const struct row *row, uint32_t ranks,
                                int *op)
{
    const struct mics_nccl_run *run = reader->run;
    const int program = run->program[0] ? find_program(run->program, strlen(run->program))
                                        : program_of_file(reader->name);

    if (program < 0)
        return guess_op(reader, row, ranks, op);
    *op = program < COMMON_PROGRAMS ? program : -1;
    return MICS_OK;
}

static enum mics_status check_row(const struct reader *reader, const struct row *row,
                                  enum mics_bench_op op, uint32_t ranks)
{
    char text[200];

    if (!has_shape(row, op, ranks))
        snprintf(text, sizeof text, "%llu bytes in %llu elements: not a row of %s with %u ranks",
                 (unsigned long long)row->bytes, (unsigned long long)row->count,
                 mics_bench_op_name(op), ranks);
    else if (!has_rates(row, op, ranks))
        snprintf(text, sizeof text,
                 "time, algbw and busbw of %llu bytes are not those of %s with %u ranks",
                 (unsigned long long)row->bytes, mics_bench_op_name(op), ranks);
    else
        return MICS_OK;
    return reject(reader, text);
}

static enum mics_status add_row(struct reader *reader, const struct row *row)
{
    struct mics_nccl_run *run = reader->run;
    const uint32_t ranks = run->nodes * run->per_node;
    int op;

    reader->begun = true;
    if (row->bytes == 0 || row->count == 0) {
        run->left_out++;
        return MICS_OK;
    }
    enum mics_status status = find_op(reader, row, ranks, &op);
    if (status != MICS_OK)
        return status;
    if (op < 0 || !(reader->hints->ops & 1u << op)) {
        run->left_out++;
        return MICS_OK;
    }
    if (ranks == 0)
        return mics_err_set(reader->err, MICS_ERR_ARG,
                            "%s: the log does not list its ranks; --topology tells them",
                            reader->name);
    status = ranks > 1 ? check_row(reader, row, (enum mics_bench_op)op, ranks)
                       : reject(reader, "one rank has nothing to exchange");
    for (int i = 0; i < 2 && status == MICS_OK; i++) {
        const struct half *half = &row->halves[i];

        if (!half->present || !(half->us > 0))
            continue;
        struct mics_bench_row *out = mics_bench_result_add(&run->result);
        if (!out)
            return mics_err_nomem(reader->err);
        *out = (struct mics_bench_row){
            .op = (enum mics_bench_op)op,
            .in_place = i == 1,
            .nodes = run->nodes,
            .per_node = run->per_node,
            .groups = run->groups,
            .segments = 1,
            .bytes = row->bytes,
            .count = row->count,
            .iters = run->iters ? run->iters : 1,
            .time_s = half->us * 1e-6,
            .min_s = (half->min_us > 0 ? half->min_us : half->us) * 1e-6,
            .median_s = (half->median_us > 0 ? half->median_us : half->us) * 1e-6,
            .p99_s = (half->p99_us > 0 ? half->p99_us : half->us) * 1e-6,
            .slowest_s = half->us * 1e-6,
            .checked = half->checked,
            .wrong = half->wrong,
        };
    }
    return status;
}

/* A line in words. */
struct tokens {
    size_t count;
    char *list[MAX_TOKENS];
    char text[MAX_LINE];
};

/* Without what launchers put before a line ("[1,0]<stdout>:", "0: ", "pod-0 | ", a time stamp), and
 * without "[0]", which tags parts of a line. */
static const char *skip_prefix(const char *line)
{
    const char *bar = strstr(line, " | ");

    if (bar && bar - line < 64)
        line = bar + 3;
    for (;;) {
        while (isspace((unsigned char)*line))
            line++;
        const size_t digits = strspn(line, "0123456789");

        if (*line == '[' && strchr(line, ']')) {
            line = strchr(line, ']') + 1;
            if (*line == '<' && strchr(line, '>'))
                line = strchr(line, '>') + 1;
            line += *line == ':';
        } else if (digits > 0 && line[digits] == ':' && line[digits + 1] == ' ') {
            line += digits + 1;
        } else if (digits == 4 && line[4] == '-' && strchr(line, 'Z') &&
                   strchr(line, 'Z') - line < 32) {
            line = strchr(line, 'Z') + 1;
        } else {
            return line;
        }
    }
}

static void split(const char *line, struct tokens *out)
{
    char *to = out->text;

    for (const char *from = line; *from && to + 1 < out->text + sizeof out->text;) {
        const size_t digits = *from == '[' ? strspn(from + 1, "0123456789") : 0;

        if (digits > 0 && from[1 + digits] == ']')
            from += digits + 2, *to++ = ' ';
        else
            *to++ = *from++;
    }
    *to = '\0';
    out->count = 0;
    for (char *save, *word = strtok_r(out->text, " \t\r", &save); word && out->count < MAX_TOKENS;
         word = strtok_r(NULL, " \t\r", &save))
        out->list[out->count++] = word;
}

static bool is_whole(const char *word)
{
    return *word && strlen(word) < 19 && word[strspn(word, "0123456789")] == '\0';
}

/* A number, N/A or a date is what a column may hold. */
static bool is_number(const char *word, double *value)
{
    char *end;

    if (strcmp(word, "N/A") == 0) {
        *value = NAN;
        return true;
    }
    *value = strtod(word, &end);
    return end != word && *end == '\0' && !strpbrk(word, "xXpP");
}

static const struct type *find_type(const char *word)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (strcmp(types[i].name, word) == 0)
            return &types[i];
    return NULL;
}

static bool begins_type(const char *word)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (strncmp(types[i].name, word, strlen(word)) == 0)
            return true;
    return false;
}

/* Does a line without a size end as a row does: with time, bandwidths and more? */
static bool ends_as_row(const struct tokens *tokens)
{
    size_t numbers = 0, points = 0;
    double value;

    for (size_t i = tokens->count; i > 0 && is_number(tokens->list[i - 1], &value); i--) {
        numbers++;
        points += strchr(tokens->list[i - 1], '.') != NULL;
    }
    return numbers >= 6 && points >= 3;
}

/* #wrong is a number of elements; "error", in its place until 2022, is a deviation such as
 * 1e-07. */
static void set_wrong(struct half *half, const char *word, double value)
{
    half->checked = isfinite(value) && !strchr(word, '.') && !strstr(word, "e-") &&
                    !strstr(word, "0e+00") && value >= 0 && value < 1e18;
    half->wrong = half->checked ? (uint64_t)value : 0;
}

/* The columns after type and redop. false: there are not as many as a row has. */
static bool read_columns(const struct tokens *tokens, size_t first, struct row *row)
{
    double values[MAX_TOKENS];
    size_t count = 0, width = 4;

    for (size_t i = first; i < tokens->count; i++)
        if (is_number(tokens->list[i], &values[count]))
            count++;
        else if (count < 8) /* after the last column a time stamp may follow */
            return false;
        else
            break;
    if (count == 17)
        width = 8;
    else if (count != 8 && count != 9)
        return false;
    const bool has_root = count % 2 == 1;
    for (int i = 0; i < 2; i++) {
        const size_t at = (has_root ? 1 : 0) + (size_t)i * width;
        struct half *half = &row->halves[i];

        *half = (struct half){.present = isfinite(values[at]),
                              .us = values[at],
                              .algbw = values[at + 1],
                              .busbw = values[at + 2]};
        set_wrong(half, tokens->list[first + at + 3], values[at + 3]);
        if (width == 8) {
            half->min_us = values[at + 4];
            half->p99_us = values[at + 6];
        }
    }
    return row->halves[0].us > 0 || row->halves[1].us > 0;
}

static enum mics_status read_row(struct reader *reader, const struct tokens *tokens,
                                 const struct type *type)
{
    struct row row = {.bytes = strtoull(tokens->list[0], NULL, 10),
                      .count = strtoull(tokens->list[1], NULL, 10),
                      .type_bytes = type->bytes};
    size_t first = 3;
    char text[64];

    if (tokens->count > 3 && isalpha((unsigned char)tokens->list[3][0]) &&
        strcmp(tokens->list[3], "N/A") != 0) {
        row.reduces = strcmp(tokens->list[3], "none") != 0;
        first = 4;
    }
    if (!read_columns(tokens, first, &row)) {
        snprintf(text, sizeof text, "a row of results is cut after %zu columns", tokens->count);
        return reject(reader, text);
    }
    enum mics_status status = reader->run ? MICS_OK : begin_run(reader);
    if (status == MICS_OK && !reader->begun)
        status = close_ranks(reader);
    return status == MICS_OK ? add_row(reader, &row) : status;
}

/* "  Rank  0 Group  0 Pid 895544 on     h100-2 device  0 [0002:00:01] NVIDIA H100 80GB HBM3" */
static enum mics_status read_rank(struct reader *reader, const char *at)
{
    unsigned rank, group = 0, device;
    int end = 0;
    char host[64] = "";
    const char *next = at, *name = NULL;

    if (sscanf(next, " Rank %u%n", &rank, &end) != 1)
        return MICS_OK;
    next += end;
    if (sscanf(next, " Group %u%n", &group, &end) == 1)
        next += end;
    if (sscanf(next, " Pid %*u on %63s device %u%n", host, &device, &end) == 2)
        name = strchr(next + end, ']');
    if (!name)
        return reject(reader, "a line of the list of devices is cut");
    name += 1 + strspn(name + 1, " ");
    if (group > 65535)
        return reject(reader, "more groups than 65536");
    const enum mics_status status = need_run(reader);
    return status == MICS_OK ? add_rank(reader, rank, group, host, name) : status;
}

static enum mics_status read_config(struct reader *reader, const char *line)
{
    const char *warmup = strstr(line, "warmup iters: ");
    const char *iters = warmup ? strstr(warmup + 8, " iters: ") : NULL;
    const bool is_next = reader->run && reader->ranks > 0;
    const enum mics_status status = is_next ? begin_run(reader) : need_run(reader);

    if (status != MICS_OK || !warmup)
        return status;
    reader->run->warmup = (uint32_t)strtoul(warmup + 14, NULL, 10);
    if (iters)
        reader->run->iters = (uint32_t)strtoul(iters + 8, NULL, 10);
    return MICS_OK;
}

/* A line that begins with '#', after the sign. */
static enum mics_status read_comment(struct reader *reader, const char *line)
{
    if (strstr(line, "nThread ") && strstr(line, "nGpus "))
        return read_config(reader, line);
    if (strstr(line, "cputime"))
        return reject(reader, "the times are those of the processor (-C 1), not of the collective");
    return read_rank(reader, line);
}

/* What NCCL_DEBUG=INFO tells of the transports. */
static enum mics_status read_debug(struct reader *reader, const char *line)
{
    const char *network = strstr(line, "Using network ");

    if (reader->begun) /* the transports of a run are reported before its rows */
        return MICS_OK;
    const enum mics_status status = need_run(reader);
    if (status != MICS_OK)
        return status;
    if (network)
        snprintf(reader->run->network, sizeof reader->run->network, "%.31s", network + 14);
    if (strstr(line, "via NET/Socket"))
        snprintf(reader->run->network, sizeof reader->run->network, "Socket");
    reader->run->shared_memory |= strstr(line, "via SHM") != NULL;
    reader->run->has_p2p |= strstr(line, "via P2P") != NULL;
    return MICS_OK;
}

static enum mics_status read_line(struct reader *reader, const char *raw, bool complete)
{
    const char *line = skip_prefix(raw);
    struct tokens tokens = {.count = 0};

    if (*line == '#')
        return read_comment(reader, line + 1);
    split(line, &tokens);
    if (tokens.count >= 2 && is_whole(tokens.list[0]) && is_whole(tokens.list[1])) {
        const struct type *type = tokens.count > 2 ? find_type(tokens.list[2]) : NULL;

        if (!complete || (!type && tokens.count == 3 && begins_type(tokens.list[2])))
            return reject(reader, "the log ends in the middle of a line");
        if (type)
            return read_row(reader, &tokens, type);
    }
    name_program(reader, line);
    if (strstr(line, "NCCL INFO"))
        return read_debug(reader, line);
    if (ends_as_row(&tokens))
        return reject(reader, "a line begins in the middle of a row of results");
    return MICS_OK;
}

static enum mics_status read_text(struct reader *reader, const char *text, size_t size)
{
    char line[MAX_LINE];
    enum mics_status status = MICS_OK;

    for (size_t at = 0; at < size && status == MICS_OK;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : size - at;

        reader->line++;
        if (length < sizeof line) { /* longer ones are not of nccl-tests */
            memcpy(line, text + at, length);
            line[length] = '\0';
            for (char *c = line; c < line + length; c++)
                *c = *c == '\0' ? ' ' : *c;
            if (strstr(line, "Collective test starting"))
                name_program(reader, line);
            status = read_line(reader, line, end != NULL);
        }
        at += length + 1;
    }
    return status;
}

static void read_json_half(const struct mics_cursor *at, const char *key, struct half *half)
{
    char iterations[32];

    if (!mics_cursor_has(at, key))
        return;
    const struct mics_cursor values = mics_cursor_get_object(at, key);
    if (mics_cursor_has(&values, "cpu_time"))
        mics_cursor_reject(&values, "cpu_time", "of the processor (-C 1), not of the collective");
    half->present = true;
    half->us = mics_cursor_get_double(&values, "time", 0, 1e12);
    half->algbw = mics_cursor_get_double(&values, "alg_bw", 0, 1e9);
    half->busbw = mics_cursor_get_double(&values, "bus_bw", 0, 1e9);
    half->checked = mics_cursor_has(&values, "nwrong");
    half->wrong = (uint64_t)mics_cursor_opt_double(&values, "nwrong", 0, 1e18, 0);
    snprintf(iterations, sizeof iterations, "%s_per_iter", key);
    if (!mics_cursor_has(at, iterations))
        return;
    const struct mics_cursor times = mics_cursor_get_object(at, iterations);
    half->min_us = mics_cursor_get_double(&times, "min_us", 0, 1e12);
    half->median_us = mics_cursor_get_double(&times, "p50_us", 0, 1e12);
    half->p99_us = mics_cursor_get_double(&times, "p99_us", 0, 1e12);
}

static enum mics_status read_json_row(struct reader *reader, const struct mics_cursor *at)
{
    struct row row = {0};
    const char *type_name = mics_cursor_get_string(at, "type");
    const struct type *type = find_type(type_name);

    row.bytes = mics_cursor_get_u64(at, "size", 0, (uint64_t)1 << 60);
    row.count = mics_cursor_get_u64(at, "count", 0, (uint64_t)1 << 60);
    row.reduces = strcmp(mics_cursor_get_string(at, "redop"), "none") != 0;
    read_json_half(at, "out_of_place", &row.halves[0]);
    read_json_half(at, "in_place", &row.halves[1]);
    if (mics_cursor_ok(at) && !type)
        mics_cursor_reject(at, "type", "'%.32s' is unknown", type_name);
    if (!mics_cursor_ok(at))
        return at->reading->status;
    row.type_bytes = type->bytes;
    return add_row(reader, &row);
}

static enum mics_status read_json_devices(struct reader *reader, const struct mics_cursor *config)
{
    const struct mics_cursor devices =
        mics_cursor_get_array(config, "devices", 0, (size_t)MICS_NCCL_LOG_HOSTS * 64);
    const uint32_t threads = mics_cursor_get_u32(config, "nthreads", 1, 1024);
    const uint32_t gpus = mics_cursor_get_u32(config, "ngpus", 1, 1024);
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < mics_cursor_count(&devices) && status == MICS_OK; i++) {
        const struct mics_cursor device = mics_cursor_get_item(&devices, i);
        const uint32_t rank = mics_cursor_get_u32(&device, "rank", 0, UINT32_MAX - 1);
        const uint32_t group = mics_cursor_get_u32(&device, "group", 0, 65535);
        const char *host = mics_cursor_get_string(&device, "hostname");
        const char *name = mics_cursor_get_string(&device, "device_info");

        /* A process lists its first rank only. */
        for (uint32_t k = 0; k < threads * gpus && status == MICS_OK && mics_cursor_ok(&device);
             k++)
            status = add_rank(reader, rank + k, group, host, name);
    }
    if (status == MICS_OK && mics_cursor_ok(config))
        status = close_ranks(reader);
    return mics_cursor_ok(config) ? status : config->reading->status;
}

static enum mics_status read_json_run(struct reader *reader, const json_t *doc)
{
    struct mics_reading reading = {.err = reader->err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor args = mics_cursor_get_array(&root, "args", 0, 4096);
    const struct mics_cursor config = mics_cursor_get_object(&root, "config");
    const struct mics_cursor rows = mics_cursor_get_array(&root, "results", 0, 100000);
    const char *command = json_string_value(
        mics_cursor_count(&args) > 0 ? mics_cursor_item_any(&args, 0).value : NULL);
    enum mics_status status;

    if (command)
        name_program(reader, command);
    status = begin_run(reader);
    if (status != MICS_OK)
        return status;
    reader->run->warmup = mics_cursor_get_u32(&config, "warmup_iters", 0, 1u << 30);
    reader->run->iters = mics_cursor_get_u32(&config, "iterations", 0, 1u << 30);
    status = read_json_devices(reader, &config);
    for (size_t i = 0; i < mics_cursor_count(&rows) && status == MICS_OK; i++) {
        const struct mics_cursor row = mics_cursor_get_item(&rows, i);

        status = read_json_row(reader, &row);
    }
    if (reading.status == MICS_OK)
        return status;
    mics_err_prefix(reader->err, "%s", reader->name);
    return reading.status;
}

/* One document, or several one after another. */
static enum mics_status read_json(struct reader *reader, const char *text, size_t size)
{
    enum mics_status status = MICS_OK;

    for (size_t at = 0; status == MICS_OK;) {
        json_t *doc = NULL;

        while (at < size && isspace((unsigned char)text[at]))
            at++;
        if (at == size)
            break;
        status = mics_foreign_read_next(text, size, &at, &doc, reader->err);
        if (status != MICS_OK)
            mics_err_prefix(reader->err, "%s", reader->name);
        else
            status = read_json_run(reader, doc);
        json_decref(doc);
    }
    return status;
}

enum mics_status mics_nccl_log_parse(const char *name, const char *text, size_t size,
                                     const struct mics_nccl_hints *hints, struct mics_nccl_log *out,
                                     struct mics_err *err)
{
    struct reader *reader = calloc(1, sizeof *reader);
    size_t rows = 0, left_out = 0, begin = 0;
    enum mics_status status;

    *out = (struct mics_nccl_log){0};
    if (!reader)
        return mics_err_nomem(err);
    *reader = (struct reader){.name = name, .hints = hints, .log = out, .err = err};
    while (begin < size && isspace((unsigned char)text[begin]))
        begin++;
    status = begin < size && text[begin] == '{' ? read_json(reader, text, size)
                                                : read_text(reader, text, size);
    for (size_t i = 0; i < out->count; i++) {
        rows += out->runs[i].result.count;
        left_out += out->runs[i].left_out;
    }
    if (status == MICS_OK && rows == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              left_out > 0 ? "%s: none of its %zu rows is of a collective that was "
                                             "asked for, of more than 0 bytes"
                                           : "%s: no row of results of nccl-tests",
                              name, left_out);
    free(reader);
    if (status != MICS_OK)
        mics_nccl_log_fini(out);
    return status;
}

void mics_nccl_log_fini(struct mics_nccl_log *log)
{
    for (size_t i = 0; i < log->count; i++) {
        free(log->runs[i].hosts);
        mics_bench_result_fini(&log->runs[i].result);
    }
    free(log->runs);
    *log = (struct mics_nccl_log){0};
}
