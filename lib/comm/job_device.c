/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_device.c - every rank tries, all tell each other how it went, and each comes to the same verdict from that.
 */
#include "comm/job_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each rank tells of its attempt. */
struct card {
    int status;
    char uuid[16], host[64], device[96], text[512];
};

bool mics_device_kind_parse(const char *text, enum mics_device_kind *out)
{
    static const char *const names[] = {"auto", "host", "cuda"};

    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum mics_device_kind)i;
            return true;
        }
    return false;
}

static size_t host_length(const char *host)
{
    return strcspn(host, "#"); /* the number of a declared node follows */
}

static bool is_same_host(const char *a, const char *b)
{
    return host_length(a) == host_length(b) && strncmp(a, b, host_length(a)) == 0;
}

/* This rank's place among the ranks of its machine: declared nodes may share one. */
static uint32_t place_on_host(const struct mics_world *world)
{
    const char *own = world->host_of_node[world->node];
    uint32_t place = world->local_rank;

    for (uint32_t i = 0; world->declared && i < world->node; i++)
        if (is_same_host(world->host_of_node[i], own))
            place += world->ranks_of_node[i];
    return place;
}

/* The plug-in and its libraries are large: on a machine without a driver nobody shall wait for them who
 * did not ask. A plug-in that is named is always opened. */
static enum mics_status look_for_driver(struct mics_err *err)
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
                                 struct mics_chosen *chosen, struct mics_err *err)
{
    enum mics_status status = kind == MICS_DEVICE_AUTO ? look_for_driver(err) : MICS_OK;
    const struct mics_plugin *plugin;
    unsigned count = 0;

    if (status == MICS_OK)
        status = mics_plugin_open(&chosen->plugin, err);
    if (status != MICS_OK)
        return status;
    plugin = mics_plugin_table(chosen->plugin);
    status = plugin->gpu_count(&count, err);
    if (status == MICS_OK)
        status = plugin->device_open(place_on_host(world) % count, &chosen->device, err);
    return status;
}

static struct card make_card(const struct mics_world *world, const struct mics_chosen *chosen,
                             enum mics_status status, const struct mics_err *err)
{
    struct card card = {.status = status};

    snprintf(card.host, sizeof card.host, "%s", world->host_of_node[world->node]);
    card.host[host_length(card.host)] = '\0';
    if (status != MICS_OK) {
        snprintf(card.text, sizeof card.text, "%s", err->text);
        return card;
    }
    memcpy(card.uuid, chosen->device->uuid, sizeof card.uuid);
    snprintf(card.device, sizeof card.device, "%s", chosen->device->description);
    return card;
}

static enum mics_status check_attempts(const struct card *cards, uint32_t size,
                                       struct mics_err *err)
{
    uint32_t failed = 0, first = 0;

    for (uint32_t i = size; i-- > 0;)
        if (cards[i].status != MICS_OK) {
            failed++;
            first = i;
        }
    if (failed == 0)
        return MICS_OK;
    mics_err_set(err, (enum mics_status)cards[first].status, "%s", cards[first].text);
    if (failed < size)
        mics_err_prefix(err, "rank %u, on %s", first, cards[first].host);
    return (enum mics_status)cards[first].status;
}

static uint32_t ranks_on(const struct card *cards, uint32_t size, const char *host)
{
    uint32_t ranks = 0;

    for (uint32_t i = 0; i < size; i++)
        ranks += strcmp(cards[i].host, host) == 0;
    return ranks;
}

/* Each GPU counts once, at the first rank that has it. */
static uint32_t gpus_on(const struct card *cards, uint32_t size, const char *host)
{
    uint32_t gpus = 0;

    for (uint32_t i = 0; i < size; i++) {
        bool known = strcmp(cards[i].host, host) != 0;

        for (uint32_t j = 0; j < i && !known; j++)
            known = strcmp(cards[j].host, host) == 0 &&
                    memcmp(cards[i].uuid, cards[j].uuid, sizeof cards[i].uuid) == 0;
        gpus += !known;
    }
    return gpus;
}

static enum mics_status check_sharing(const struct card *cards, uint32_t size, struct mics_err *err)
{
    const char *allowed = getenv("MICS_GPU_SHARE");

    if (allowed && strcmp(allowed, "1") == 0)
        return MICS_OK;
    for (uint32_t i = 1; i < size; i++)
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(cards[i].host, cards[j].host) != 0 ||
                memcmp(cards[i].uuid, cards[j].uuid, sizeof cards[i].uuid) != 0)
                continue;
            return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                                "%s: %u ranks, but GPUs for %u: ranks %u and %u would share %s",
                                cards[i].host, ranks_on(cards, size, cards[i].host),
                                gpus_on(cards, size, cards[i].host), j, i, cards[i].device);
        }
    return MICS_OK;
}

static enum mics_status try_gpus(const struct mics_world *world, enum mics_device_kind kind,
                                 struct mics_chosen *chosen, struct mics_err *err)
{
    struct card *cards = calloc(world->size, sizeof *cards);
    enum mics_status status;

    if (!cards) /* the others wait: this ends the job by their watch, or here */
        return mics_err_nomem(err);
    status = open_gpu(world, kind, chosen, err);
    const struct card card = make_card(world, chosen, status, err);
    status = world->comm->ops->all_gather_now(world->comm, &card, cards, sizeof card, err);
    if (status == MICS_OK)
        status = check_attempts(cards, world->size, err);
    if (status == MICS_OK)
        status = check_sharing(cards, world->size, err);
    free(cards);
    if (status != MICS_OK)
        mics_chosen_close(chosen);
    return status;
}

enum mics_status mics_device_choose(const struct mics_world *world, enum mics_device_kind kind,
                                    unsigned threads, struct mics_chosen *out, struct mics_err *err)
{
    struct mics_err why = {""};
    enum mics_status status = MICS_ERR_UNSUPPORTED;

    *out = (struct mics_chosen){0};
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

void mics_chosen_close(struct mics_chosen *chosen)
{
    if (chosen->device)
        chosen->device->ops->free(chosen->device);
    mics_plugin_close(chosen->plugin);
    chosen->device = NULL;
    chosen->plugin = NULL;
}
