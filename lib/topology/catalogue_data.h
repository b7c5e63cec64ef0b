/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_data.h - the catalogue's text, without a NUL at its end. */
#ifndef MICS_TOPOLOGY_CATALOGUE_DATA_H
#define MICS_TOPOLOGY_CATALOGUE_DATA_H

#include <stddef.h>

extern const unsigned char mics_catalogue_data[];
extern const size_t mics_catalogue_size;

#endif
