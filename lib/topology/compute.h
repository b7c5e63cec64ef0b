/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute.h - how long kernels take on a device.
 *
 * On a GPU, a matrix product is divided into tiles, which the multiprocessors compute in waves; the
 * last wave may be nearly empty, and a small product is less than one. Attention has the rate of
 * FlashAttention-2 at its length and head size. All other kernels move their bytes at the bandwidth
 * that is reached. Every kernel has an overhead on the GPU, and costs the host the time to launch
 * it.
 *
 * On a host, a kernel takes max(FLOPs / rate, bytes / bandwidth).
 */
#ifndef MICS_TOPOLOGY_COMPUTE_H
#define MICS_TOPOLOGY_COMPUTE_H

#include "topology/topology.h"
#include "work.h"

/* What the kernels of a topology's devices are priced with. Plain data: it may be copied, and read
 * by any number of threads. */
struct mics_compute {
    const struct mics_topology *topology; /* the caller's */
    bool gpu;
    struct mics_gpu_rates rates; /* of a GPU; complete */
    double bandwidth;            /* reached, bytes/s */
    /* The profile: seconds are divided by `efficiency`, bytes of passes over memory multiplied by
     * `traffic`. */
    double efficiency, traffic;
};

/* Rates that the topology does not have come from the catalogue, by the name of the GPU, or are
 * those of an A100 in proportion to the FLOP/s. */
void mics_compute_init(struct mics_compute *out, const struct mics_topology *topology);

/* A launch: seconds on the device, and for which the host is busy launching it. */
struct mics_launch_cost {
    double device_s, host_s;
};
struct mics_launch_cost mics_compute_launch(const struct mics_compute *compute,
                                            const struct mics_kernel_work *work);

/* Seconds of launches that follow each other on one stream, from the sums of their costs: the host
 * launches ahead of the device, unless launching takes longer. */
double mics_compute_seconds(const struct mics_compute *compute,
                            const struct mics_launch_cost *launches);

/* The software that is predicted, unless it is this trainer: "eager PyTorch at 0.72 of fused
 * kernels"; else empty. Returns text. */
const char *mics_compute_describe_profile(const struct mics_compute *compute, char *text,
                                          size_t size);

#endif
