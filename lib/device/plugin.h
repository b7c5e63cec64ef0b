/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - the GPU's plug-in libmics-cuda.so: its interface, and how a program opens it.
 *
 * The plug-in exports one symbol, MICS_PLUGIN_ENTRY, and links nothing of the program: the entry
 * takes a table of services and returns a table of functions. Both tables begin with their size;
 * program and plug-in refuse each other when that differs, or when their devices have other
 * functions, kernels, or arguments of kernels.
 */
#ifndef MICS_DEVICE_PLUGIN_H
#define MICS_DEVICE_PLUGIN_H

#include "device/device.h"

#define MICS_PLUGIN_ENTRY "mics_plugin_entry"
#define MICS_PLUGIN_FILE  "libmics-cuda.so"

/* What a device is made of. */
#define MICS_DEVICE_BYTES (sizeof(struct mics_device_ops) + sizeof(struct mics_device))

/* What the program provides. Must outlive every use of the plug-in. */
struct mics_plugin_services {
    size_t size;
    double (*now_s)(void); /* the clock of all times: mics_now_s() */
};

/* What the plug-in provides. */
struct mics_plugin {
    uint32_t size;
    uint32_t device_size;    /* MICS_DEVICE_BYTES */
    uint32_t kernel_count;   /* MICS_KERNEL_COUNT */
    uint32_t argument_bytes; /* MICS_KERNEL_ARGUMENT_BYTES */
    const char *name;        /* of its devices: "cuda", "emulated" */
    const char *built;       /* in messages: "CUDA 13.0, sm_80 sm_90, PTX 90" */

    /* GPUs that this process sees, at least 1. MICS_ERR_UNSUPPORTED: there is none; the text has
     * the reason (no driver, one that is too old, no GPU). */
    enum mics_status (*gpu_count)(unsigned *out, struct mics_err *err);
    /* Open GPU `gpu` < gpu_count. It belongs to the caller, as a host device does. It has
     * communicators if the plug-in was built with NCCL. MICS_ERR_UNSUPPORTED: the plug-in was not
     * built for its architecture. */
    enum mics_status (*device_open)(unsigned gpu, struct mics_device **out, struct mics_err *err);
};

typedef const struct mics_plugin *mics_plugin_entry_fn(const struct mics_plugin_services *services);

/*
 * For programs. The plug-in is searched for in the files and folders of $MICS_PLUGIN_PATH,
 * separated by colons; when that is not set, beside the program (a build folder) and in ../lib/mics
 * from there (an installation).
 */

struct mics_plugin_file; /* an open one */

/* Find and open the plug-in. MICS_ERR_UNSUPPORTED: there is none (the text lists where it was
 * searched for), or this program cannot use it (the text has the file and the reason). On success
 * *out belongs to the caller, who closes it after all devices of the plug-in are freed. */
enum mics_status mics_plugin_open(struct mics_plugin_file **out, struct mics_err *err);
void mics_plugin_close(struct mics_plugin_file *file); /* NULL is fine */

const struct mics_plugin *mics_plugin_table(const struct mics_plugin_file *file);
const char *mics_plugin_path(const struct mics_plugin_file *file);

#endif
