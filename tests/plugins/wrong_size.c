/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in whose table is shorter than it should be. */
#include "device/plugin.h"

mics_plugin_entry_fn mics_plugin_entry;

const struct mics_plugin *mics_plugin_entry(const struct mics_plugin_services *services)
{
    static const struct mics_plugin plugin = {.abi = MICS_PLUGIN_ABI, .size = 8};

    (void)services;
    return &plugin;
}
