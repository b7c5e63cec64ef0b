/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flights.h - what ranks did last before a job ended by a fault, and which of them is to blame.
 *
 * Each rank that could has written a document mics.flight (train/watch/flight.h). Gathered they are
 * a document mics.flights with a verdict. The same operation has the same numbers on all ranks, so
 * the members of a collective that have begun it can be told from those that never did. A rank that
 * others wait for and that waits for another rank itself is not to blame, but the one at the end of
 * that chain. Deaths, failures and suspensions that a rank has seen count before what follows from
 * operations.
 */
#ifndef MICS_REPORT_FLIGHTS_H
#define MICS_REPORT_FLIGHTS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define MICS_FLIGHT_KIND     "mics.flight"
#define MICS_FLIGHT_VERSION  1
#define MICS_FLIGHTS_KIND    "mics.flights"
#define MICS_FLIGHTS_VERSION 1

#define MICS_FLIGHT_FOLDER "flight" /* in the folder of a run */
#define MICS_FLIGHT_FILE   "rank-%05u.mp"

/* Is `path` a folder with documents of ranks? */
bool mics_flights_recognize(const char *path);
/* Gather those of a folder. Errors begin with the path. */
enum mics_status mics_flights_load(const char *folder, json_t **out, struct mics_err *err);
/* Gather documents mics.flight of one job in any order. *out belongs to the caller.
 * MICS_ERR_FORMAT: one is malformed, or they are not of one job. */
enum mics_status mics_flights_gather(json_t *const *docs, size_t count, json_t **out,
                                     struct mics_err *err);

/* The operations of one rank. */
enum mics_status mics_flight_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);
/* The verdict, and each rank's last and current operation. */
enum mics_status mics_flights_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
