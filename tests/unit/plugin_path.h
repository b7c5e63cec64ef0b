/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_path.h - plug-ins of this build, for tests: they run as
 * BUILD/tests/unit/LAYER/test_NAME. */
#ifndef MICS_TESTS_PLUGIN_PATH_H
#define MICS_TESTS_PLUGIN_PATH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* *out = BUILD/NAME: this program is somewhere under BUILD/tests. */
static inline void in_build(const char *name, char out[4096])
{
    char exe[2048] = "";

    if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0)
        abort();
    char *tests = NULL;
    for (char *at = exe; (at = strstr(at, "/tests/")); at++)
        tests = at;
    if (!tests)
        abort();
    *tests = '\0';
    snprintf(out, 4096, "%s/%s", exe, name);
}

/* Open the emulated plug-in from now on, or what MICS_PLUGIN_PATH names: on a machine with a GPU,
 * the real one. */
static inline void use_plugin(void)
{
    char path[4096];

    in_build("emulated", path);
    setenv("MICS_PLUGIN_PATH", path, 0);
}

#endif
