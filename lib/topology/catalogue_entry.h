/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue_entry.h - one entry of a catalogue, read and checked. For catalogue.c.
 *
 * Each function sets what the entry says and leaves the rest of *out. MICS_ERR_FORMAT: the path of
 * the wrong value, and why.
 */
#ifndef MICS_TOPOLOGY_CATALOGUE_ENTRY_H
#define MICS_TOPOLOGY_CATALOGUE_ENTRY_H

#include "doc/cursor.h"
#include "topology/catalogue.h"

/* Is every member of the map one of `known`, which ends with NULL? */
enum mics_status mics_entry_check_members(const struct mics_cursor *at, const char *const *known,
                                          struct mics_err *err);

/* Everything that describes one GPU. */
enum mics_status mics_entry_gpu(const struct mics_cursor *gpu, struct mics_instance *out,
                                struct mics_err *err);

/* One of "instances"; of its GPU only the id. */
enum mics_status mics_entry_instance(const struct mics_cursor *at, struct mics_instance *out,
                                     struct mics_err *err);

/* The sections "reached" and "link_latency" of a catalogue. */
enum mics_status mics_entry_reached(const struct mics_cursor *root, struct mics_instance *out,
                                    struct mics_err *err);
enum mics_status mics_entry_link_latency(const struct mics_cursor *root, struct mics_instance *out,
                                         struct mics_err *err);

#endif
