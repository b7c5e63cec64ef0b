/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - libraries that are not the plug-in they should be, one for each macro:
 *     no_entry      without the entry
 *     refuses       refuses this program's services
 *     unresolved    needs a symbol that the program does not have
 *     wrong_abi     of another interface
 *     wrong_size    with a table that is too short
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
#if defined wrong_abi
    static const struct mics_plugin table = {.abi = 99, .size = sizeof table};
#elif defined wrong_size
    static const struct mics_plugin table = {.abi = MICS_PLUGIN_ABI, .size = 8};
#endif

    (void)services;
#if defined wrong_abi || defined wrong_size
    return &table;
#elif defined unresolved
    return mics_missing_symbol();
#else
    return NULL;
#endif
}

#endif
