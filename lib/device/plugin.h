/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - the GPU's plug-in, found and opened at run time.
 *
 * Where it is looked for: in what $MICS_PLUGIN_PATH names, files or folders separated by colons; when that is
 * not set, beside the program (a folder of a build) and in ../lib/mics from there (an installation).
 */
#ifndef MICS_DEVICE_PLUGIN_H
#define MICS_DEVICE_PLUGIN_H

#include "device/plugin_abi.h"

struct mics_plugin_file; /* an open one */

/* Find and open the plug-in. MICS_ERR_UNSUPPORTED: there is none (the text names the places), or it is not
 * one that this program can use (the text names the file and what is wrong). On success *out belongs to the
 * caller, who closes it after everything that it made. */
enum mics_status mics_plugin_open(struct mics_plugin_file **out, struct mics_err *err);
void mics_plugin_close(struct mics_plugin_file *file); /* NULL is fine */

const struct mics_plugin *mics_plugin_table(const struct mics_plugin_file *file);
const char *mics_plugin_path(const struct mics_plugin_file *file);

#endif
