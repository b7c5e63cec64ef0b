/* SPDX-License-Identifier: Apache-2.0 */
/* suspects.c - everybody is a suspect until judged. */
#include "probe/suspects.h"

#include <stdlib.h>
#include <string.h>

enum mics_status mics_suspects_init(struct mics_suspects *suspects, uint32_t count,
                                    struct mics_err *err)
{
    *suspects = (struct mics_suspects){.count = count};
    for (int k = 0; k < MICS_SUSPECT_KINDS; k++) {
        suspects->times[k] = calloc(count, sizeof *suspects->times[k]);
        suspects->slow[k] = malloc(count * sizeof *suspects->slow[k]);
        if (!suspects->times[k] || !suspects->slow[k]) {
            mics_suspects_fini(suspects);
            return mics_err_nomem(err);
        }
        memset(suspects->slow[k], true, count * sizeof *suspects->slow[k]);
    }
    return MICS_OK;
}

void mics_suspects_fini(struct mics_suspects *suspects)
{
    for (int k = 0; k < MICS_SUSPECT_KINDS; k++) {
        free(suspects->times[k]);
        free(suspects->slow[k]);
    }
    *suspects = (struct mics_suspects){0};
}

enum mics_status mics_suspects_judge(struct mics_suspects *suspects, uint32_t *left,
                                     struct mics_err *err)
{
    double *scratch = malloc(suspects->count * sizeof *scratch);

    if (!scratch)
        return mics_err_nomem(err);
    *left = 0;
    for (int k = 0; k < MICS_SUSPECT_KINDS; k++) {
        suspects->classes[k] = mics_class_of(suspects->times[k], suspects->count, scratch);
        for (uint32_t i = 0; i < suspects->count; i++) {
            if (!mics_class_is_slow(&suspects->classes[k], suspects->times[k][i]))
                suspects->slow[k][i] = false;
            *left += suspects->slow[k][i];
        }
    }
    free(scratch);
    return MICS_OK;
}
