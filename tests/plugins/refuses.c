/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that does not know this program's services. */
#include "device/plugin.h"

mics_plugin_entry_fn mics_plugin_entry;

const struct mics_plugin *mics_plugin_entry(const struct mics_plugin_services *services)
{
    (void)services;
    return NULL;
}
