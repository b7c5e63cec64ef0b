/* SPDX-License-Identifier: Apache-2.0 */
/* version.c - the MPI library's own description. */
#include "comm/mpi_version.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Open MPI adds who built it, and when, after a comma. */
void mics_mpi_version(char version[128])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    snprintf(version, 128, "%.127s", text);
}
