/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_machine.c - maximum flows for NVLinks and for the network, widest paths for PCI.
 *
 * A ring may enter and leave any set of GPUs once only, so its rate over PCI is that of one path,
 * not of the cut: two pairs of GPUs with bridges share the rate of one slot. Over NVLinks NCCL
 * makes several rings, and their sum reaches the cut.
 */
#include "topology/nccl_machine.h"

#include "base/num.h"
#include "topology/gpu_info.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, MAX_RING = 16 };

/* A processor of Intel turns what one GPU sends to another into small packets, which need this many
 * times the bandwidth. */
static const double intel_overhead = 6. / 5;

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `capacity` [n * n] becomes the residual one. Each round fills a shortest path. */
static int64_t max_flow(int64_t *capacity, int n, int from, int to, int *parent, int *queue)
{
    int64_t total = 0;

    for (;;) {
        int head = 0, tail = 0;

        for (int i = 0; i < n; i++)
            parent[i] = NONE;
        parent[from] = from;
        queue[tail++] = from;
        while (head < tail && parent[to] == NONE) {
            const int at = queue[head++];

            for (int next = 0; next < n; next++)
                if (parent[next] == NONE && capacity[(size_t)at * n + next] > 0) {
                    parent[next] = at;
                    queue[tail++] = next;
                }
        }
        if (parent[to] == NONE)
            return total;
        int64_t least = INT64_MAX;
        for (int at = to; at != from; at = parent[at])
            least = min_of(least, capacity[(size_t)parent[at] * n + at]);
        for (int at = to; at != from; at = parent[at]) {
            capacity[(size_t)parent[at] * n + at] -= least;
            capacity[(size_t)at * n + parent[at]] += least;
        }
        total += least;
    }
}

/* NVLinks of the weakest cut between GPUs of the group, of all ways to divide it. */
static uint32_t nvlink_cut(const struct mics_nccl_machine *machine, uint32_t first, uint32_t count)
{
    enum { MOST = MICS_NCCL_MAX_GPUS + 1 };
    int64_t links[MOST * MOST] = {0}, least = INT64_MAX;
    const int n = (int)count + 1;
    int parent[MOST], queue[MOST];

    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            links[a * n + b] = machine->links[a == n - 1 ? MICS_NCCL_SWITCH : (int)first + a]
                                             [b == n - 1 ? MICS_NCCL_SWITCH : (int)first + b];
    for (int other = 1; other < (int)count; other++) {
        int64_t residual[MOST * MOST];

        memcpy(residual, links, (size_t)n * (size_t)n * sizeof *links);
        least = min_of(least, max_flow(residual, n, 0, other, parent, queue));
    }
    return (uint32_t)min_of(least, UINT32_MAX);
}

/* Links beside NVLinks between GPUs: `rate` [devices * devices], 0: none. */
struct host_links {
    const struct mics_nccl_machine *machine;
    int n;
    double *rate;
};

static void connect(struct host_links *links, int a, int b, double rate)
{
    double *there = &links->rate[(size_t)a * links->n + b];
    double *back = &links->rate[(size_t)b * links->n + a];

    *there = fmax(*there, rate);
    *back = fmax(*back, rate);
}

static int processor_of(const struct mics_nccl_machine *machine, int device)
{
    while (machine->list[device].parent != MICS_NCCL_NO_PARENT)
        device = machine->list[device].parent;
    return device;
}

static enum mics_status host_links_init(const struct mics_nccl_machine *machine,
                                        struct host_links *links, struct mics_err *err)
{
    const int n = (int)machine->devices;
    const struct mics_nccl_device *list = machine->list;

    *links = (struct host_links){.machine = machine, .n = n};
    links->rate = calloc((size_t)n * n, sizeof *links->rate);
    if (!links->rate)
        return mics_err_nomem(err);
    for (int i = 0; i < n; i++) {
        if (list[i].parent != MICS_NCCL_NO_PARENT)
            connect(links, i, list[i].parent, list[i].rate);
        if (list[i].processor_rate > 0)
            connect(links, i, processor_of(machine, i), list[i].processor_rate);
        for (int j = 0; j < i && list[i].kind == MICS_NCCL_PROCESSOR; j++)
            if (list[j].kind == MICS_NCCL_PROCESSOR)
                connect(links, i, j, fmin(list[i].between_rate, list[j].between_rate));
    }
    for (uint32_t i = 0; i < machine->peers; i++)
        connect(links, machine->peer[i][0], machine->peer[i][1], INFINITY);
    return MICS_OK;
}

/* A path from one GPU to each other device that avoids further GPUs. */
struct path {
    double rate;    /* of its slowest link; 0: there is none */
    int from;       /* the device before */
    int processors; /* on it */
    bool between;   /* its slowest link is one between processors */
    bool done;
};

