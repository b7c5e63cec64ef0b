/* SPDX-License-Identifier: Apache-2.0 */
/* version.h - the version; the Makefile reads it here, too. */
#ifndef MICS_BASE_VERSION_H
#define MICS_BASE_VERSION_H

#define MICS_VERSION "0.1.0"

#endif
