/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_data.c - the bytes of share/mics/instances.json; the Makefile makes the included file. */
#include "topology/catalogue_data.h"

const unsigned char mics_catalogue_data[] = {
#include "instances.inc"
};

const size_t mics_catalogue_size = sizeof mics_catalogue_data;
