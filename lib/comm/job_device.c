/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_device.c - every rank tries to open its GPU; all gather the results and decide from the same
 * data.
 */
#include "comm/job_device.h"

#include "base/units.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result of one rank. */
struct attempt {
    int status;
    char uuid[16], host[64], device[96], text[512];
};

enum mics_status mics_device_kind_parse(const char *text, enum mics_device_kind *out,
                                        struct mics_err *err)
{
    static const char *const names[] = {"auto", "host", "cuda"};

    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum mics_device_kind)i;
            return MICS_OK;
        }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected auto, host or cuda", text);
}

/* With AUTO on a machine without a driver, do not load the plug-in, whose libraries are large. A
 * plug-in named by the environment is always loaded. */
static enum mics_status find_driver(struct mics_err *err)
{
    const char *named = getenv("MICS_PLUGIN_PATH");

    if (named && *named)
        return MICS_OK;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "no GPU driver is installed (libcuda.so.1 is not there)");
    dlclose(driver);
    return MICS_OK;
}

static enum mics_status open_gpu(const struct mics_world *world, enum mics_device_kind kind,
                                 struct mics_job_device *job, struct mics_err *err)
{
    enum mics_status status = kind == MICS_DEVICE_AUTO ? find_driver(err) : MICS_OK;
    const struct mics_plugin *plugin;
    unsigned count = 0;

    if (status == MICS_OK)
        status = mics_plugin_open(&job->plugin, err);
    if (status != MICS_OK)
        return status;
    plugin = mics_plugin_table(job->plugin);
    status = plugin->gpu_count(&count, err);
    if (status == MICS_OK)
        status = plugin->device_open(mics_world_host_rank(world) % count, &job->device, err);
    return status;
}

static struct attempt describe_attempt(const struct mics_world *world,
                                       const struct mics_job_device *job, enum mics_status status,
                                       const struct mics_err *err)
{
    const char *host = world->host_of_node[world->node];
    struct attempt own = {.status = status};

    snprintf(own.host, sizeof own.host, "%.*s", (int)mics_world_host_length(host), host);
    if (status != MICS_OK) {
        snprintf(own.text, sizeof own.text, "%.*s", (int)sizeof own.text - 1, err->text);
        return own;
    }
    memcpy(own.uuid, job->device->uuid, sizeof own.uuid);
    snprintf(own.device, sizeof own.device, "%s", job->device->description);
    return own;
}

static enum mics_status check_attempts(const struct attempt *all, uint32_t size,
                                       struct mics_err *err)
{
    uint32_t failed = 0, first = 0;

    for (uint32_t i = size; i-- > 0;)
        if (all[i].status != MICS_OK) {
            failed++;
            first = i;
        }
    if (failed == 0)
        return MICS_OK;
    mics_err_set(err, (enum mics_status)all[first].status, "%s", all[first].text);
    if (failed < size)
        mics_err_prefix(err, "rank %u, on %s", first, all[first].host);
    return (enum mics_status)all[first].status;
}

static uint32_t ranks_on(const struct attempt *all, uint32_t size, const char *host)
{
    uint32_t ranks = 0;

    for (uint32_t i = 0; i < size; i++)
        ranks += strcmp(all[i].host, host) == 0;
    return ranks;
}

/* Distinct GPUs: each is counted at the first rank that has it. */
static uint32_t gpus_on(const struct attempt *all, uint32_t size, const char *host)
{
    uint32_t gpus = 0;

    for (uint32_t i = 0; i < size; i++) {
        bool counted = strcmp(all[i].host, host) != 0;

        for (uint32_t j = 0; j < i && !counted; j++)
            counted = strcmp(all[j].host, host) == 0 &&
                      memcmp(all[i].uuid, all[j].uuid, sizeof all[i].uuid) == 0;
        gpus += !counted;
    }
    return gpus;
}

static enum mics_status check_sharing(const struct attempt *all, uint32_t size,
                                      struct mics_err *err)
{
    bool allowed = false;

    mics_read_switch("MICS_GPU_SHARE", &allowed, NULL); /* mics_world_open() refuses other values */
    if (allowed)
        return MICS_OK;
    for (uint32_t i = 1; i < size; i++)
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(all[i].host, all[j].host) != 0 ||
                memcmp(all[i].uuid, all[j].uuid, sizeof all[i].uuid) != 0)
                continue;
            return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                                "%s: %u ranks, but GPUs for %u: ranks %u and %u would share %s",
                                all[i].host, ranks_on(all, size, all[i].host),
                                gpus_on(all, size, all[i].host), j, i, all[i].device);
        }
    return MICS_OK;
}

static enum mics_status try_gpus(const struct mics_world *world, enum mics_device_kind kind,
                                 struct mics_job_device *job, struct mics_err *err)
{
    struct attempt *all = calloc(world->size, sizeof *all);
    enum mics_status status;

    if (!all)
        return mics_err_nomem(err);
    status = open_gpu(world, kind, job, err);
    const struct attempt own = describe_attempt(world, job, status, err);
    status = mics_comm_all_gather_now(world->comm, &own, all, sizeof own, err);
    if (status == MICS_OK)
        status = check_attempts(all, world->size, err);
    if (status == MICS_OK)
        status = check_sharing(all, world->size, err);
    free(all);
    if (status != MICS_OK)
        mics_job_device_close(job);
    return status;
}

enum mics_status mics_job_device_open(const struct mics_world *world, enum mics_device_kind kind,
                                      unsigned threads, struct mics_job_device *out,
                                      struct mics_err *err)
{
    struct mics_err why = {""};
    enum mics_status status = MICS_ERR_UNSUPPORTED;

    *out = (struct mics_job_device){0};
    if (kind != MICS_DEVICE_HOST)
        status = try_gpus(world, kind, out, &why);
    if (status == MICS_OK)
        return MICS_OK;
    if (kind == MICS_DEVICE_CUDA) {
        mics_err_set(err, status, "%s", why.text);
        mics_err_prefix(err, "--device=cuda");
        return status;
    }
    out->why_host = why;
    return mics_device_new_host(threads, &out->device, err);
}

void mics_job_device_close(struct mics_job_device *job)
{
    if (job->device)
        job->device->ops->free(job->device);
    mics_plugin_close(job->plugin);
    job->device = NULL;
    job->plugin = NULL;
}
