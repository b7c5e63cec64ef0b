/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_version.h - the MPI library that this program uses. */
#ifndef MICS_COMM_MPI_VERSION_H
#define MICS_COMM_MPI_VERSION_H

/* Its name and version: "Open MPI v4.1.6"; "none" in a build without MPI. Any thread, any time. */
void mics_mpi_version(char version[128]);

#endif