static void widest_paths(const struct host_links *links, int source, struct path *paths)
{
    const struct mics_nccl_device *list = links->machine->list;
    const int n = links->n;

    memset(paths, 0, (size_t)n * sizeof *paths);
    paths[source] = (struct path){.rate = INFINITY, .from = NONE};
    for (;;) {
        int at = NONE;

        for (int i = 0; i < n; i++)
            if (!paths[i].done && paths[i].rate > 0 &&
                (at == NONE || paths[i].rate > paths[at].rate ||
                 (paths[i].rate == paths[at].rate && paths[i].processors < paths[at].processors)))
                at = i;
        if (at == NONE)
            return;
        paths[at].done = true;
        if (list[at].kind == MICS_NCCL_GPU && at != source)
            continue;
        for (int next = 0; next < n; next++) {
            const double rate = fmin(paths[at].rate, links->rate[(size_t)at * n + next]);
            const int processors = paths[at].processors + (list[next].kind == MICS_NCCL_PROCESSOR);

            if (!paths[next].done &&
                (rate > paths[next].rate ||
                 (rate > 0 && rate == paths[next].rate && processors < paths[next].processors)))
                paths[next] = (struct path){
                    .rate = rate,
                    .from = at,
                    .processors = processors,
                    .between = rate < paths[at].rate ? list[at].kind == MICS_NCCL_PROCESSOR &&
                                                           list[next].kind == MICS_NCCL_PROCESSOR
                                                     : paths[at].between};
        }
    }
}

/* Rate of the path to `target`, with the overhead of the only processor on it. */
static double path_rate(const struct host_links *links, const struct path *paths, int target)
{
    double rate = paths[target].rate;

    if (paths[target].processors != 1)
        return rate;
    for (int at = target; at != NONE; at = paths[at].from)
        if (links->machine->list[at].kind == MICS_NCCL_PROCESSOR && links->machine->list[at].intel)
            rate /= intel_overhead;
    return rate;
}

/* Rates of all steps that a ring over the group may take. */
struct steps {
    uint32_t count;
    double rate[MICS_NCCL_MAX_GPUS][MICS_NCCL_MAX_GPUS];
    bool between[MICS_NCCL_MAX_GPUS][MICS_NCCL_MAX_GPUS]; /* limited between processors */
};

static void measure_steps(const struct host_links *links, uint32_t first, struct path *paths,
                          struct steps *steps)
{
    const struct mics_nccl_machine *machine = links->machine;
    const double link_rate = mics_nvlink_rate((int)machine->capability, 1);

    for (uint32_t a = 0; a < steps->count; a++) {
        const uint32_t *own = machine->links[first + a];

        widest_paths(links, machine->gpu[first + a], paths);
        for (uint32_t b = 0; b < steps->count; b++) {
            const int target = machine->gpu[first + b];
            const uint32_t switched = (uint32_t)mics_min_u64(
                own[MICS_NCCL_SWITCH], machine->links[MICS_NCCL_SWITCH][first + b]);
            const double direct = link_rate * (double)mics_max_u64(own[first + b], switched);
            const double host = a == b ? 0 : path_rate(links, paths, target);

            steps->rate[a][b] = fmax(direct, host);
            steps->between[a][b] = host > direct && paths[target].between;
        }
    }
}

/* Is there a ring over all whose steps are at least this fast? `ends` [1 << count]: for each set of
 * GPUs with the first, those at which a path over the set may end. */
static bool has_ring(const struct steps *steps, double rate, uint16_t *ends)
{
    const uint32_t count = steps->count, all = (1u << count) - 1;
    uint16_t next[MAX_RING] = {0};

    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = 0; b < count; b++)
            if (a != b && steps->rate[a][b] >= rate)
                next[a] |= (uint16_t)(1u << b);
    memset(ends, 0, ((size_t)all + 1) * sizeof *ends);
    ends[1] = 1;
    for (uint32_t set = 1; set <= all; set += 2)
        for (uint32_t a = 0; a < count; a++) {
            if (!(ends[set] >> a & 1))
                continue;
            if (set == all && (next[a] & 1))
                return true;
            for (uint32_t b = 1; b < count; b++)
                if ((next[a] & ~set) >> b & 1)
                    ends[set | 1u << b] |= (uint16_t)(1u << b);
        }
    return false;
}

static int descending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a > b ? -1 : a < b;
}

/* The slowest step of the best ring. With more than MAX_RING GPUs, the slowest step of all,
 * which a ring in the order of the tree does not go below. */
static enum mics_status best_ring(const struct steps *steps, double *out, struct mics_err *err)
{
    const uint32_t count = steps->count;
    double *rates = malloc((size_t)count * count * sizeof *rates);
    uint16_t *ends = count <= MAX_RING ? malloc(((size_t)1 << count) * sizeof *ends) : NULL;
    uint32_t found = 0;

    if (!rates || (count <= MAX_RING && !ends)) {
        free(rates);
        free(ends);
        return mics_err_nomem(err);
    }
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = 0; b < count; b++)
            if (a != b)
                rates[found++] = steps->rate[a][b];
    qsort(rates, found, sizeof *rates, descending);
    /* There is a ring of the rates from `high` on, and none of those before `low`. */
    uint32_t low = 0, high = found - 1;
    while (ends && low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (has_ring(steps, rates[middle], ends))
            high = middle;
        else
            low = middle + 1;
    }
    *out = rates[high];
    free(rates);
    free(ends);
    return MICS_OK;
}

