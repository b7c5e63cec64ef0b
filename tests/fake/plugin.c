/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - libraries that are not the plug-in they should be, one for each macro:
 *     no_entry        without the entry
 *     refuses         refuses this program's services
 *     unresolved      needs a symbol that the program does not have
 *     wrong_size      with a table that is too short
 *     wrong_device    whose devices have other functions
 *     wrong_kernels   whose devices have other kernels
 *     wrong_arguments whose kernels have other arguments
 */
#include "device/plugin.h"

#ifdef no_entry

extern int mics_something_else;
int mics_something_else = 1;

#else

mics_plugin_entry_fn mics_plugin_entry;

#ifdef unresolved
extern const struct mics_plugin *mics_missing_symbol(void);
#endif

const struct mics_plugin *mics_plugin_entry(const struct mics_plugin_services *services)
{
    static struct mics_plugin table = {
        .size = sizeof table,
        .device_size = MICS_DEVICE_BYTES,
        .kernel_count = MICS_KERNEL_COUNT,
        .argument_bytes = MICS_KERNEL_ARGUMENT_BYTES,
    };

    (void)services;
#if defined unresolved
    return mics_missing_symbol();
#elif defined refuses
    return NULL;
#elif defined wrong_size
    table.size = 8;
#elif defined wrong_device
    table.device_size = 8;
#elif defined wrong_kernels
    table.kernel_count = 3;
#elif defined wrong_arguments
    table.argument_bytes -= 8;
#endif
    return &table;
}

#endif
