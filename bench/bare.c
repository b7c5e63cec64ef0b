/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare.c - an MPI program that only initialises and finalises: what a start costs without us.
 */
#include <mpi.h>

int main(int argc, char **argv)
{
    return MPI_Init(&argc, &argv) == MPI_SUCCESS && MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
