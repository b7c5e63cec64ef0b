/* SPDX-License-Identifier: Apache-2.0 */
/* none.c - the MPI backend of a build without MPI. */
#include "comm/comm.h"
#include "comm/mpi_version.h"

#include <string.h>

enum mics_status mics_comm_new_mpi(struct mics_comm **out, struct mics_err *err)
{
    (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "this build is without MPI");
}

bool mics_comm_has_native(const struct mics_comm *comm)
{
    (void)comm;
    return false;
}

enum mics_status mics_comm_new_native(struct mics_comm *comm, struct mics_comm **out,
                                      struct mics_err *err)
{
    (void)comm, (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "this build is without MPI");
}

void mics_mpi_version(char version[128])
{
    strcpy(version, "none");
}
