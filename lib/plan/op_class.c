/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/op_class.h"

/* Longer than any step. */
#define MAX_SECONDS 1e18

static const struct {
    const char *key;
    size_t offset;
} media[] = {
    {"net_s", offsetof(struct mics_class_times, net_s)},
    {"net_exposed_s", offsetof(struct mics_class_times, net_exposed_s)},
    {"node_s", offsetof(struct mics_class_times, node_s)},
    {"node_exposed_s", offsetof(struct mics_class_times, node_exposed_s)},
};
enum { MEDIA = sizeof media / sizeof *media };

const char *mics_op_class_name(enum mics_op_class op_class)
{
    static const char *const names[MICS_CLASS_COUNT] = {
        [MICS_CLASS_FORWARD] = "forward",
        [MICS_CLASS_BACKWARD] = "backward",
        [MICS_CLASS_UPDATE] = "update",
        [MICS_CLASS_ACCUMULATE] = "accumulate",
        [MICS_CLASS_GATHER_NET] = "gather_net",
        [MICS_CLASS_GATHER_NODE] = "gather_node",
        [MICS_CLASS_REDUCE_NET] = "reduce_net",
        [MICS_CLASS_REDUCE_NODE] = "reduce_node",
        [MICS_CLASS_SYNC_NET] = "sync_net",
        [MICS_CLASS_SYNC_NODE] = "sync_node",
        [MICS_CLASS_PUBLISH_NET] = "publish_net",
        [MICS_CLASS_PUBLISH_NODE] = "publish_node",
        [MICS_CLASS_DISPATCH_NET] = "dispatch_net",
        [MICS_CLASS_DISPATCH_NODE] = "dispatch_node",
        [MICS_CLASS_OFFLOAD] = "offload",
        [MICS_CLASS_SCALARS] = "scalars",
    };

    return names[op_class];
}

void mics_class_times_add(struct mics_class_times *to, const struct mics_class_times *from,
                          double times)
{
    double *sum = (double *)to;
    const double *values = (const double *)from;

    for (size_t i = 0; i < sizeof *to / sizeof *sum; i++)
        sum[i] += times * values[i];
}

json_t *mics_class_times_to_json(const struct mics_class_times *times)
{
    json_t *object = json_object(), *classes = json_object();
    bool failed = !object || !classes;

    for (int i = 0; i < MEDIA && !failed; i++)
        failed = json_object_set_new(
                     object, media[i].key,
                     json_real(*(const double *)((const char *)times + media[i].offset))) != 0;
    for (int c = 0; c < MICS_CLASS_COUNT && !failed; c++)
        failed = times->busy_s[c] > 0 &&
                 json_object_set_new(classes, mics_op_class_name((enum mics_op_class)c),
                                     json_pack("{s:f, s:f}", "busy_s", times->busy_s[c],
                                               "exposed_s", times->exposed_s[c])) != 0;
    failed = json_object_set_new(object, "classes", classes) != 0 || failed;
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

void mics_class_times_read(const struct mics_cursor *parent, const char *key,
                           struct mics_class_times *out)
{
    const struct mics_cursor at = mics_cursor_get_object(parent, key);

    *out = (struct mics_class_times){.net_s = 0};
    for (int i = 0; i < MEDIA; i++)
        *(double *)((char *)out + media[i].offset) =
            mics_cursor_get_double(&at, media[i].key, 0, MAX_SECONDS);
    const struct mics_cursor classes = mics_cursor_get_object(&at, "classes");
    for (int c = 0; c < MICS_CLASS_COUNT; c++) {
        const char *name = mics_op_class_name((enum mics_op_class)c);

        if (!mics_cursor_has(&classes, name))
            continue;
        const struct mics_cursor one = mics_cursor_get_object(&classes, name);
        out->busy_s[c] = mics_cursor_get_double(&one, "busy_s", 0, MAX_SECONDS);
        out->exposed_s[c] = mics_cursor_get_double(&one, "exposed_s", 0, MAX_SECONDS);
    }
}
