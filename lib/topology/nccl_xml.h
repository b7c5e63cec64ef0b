/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_xml.h - the devices of a machine from NCCL's file about it.
 *
 * The file is XML: system > cpu > pci ... > pci > gpu > nvlink, and pci > nic > net. Files for NCCL
 * may have the PCI devices only: GPUs are then those of class 0x0302, network cards those of class
 * 0x02. Unknown elements are skipped with their contents. Known elements in other places, malformed
 * numbers, and GPUs that differ are errors.
 */
#ifndef MICS_TOPOLOGY_NCCL_XML_H
#define MICS_TOPOLOGY_NCCL_XML_H

#include "topology/nccl_machine.h"

#include <stddef.h>

/* MICS_ERR_FORMAT: the line, what was found and what was expected. MICS_ERR_UNSUPPORTED: a build
 * without expat. */
enum mics_status mics_nccl_machine_parse(const char *text, size_t size,
                                         struct mics_nccl_machine *out, struct mics_err *err);

#endif
