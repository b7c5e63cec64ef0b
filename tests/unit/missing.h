/* SPDX-License-Identifier: Apache-2.0 */
/* missing.h - a path that does not exist on any machine. */
#ifndef MICS_TESTS_MISSING_H
#define MICS_TESTS_MISSING_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* "FOLDER/NAME" where FOLDER was made for this test and removed. Valid until the next call. */
static inline const char *missing_path(const char *name)
{
    static char missing[256];
    char made[] = "/tmp/mics-missing-XXXXXX";

    if (!mkdtemp(made) || rmdir(made) != 0)
        abort();
    snprintf(missing, sizeof missing, "%s/%s", made, name);
    return missing;
}

#endif
