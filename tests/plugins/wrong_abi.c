/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of another interface. */
#include "device/plugin.h"

mics_plugin_entry_fn mics_plugin_entry;

const struct mics_plugin *mics_plugin_entry(const struct mics_plugin_services *services)
{
    static const struct mics_plugin plugin = {.abi = 99, .size = sizeof plugin};

    (void)services;
    return &plugin;
}
