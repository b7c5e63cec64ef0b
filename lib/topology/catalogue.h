/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.h - machines that can be rented or bought, by name.
 *
 * The catalogue is share/mics/instances.json, compiled into the library, so that programs need no
 * file. Names and aliases are compared without regard to case.
 */
#ifndef MICS_TOPOLOGY_CATALOGUE_H
#define MICS_TOPOLOGY_CATALOGUE_H

#include "topology/topology.h"

#include <stddef.h>
#include <stdio.h>

struct mics_catalogue;

/* One machine: vendors' figures, and the fractions of them that are reached in practice. Strings
 * belong to the catalogue. */
struct mics_instance {
    const char *name;
    const json_t *aliases; /* array of strings */
    const char *gpu, *flops_dtype;
    uint32_t gpus;               /* of one machine */
    double peak_flops, flops;    /* FLOP/s of one GPU: dense peak, sustained */
    double memory_bytes;         /* of one GPU: the total that nvidia-smi reports */
    double memory_rate;          /* bytes/s of one GPU, the vendor's */
    double link_rate, card_rate; /* bytes/s one way: a GPU's link, one network card */
    uint32_t cards;              /* network cards of one machine */
    double link_latency_s, net_latency_s;
    double memory_factor, link_factor, net_factor; /* reached fraction of each rate, 0 to 1 */
    struct mics_gpu_rates rates;                   /* of one GPU */
};

enum mics_status mics_catalogue_open(struct mics_catalogue **out, struct mics_err *err);
void mics_catalogue_close(struct mics_catalogue *catalogue); /* NULL is fine */

size_t mics_catalogue_count(const struct mics_catalogue *catalogue);

/* index < count. MICS_ERR_FORMAT: the catalogue itself is wrong (a test reads all of it). */
enum mics_status mics_catalogue_get(const struct mics_catalogue *catalogue, size_t index,
                                    struct mics_instance *out, struct mics_err *err);

/* By name or alias. MICS_ERR_ARG: there is none; the message has up to three similar names. */
enum mics_status mics_catalogue_find(const struct mics_catalogue *catalogue, const char *name,
                                     struct mics_instance *out, struct mics_err *err);

/* A GPU by its name in the catalogue ("H200-141", ignoring case) or by its PCI device ("0x2335").
 * Sets what describes one GPU, the factors and the link's latency; the rest of *out is 0.
 * MICS_ERR_ARG: there is none; the message lists all GPUs. */
enum mics_status mics_catalogue_find_gpu(const struct mics_catalogue *catalogue, const char *name,
                                         struct mics_instance *out, struct mics_err *err);

/* The rates of the first GPU whose model ("H200" of "H200-141") is in the name of a device, such as
 * "NVIDIA H200". false: there is none; *out is unchanged. */
bool mics_catalogue_gpu_rates(const char *device, struct mics_gpu_rates *out);

/* Complete a topology that has all but its GPU: the fields of its device from `gpu`, and its
 * document, with the vendors' figures. `card_rate` is the rate of each of a node's `cards` network
 * cards; 0: they differ, and neither is in the document. */
enum mics_status mics_instance_set_gpu(const struct mics_instance *gpu, uint32_t cards,
                                       double card_rate, struct mics_topology *topology,
                                       struct mics_err *err);

/* 1 <= nodes <= MICS_MAX_NODES such machines. *out belongs to the caller, who calls
 * mics_topology_free(). */
enum mics_status mics_instance_topology(const struct mics_instance *instance, uint32_t nodes,
                                        struct mics_topology **out, struct mics_err *err);

/* One row per instance, with the vendors' figures: of one GPU, and of a whole machine's network. */
enum mics_status mics_catalogue_print(FILE *out, int tsv, struct mics_err *err);

#endif
