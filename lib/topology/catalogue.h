/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.h - machines that can be rented or bought, by name.
 *
 * The catalogue is share/mics/instances.json, compiled into the library, so that programs need no
 * file. Users add files of the same format, whose entries replace those of the same name. Names and
 * aliases are compared without regard to case. A file is JSON:
 *
 *     ? about: for people; ignored
 *     ? gpus [{id, name, flops_dtype, peak_tflops, sustained (of the peak, 0 to 1), memory_mib,
 *              memory_gb_per_s, memory_reached (of it), link_gb_per_s (one way),
 *              ? link_reached (of it; else reached.link), ? pci_ids ["0x2330"],
 *              ? integrated (CPU and GPU have one memory), ? host_link HOST_LINK,
 *              ? kernels KERNELS, SOURCE}]
 *     ? instances [{name, ? aliases [], gpu (an id), gpus, cards, card_gbit,
 *                   net_latency {us, SOURCE}, ? price {usd_per_hour (of one machine), SOURCE},
 *                   ? host_link HOST_LINK (replaces the GPU's), SOURCE}]
 *     ? reached {link, net: {share (of the vendor's rate, 0 to 1), SOURCE}}
 *     ? link_latency {us, SOURCE}
 *     ? networks {NAME: {share (of a card's rate), us (latency), SOURCE}}
 *     HOST_LINK = {name, gb_per_s (one way), reached (of it), ? gpus (that share it and copy at
 *                  once; default: 1), SOURCE}
 *     KERNELS = {sms (multiprocessors), f32_tflops, ? tf32_tflops, bf16_tflops, f16_tflops (dense
 *                peaks), product_overhead_us (of each product), attention ("A100" or "H100": whose
 *                figures of FlashAttention-2 apply), attention_factor (part of these),
 *                ? pytorch_efficiency (of eager PyTorch, relative to fused kernels), SOURCE}
 *     SOURCE = ? source (text), ? date ("2026-11-22"): of all figures of the same map
 *
 * sustained, memory_mib, memory_reached, link_reached, f32_tflops, bf16_tflops,
 * product_overhead_us, attention_factor and pytorch_efficiency are numbers, or {value, SOURCE}.
 */
#ifndef MICS_TOPOLOGY_CATALOGUE_H
#define MICS_TOPOLOGY_CATALOGUE_H

#include "topology/topology.h"

#include <stddef.h>
#include <stdio.h>

struct mics_catalogue;

/* Where figures come from; each may be NULL: not stated. */
struct mics_source {
    const char *text, *date;
    const char *file; /* the user's file that has them; NULL: the built-in catalogue */
};

/* One machine: vendors' figures, and the fractions of them that are reached in practice. Strings
 * belong to the catalogue. */
struct mics_instance {
    const char *name;
    const json_t *aliases; /* array of strings, or NULL */
    const char *gpu_id, *gpu, *flops_dtype;
    uint32_t gpus;               /* of one machine */
    double peak_flops, flops;    /* FLOP/s of one GPU: dense peak, sustained */
    double memory_bytes;         /* of one GPU: the total that nvidia-smi reports */
    double memory_rate;          /* bytes/s of one GPU, the vendor's */
    double link_rate, card_rate; /* bytes/s one way: a GPU's link, one network card */
    uint32_t cards;              /* network cards of one machine */
    double link_latency_s, net_latency_s;
    bool integrated;                               /* its memory is the host's */
    const char *host_link;                         /* "PCIe 5.0 x16"; NULL: not known */
    uint32_t host_link_gpus;                       /* that share the link to the host */
    double host_rate, host_factor;                 /* bytes/s one way of that link */
    double memory_factor, link_factor, net_factor; /* reached fraction of each rate, 0 to 1 */
    double usd_per_hour;                           /* of one machine; 0: not known */
    struct mics_gpu_rates rates;                   /* of one GPU; sms 0: not known */

    struct mics_source source; /* of the machine: its GPUs and network cards */
    struct mics_source gpu_source, net_latency_source, price_source, link_latency_source;
    struct mics_source link_factor_source, net_factor_source, host_source;
    struct mics_source flops_source, memory_source, memory_factor_source;
    struct mics_source kernels_source, f32_source, bf16_source, overhead_source, attention_source;
    struct mics_source pytorch_source;
};

/* The built-in catalogue alone. *out belongs to the caller, who calls mics_catalogue_close(). */
enum mics_status mics_catalogue_open(struct mics_catalogue **out, struct mics_err *err);

/* The built-in catalogue, the files *.json in $XDG_CONFIG_HOME/mics (~/.config/mics), by name, and
 * the file `path` unless it is NULL. Errors as of mics_catalogue_add(). */
enum mics_status mics_catalogue_open_user(const char *path, struct mics_catalogue **out,
                                          struct mics_err *err);

/* Add the entries of a file ("-": standard input). MICS_ERR_FORMAT: the file, and the line or the
 * path of the wrong value; the catalogue is then only good for being closed. */
enum mics_status mics_catalogue_add(struct mics_catalogue *catalogue, const char *path,
                                    struct mics_err *err);

void mics_catalogue_close(struct mics_catalogue *catalogue); /* NULL is fine */

size_t mics_catalogue_count(const struct mics_catalogue *catalogue); /* instances */
size_t mics_catalogue_gpu_count(const struct mics_catalogue *catalogue);

/* index < count. MICS_ERR_FORMAT: the catalogue itself is wrong (a test reads all of it). */
enum mics_status mics_catalogue_get(const struct mics_catalogue *catalogue, size_t index,
                                    struct mics_instance *out, struct mics_err *err);

/* GPU index < gpu_count: sets what mics_catalogue_find_gpu() sets. */
enum mics_status mics_catalogue_get_gpu(const struct mics_catalogue *catalogue, size_t index,
                                        struct mics_instance *out, struct mics_err *err);

/* By name or alias. MICS_ERR_ARG: there is none; the message has up to three similar names. */
enum mics_status mics_catalogue_find(const struct mics_catalogue *catalogue, const char *name,
                                     struct mics_instance *out, struct mics_err *err);

/* A GPU by its name in the catalogue ("H200-141", ignoring case), by what comes before a '-' in it
 * if no other GPU's begins so ("H200"), or by its PCI device ("0x2335"). Sets what describes one
 * GPU, the factors and the link's latency; the rest of *out is 0. MICS_ERR_ARG: there is none, or
 * several; the message lists all GPUs, or these. */
enum mics_status mics_catalogue_find_gpu(const struct mics_catalogue *catalogue, const char *name,
                                         struct mics_instance *out, struct mics_err *err);

/* The rates of the first built-in GPU whose model ("H200" of "H200-141") is in the name of a
 * device, such as "NVIDIA H200". false: there is none; *out is unchanged. */
bool mics_catalogue_gpu_rates(const char *device, struct mics_gpu_rates *out);

/* What is reached of a card's rate, and the latency, in a kind of network that descriptions name:
 * "eth", "roce", "ib". false: there is none. */
bool mics_catalogue_network(const struct mics_catalogue *catalogue, const char *kind, double *share,
                            double *latency_s);

/* Bytes/s of copies between each GPU and the host while all GPUs copy. There is a host_link. */
double mics_instance_host_copy_rate(const struct mics_instance *instance);

/* Set the fields of a topology that its GPU determines, the link inside a node included. */
void mics_instance_set_device(const struct mics_instance *gpu, struct mics_topology *topology);

/* Make the document of a topology that is complete, and add the vendors' figures. `card_rate` is
 * the rate of each of a node's `cards` network cards; 0: unknown: neither is in the document. */
enum mics_status mics_instance_add_figures(const struct mics_instance *gpu, uint32_t cards,
                                           double card_rate, struct mics_topology *topology,
                                           struct mics_err *err);

/* 1 <= nodes <= MICS_MAX_NODES such machines. *out belongs to the caller, who calls
 * mics_topology_free(). */
enum mics_status mics_instance_topology(const struct mics_instance *instance, uint32_t nodes,
                                        struct mics_topology **out, struct mics_err *err);

/* One row per instance and, without `tsv`, one per GPU and the numbered sources. */
enum mics_status mics_catalogue_print(FILE *out, const struct mics_catalogue *catalogue, int tsv,
                                      struct mics_err *err);

/* All figures of the instance or the GPU `name`, each with its source and date. MICS_ERR_ARG: it is
 * unknown. */
enum mics_status mics_catalogue_print_instance(FILE *out, const struct mics_catalogue *catalogue,
                                               const char *name, int tsv, struct mics_err *err);

/* Open the topology of a document ("-": standard input) or, if there is no file of this name, of a
 * description in words of the user's catalogue, such as p4d.24xlarge:4. *out is the caller's. */
enum mics_status mics_topology_open(const char *text, struct mics_topology **out,
                                    struct mics_err *err);

#endif
