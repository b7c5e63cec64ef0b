/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that needs what the program does not have. */
#include "device/plugin.h"

mics_plugin_entry_fn mics_plugin_entry;
extern const struct mics_plugin *mics_nobody_has_this(void);

const struct mics_plugin *mics_plugin_entry(const struct mics_plugin_services *services)
{
    (void)services;
    return mics_nobody_has_this();
}
