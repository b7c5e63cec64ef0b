/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decompress.h - streams of gzip (RFC 1952) and zstd (RFC 8878), in memory that does not depend on
 * their size.
 *
 * A stream has any number of members or frames, as pigz, zstd -T and cat make them. Skippable
 * frames of zstd, and zeros behind the last member of gzip, are skipped.
 */
#ifndef MICS_DATA_DECOMPRESS_H
#define MICS_DATA_DECOMPRESS_H

#include "data/format.h"

/* Takes the next `size` bytes. A failure ends decompression, which returns it. */
typedef enum mics_status mics_decompress_sink(void *context, const unsigned char *bytes,
                                              size_t size, struct mics_err *err);

/* Decompress bytes[size]. MICS_ERR_FORMAT: they are damaged or end too early, with the position;
 * the sink has had what came before. */
enum mics_status mics_decompress(enum mics_compression compression, const unsigned char *bytes,
                                 uint64_t size, mics_decompress_sink *sink, void *context,
                                 struct mics_err *err);

#endif
