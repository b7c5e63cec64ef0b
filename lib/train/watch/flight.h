/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - what a rank did last, written when the job ends by a fault: a document mics.flight.
 *
 * Each rank that still can writes OUT/flight/rank-NNNNN.mp: the last operations that its engine has
 * begun, what is due, what the main thread is doing, and why it was written. mics-show gathers them
 * (report/flights.h). The operations are read from the events of the engine's streams, so a run
 * without a fault pays nothing. The first fault counts: what is written later is of its
 * consequences, except after a mere request to stop, or after a stall that has passed. At an
 * orderly end each rank removes what it wrote.
 *
 * A thread of its own writes the file, so that a file system that hangs keeps no job from ending.
 */
#ifndef MICS_TRAIN_WATCH_FLIGHT_H
#define MICS_TRAIN_WATCH_FLIGHT_H

#include "train/run.h"

enum { MICS_FLIGHT_OPS = 64 };

enum mics_flight_reason {
    MICS_FLIGHT_STOP,    /* SIGTERM or SIGINT, perhaps because another rank failed */
    MICS_FLIGHT_STALL,   /* no progress for the time-out */
    MICS_FLIGHT_DEATH,   /* a process of this node has exited */
    MICS_FLIGHT_COMM,    /* a communicator failed */
    MICS_FLIGHT_PEER,    /* this rank failed because another one had */
    MICS_FLIGHT_FAILURE, /* this rank failed */
};

/* Another rank that this one knows to be gone. */
struct mics_flight_lost {
    uint32_t rank;
    bool dead;         /* its process has exited; else it does not answer */
    const char *state; /* what it was last seen in: "step 12: gather of h.2, micro-step 1" */
};

struct mics_flight;

/* Put the documents of an earlier run in OUT/flight aside, as OUT/flight.old. On rank 0, before any
 * rank writes. */
enum mics_status mics_flight_clear(const char *out, struct mics_err *err);

/* Everything that is passed outlives the flight. */
enum mics_status mics_flight_open(const struct mics_world *world, const struct mics_engine *engine,
                                  const struct mics_run *run, const char *out,
                                  struct mics_flight **out_flight, struct mics_err *err);
void mics_flight_close(struct mics_flight *flight); /* NULL is fine, here and below */

/* This process did not run for `seconds` until now. Any thread. */
void mics_flight_note_suspended(struct mics_flight *flight, double seconds);

/* Begin to write the document, unless there is one of an earlier fault. Any thread; waits neither
 * for another rank nor for the file system. A failure is not reported: the job fails for another
 * reason. */
void mics_flight_write(struct mics_flight *flight, enum mics_flight_reason reason, const char *text,
                       const struct mics_flight_lost *lost, size_t lost_count);
/* Wait until it is written, for at most 2 s; call it before the job is ended. Is it? Any thread. */
bool mics_flight_wait(struct mics_flight *flight);
/* Begin to remove it if it was written for this reason, which has passed. Any thread. */
void mics_flight_withdraw(struct mics_flight *flight, enum mics_flight_reason reason);
/* Remove it after an orderly end. */
void mics_flight_remove(struct mics_flight *flight);

#endif
