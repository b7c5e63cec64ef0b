/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_abi.h - what a program and the plug-in libmics-cuda.so say to each other.
 *
 * The plug-in exports one symbol, MICS_PLUGIN_ENTRY, and needs none of the program: it is handed a table of
 * services and returns a table of what it makes. Both begin with the number of this interface and their
 * size; whoever finds another number or size than its own has nothing to do with the other.
 */
#ifndef MICS_DEVICE_PLUGIN_ABI_H
#define MICS_DEVICE_PLUGIN_ABI_H

#include "device/device.h"

#define MICS_PLUGIN_ABI   4
#define MICS_PLUGIN_ENTRY "mics_plugin_entry"
#define MICS_PLUGIN_FILE  "libmics-cuda.so"

/* What the program gives. It outlives the plug-in's use. */
struct mics_plugin_services {
    uint32_t abi, size;
    double (*now_s)(void); /* the clock of all times: mics_now_s() */
};

/* What the plug-in makes. */
struct mics_plugin {
    uint32_t abi, size;
    const char *name;  /* of its devices: "cuda", "emulated" */
    const char *built; /* for people: "CUDA 13.0, sm_80 sm_90, PTX 90" */

    /* GPUs that this process sees, at least 1. MICS_ERR_UNSUPPORTED: why there is none (no driver, one that is
     * too old, no GPU). */
    enum mics_status (*gpu_count)(unsigned *out, struct mics_err *err);
    /* GPU number `gpu` < gpu_count. It belongs to the caller, as a device of the host does; it has communicators
     * of its own where the plug-in was built with NCCL. MICS_ERR_UNSUPPORTED: an architecture that the plug-in was not built for. */
    enum mics_status (*device_open)(unsigned gpu, struct mics_device **out, struct mics_err *err);
};

typedef const struct mics_plugin *mics_plugin_entry_fn(const struct mics_plugin_services *services);

#endif
