/* SPDX-License-Identifier: Apache-2.0 */
/* The device of the plug-in: emulated here, a GPU where MICS_PLUGIN_PATH names the real plug-in. */
#include "device_checks.h"

#include "device/plugin.h"
#include "plugin_path.h"

static struct mics_plugin_file *file;
static const struct mics_plugin *plugin;
static bool emulated;

static void open_plugin(void)
{
    struct mics_err err = {""};

    use_plugin();
    if (mics_plugin_open(&file, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    plugin = mics_plugin_table(file);
    emulated = strcmp(plugin->name, "emulated") == 0;
}

static void open_gpu(void)
{
    struct mics_err err = {""};

    if (plugin->device_open(0, &device, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    ops = device->ops;
    clock_off = emulated ? 1e-4 : 1e-3;
}

/* Before anything asks the driver for its GPUs: it may look at the environment only once. */
static void each_stream_gets_a_connection_before_gpus_are_counted(void)
{
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

    CHECK_STR(connections ? connections : "", "32");
}

static void the_device_reports_its_properties(void)
{
    CHECK_STR(device->name, plugin->name);
    CHECK(!device->on_host);
    CHECK(device->description && strstr(device->description, "(GPU 0)"));
}

/* One that is enqueued behind a call gets the call's data, and the call what was enqueued
 * before. */
static void triple(void *context)
{
    int *value = context;

    *value *= 3;
}

static void calls_and_copies_are_in_the_order_of_the_stream(void)
{
    struct mics_stream *stream = open_stream("mixed");
    void *memory, *host;

    CHECK_INT(ops->alloc(device, sizeof(int), &memory, NULL), MICS_OK);
    CHECK_INT(ops->host_alloc(device, 3 * sizeof(int), &host, NULL), MICS_OK);
    int *at = host;
    at[0] = 5;
    mics_launch_copy(stream, &(struct mics_args_copy){memory, &at[0], sizeof(int)});
    mics_launch_copy(stream, &(struct mics_args_copy){&at[1], memory, sizeof(int)});
    sleep_in(stream, &short_nap);
    call(stream, triple, &at[1]);
    mics_launch_copy(stream, &(struct mics_args_copy){memory, &at[1], sizeof(int)});
    mics_launch_copy(stream, &(struct mics_args_copy){&at[2], memory, sizeof(int)});
    CHECK_INT(ops->stream_sync(stream, NULL), MICS_OK);
    CHECK_INT(at[2], 15);
    ops->stream_close(stream);
    ops->release(device, memory);
    ops->host_release(device, host);
}

/* Calls of different streams may wait for each other: none blocks another stream's. */
static sem_t met;

static void wait_for_other(void *context)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 5;
    *(int *)context = sem_timedwait(&met, &limit);
}

static void greet(void *context)
{
    (void)context;
    sem_post(&met);
}

static void a_call_that_waits_blocks_no_other_stream(void)
{
    struct mics_stream *waiting, *other;
    int late = -1;

    waiting = open_stream("waiting");
    other = open_stream("other");
    sem_init(&met, 0, 0);
    call(waiting, wait_for_other, &late);
    call(other, greet, NULL);
    CHECK_INT(ops->stream_sync(waiting, NULL), MICS_OK);
    CHECK_INT(late, 0);
    ops->stream_close(waiting);
    ops->stream_close(other);
    sem_destroy(&met);
}

/* A kernel that is enqueued after the host has waited, for more than a second, for a free entry for
 * its call: the kernel must not fail because the stream was still busy. */
static void a_long_wait_for_a_free_entry_fails_nothing(void)
{
    enum { CALLS = 300 }; /* more than there are entries */
    static const double longer_than_patience = 1.1;
    struct mics_stream *stream = open_stream("room");
    struct mics_err err = {""};
    void *memory;
    int count = 0;

    CHECK_INT(ops->alloc(device, 2 * sizeof(float), &memory, NULL), MICS_OK);
    sleep_in(stream, &longer_than_patience);
    for (int i = 0; i < CALLS; i++)
        call(stream, increment, &count);
    mics_launch_cast(stream, &(struct mics_args_cast){.dst = memory,
                                                      .src = (float *)memory + 1,
                                                      .count = 1,
                                                      .dst_dtype = MICS_F32,
                                                      .src_dtype = MICS_BF16});
    CHECK_INT(ops->stream_sync(stream, &err), MICS_OK);
    CHECK_STR(err.text, "");
    CHECK_INT(count, CALLS);
    ops->stream_close(stream);
    ops->release(device, memory);
}

static void what_is_too_large_is_refused_with_what_is_free(void)
{
    struct mics_err err = {""};
    void *memory;

    CHECK_INT(ops->alloc(device, (size_t)1 << 50, &memory, &err), MICS_ERR_NOMEM);
    CHECK(strstr(err.text, "(GPU 0): no memory for 1073741824 MiB: "));
    CHECK(strstr(err.text, " MiB are free"));
    CHECK_INT(ops->failure(device, &err), MICS_OK);
}

/* What an operation does not take is refused at the launch; the text names the operation. */
static void a_bad_operation_is_named(void)
{
    struct mics_stream *stream = open_stream("bad");
    struct mics_err err = {""};

    mics_launch_cast(
        stream, &(struct mics_args_cast){.count = 1, .dst_dtype = MICS_F32, .src_dtype = MICS_F64});
    CHECK_INT(ops->stream_sync(stream, &err), MICS_ERR_DEVICE);
    CHECK(strstr(err.text, "cast on stream bad: invalid argument"));
    ops->stream_close(stream);
}

static void without_a_usable_gpu_there_is_a_reason(void)
{
    static const struct {
        const char *name, *value, *text;
    } cases[] = {
        {"MICS_EMULATED_GPUS", "0", "no GPU: the driver sees none"},
        {"MICS_EMULATED_DRIVER", "0", "no GPU driver is installed (libcuda.so.1 is not there)"},
        {"MICS_EMULATED_DRIVER", "12040",
         "the GPU driver is for CUDA 12.4, this build needs 13.0: install a newer driver"},
    };
    struct mics_err err;
    unsigned count;

    if (!emulated)
        TAP_SKIP("a real machine cannot be changed");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv(cases[i].name, cases[i].value, 1);
        CHECK_INT(plugin->gpu_count(&count, &err), MICS_ERR_UNSUPPORTED);
        CHECK_STR(err.text, cases[i].text);
        unsetenv(cases[i].name);
    }
}

static void a_gpu_of_another_architecture_is_refused(void)
{
    struct mics_device *none = NULL;
    struct mics_err err = {""};

    if (!emulated)
        TAP_SKIP("a real machine cannot be changed");
    setenv("MICS_EMULATED_ARCH", "70", 1);
    CHECK_INT(plugin->device_open(0, &none, &err), MICS_ERR_UNSUPPORTED);
    CHECK(
        strstr(err.text, "GPU 0 (emulated) is sm_70: this build has code for sm_75, sm_80, sm_90"));
    setenv("MICS_EMULATED_ARCH", "86", 1); /* runs what is for 8.0 */
    CHECK_INT(plugin->device_open(0, &none, &err), MICS_OK);
    none->ops->free(none);
    setenv("MICS_EMULATED_ARCH", "120", 1); /* the driver translates what is for 9.0 */
    CHECK_INT(plugin->device_open(0, &none, &err), MICS_OK);
    none->ops->free(none);
    unsetenv("MICS_EMULATED_ARCH");
}

int main(void)
{
    open_plugin();
    TAP_RUN(each_stream_gets_a_connection_before_gpus_are_counted);
    TAP_RUN(without_a_usable_gpu_there_is_a_reason);
    TAP_RUN(a_gpu_of_another_architecture_is_refused);
    open_gpu();
    TAP_RUN(the_device_reports_its_properties);
    TAP_RUN(calls_and_copies_are_in_the_order_of_the_stream);
    TAP_RUN(a_call_that_waits_blocks_no_other_stream);
    TAP_RUN(a_long_wait_for_a_free_entry_fails_nothing);
    TAP_RUN(what_is_too_large_is_refused_with_what_is_free);
    check_device();
    ops->free(device);
    open_gpu();
    TAP_RUN(a_bad_operation_is_named);
    ops->free(device);
    mics_plugin_close(file);
    return tap_done();
}