/* Is what is between the processors slower than all other links that a ring may need? */
static bool is_between_processors(const struct steps *steps, double rate)
{
    for (uint32_t a = 0; a < steps->count; a++)
        for (uint32_t b = 0; b < steps->count; b++)
            if (a != b && !steps->between[a][b] && steps->rate[a][b] <= rate)
                return false;
    return true;
}

enum mics_status mics_nccl_group_rate(const struct mics_nccl_machine *machine, uint32_t first,
                                      uint32_t count, struct mics_nccl_group *out,
                                      struct mics_err *err)
{
    const double nvlinks =
        mics_nvlink_rate((int)machine->capability, nvlink_cut(machine, first, count));
    struct steps *steps = calloc(1, sizeof *steps);
    struct path *paths = calloc(machine->devices, sizeof *paths);
    struct host_links links = {0};
    double ring = 0;
    enum mics_status status =
        steps && paths ? host_links_init(machine, &links, err) : mics_err_nomem(err);

    if (status != MICS_OK)
        goto out;
    steps->count = count;
    measure_steps(&links, first, paths, steps);
    status = best_ring(steps, &ring, err);
    if (status != MICS_OK)
        goto out;
    out->rate = fmax(nvlinks, ring);
    out->way = nvlinks >= ring                      ? MICS_NCCL_OVER_NVLINK
               : is_between_processors(steps, ring) ? MICS_NCCL_OVER_PROCESSORS
                                                    : MICS_NCCL_OVER_PCI;
out:
    free(links.rate);
    free(paths);
    free(steps);
    return status;
}

static bool are_joined(const struct mics_nccl_machine *machine, uint32_t a, uint32_t b)
{
    const uint32_t at = MICS_NCCL_SWITCH;

    return machine->links[a][b] > 0 || (machine->links[a][at] > 0 && machine->links[b][at] > 0);
}

void mics_nccl_joined(const struct mics_nccl_machine *machine, uint32_t *largest,
                      uint32_t *smallest)
{
    uint32_t set[MICS_NCCL_MAX_GPUS] = {0}, sizes[MICS_NCCL_MAX_GPUS] = {0};

    for (uint32_t i = 0; i < machine->gpus; i++)
        set[i] = i;
    for (uint32_t a = 0; a < machine->gpus; a++)
        for (uint32_t b = 0; b < a; b++) {
            const uint32_t old = set[a];

            for (uint32_t i = 0; i < machine->gpus && are_joined(machine, a, b); i++)
                if (set[i] == old)
                    set[i] = set[b];
        }
    for (uint32_t i = 0; i < machine->gpus; i++)
        sizes[set[i]]++;
    *largest = 0;
    *smallest = UINT32_MAX;
    for (uint32_t i = 0; i < machine->gpus; i++)
        if (sizes[i] > 0) {
            *largest = sizes[i] > *largest ? sizes[i] : *largest;
            *smallest = sizes[i] < *smallest ? sizes[i] : *smallest;
        }
}

/* Capacities are in MB/s; what has no limit is larger than any sum. */
static int64_t in_megabytes(double rate)
{
    return rate < 1e15 ? llround(rate / 1e6) : INT64_C(1) << 40;
}

enum mics_status mics_nccl_net_rate(const struct mics_nccl_machine *machine, double factor,
                                    double silent_rate, double *out, struct mics_err *err)
{
    const int devices = (int)machine->devices, n = devices + 2;
    int64_t *capacity = calloc((size_t)n * n, sizeof *capacity);
    int *memory = calloc(2 * (size_t)n, sizeof *memory);
    struct host_links links = {0};
    enum mics_status status =
        capacity && memory ? host_links_init(machine, &links, err) : mics_err_nomem(err);

    if (status == MICS_OK) {
        for (int a = 0; a < devices; a++) {
            const struct mics_nccl_device *device = &machine->list[a];

            for (int b = 0; b < devices; b++)
                capacity[(size_t)a * n + b] = in_megabytes(links.rate[(size_t)a * devices + b]);
            capacity[(size_t)a * n + devices + 1] =
                in_megabytes(device->cards_rate * factor + device->silent_cards * silent_rate);
        }
        for (uint32_t i = 0; i < machine->gpus; i++)
            capacity[(size_t)devices * n + machine->gpu[i]] = in_megabytes(INFINITY);
        *out = 1e6 * (double)max_flow(capacity, n, devices, devices + 1, memory, memory + n);
    }
    free(links.rate);
    free(memory);
    free(capacity);
    return status;
}

double mics_nccl_card_slot_rate(const struct mics_nccl_machine *machine)
{
    double slowest = 0;

    for (uint32_t i = 0; i < machine->devices; i++) {
        const struct mics_nccl_device *device = &machine->list[i];

        if (device->silent_cards > 0 && device->kind == MICS_NCCL_PCI)
            slowest = slowest > 0 ? fmin(slowest, device->rate) : device->rate;
    }
    return slowest;
}
