/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - ranks that must go on together, or fail together with one reason.
 */
#ifndef MICS_COMM_AGREE_H
#define MICS_COMM_AGREE_H

#include "comm/comm.h"

/* Every rank gives its status and, when it failed, its text. If all are MICS_OK the answer is MICS_OK; else
 * every rank returns the status and the text of the lowest rank that failed, with "rank R: " before
 * it if that is not rank 0 and not all ranks failed alike. Collective over `comm`; blocks. A failure of the exchange itself
 * is returned as it is. */
enum mics_status mics_agree(struct mics_comm *comm, enum mics_status mine, struct mics_err *err);

#endif
