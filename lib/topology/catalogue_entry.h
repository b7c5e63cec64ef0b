/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue_entry.h - one entry of a catalogue, read and checked. For catalogue.c.
 *
 * Each function sets what the entry says and leaves the rest of *out.
 */
#ifndef MICS_TOPOLOGY_CATALOGUE_ENTRY_H
#define MICS_TOPOLOGY_CATALOGUE_ENTRY_H

#include "doc/cursor.h"
#include "topology/catalogue.h"

/* Is every member of the map one of `known`, which ends with NULL? */
void mics_entry_check_members(const struct mics_cursor *at, const char *const *known);

/* Everything that describes one GPU. */
void mics_entry_gpu(const struct mics_cursor *gpu, struct mics_instance *out);

/* One of "instances"; its GPU is only the id. */
void mics_entry_instance(const struct mics_cursor *at, struct mics_instance *out);

/* The sections "reached" and "link_latency" of a catalogue. */
void mics_entry_reached(const struct mics_cursor *root, struct mics_instance *out);
void mics_entry_link_latency(const struct mics_cursor *root, struct mics_instance *out);

#endif
