/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue_entries.h - one entry of a catalogue, read and checked.
 *
 * Each function sets what the entry says and leaves the rest of *out. What is wrong is an error of
 * the cursor, with the path in the file; a figure of 0 or less is refused, since nothing here is
 * free or infinitely slow. Strings belong to the cursor's document. The format: catalogue.h.
 */
#ifndef MICS_TOPOLOGY_CATALOGUE_ENTRIES_H
#define MICS_TOPOLOGY_CATALOGUE_ENTRIES_H

#include "doc/cursor.h"
#include "topology/catalogue.h"

/* Is every member of the map one of `known`, which ends with NULL? */
void mics_entry_check_members(const struct mics_cursor *at, const char *const *known);

/* One of "gpus": everything that describes one GPU. */
void mics_entry_read_gpu(const struct mics_cursor *gpu, struct mics_instance *out);

/* One of "instances"; its GPU is only the id. */
void mics_entry_read_instance(const struct mics_cursor *at, struct mics_instance *out);

/* The link between GPU and host, of a GPU or of an instance, whose source is `source`. */
void mics_entry_read_host_link(const struct mics_cursor *of, const struct mics_source *source,
                               struct mics_instance *out);

/* The sections of these names of a whole catalogue. What a GPU says of its link stays. */
void mics_entry_read_reached(const struct mics_cursor *root, struct mics_instance *out);
void mics_entry_read_link_latency(const struct mics_cursor *root, struct mics_instance *out);

/* The section "networks", which is only checked, and one kind of network of it: the share of a
 * card's rate that is reached, and the latency in seconds. */
void mics_entry_read_networks(const struct mics_cursor *root, struct mics_instance *unused);
void mics_entry_read_network(const struct mics_cursor *at, double *share, double *latency_s);

#endif
