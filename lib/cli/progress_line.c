/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/units.h"
#include "cli/cli_internal.h"

#include <unistd.h>

#define FIRST_S 0.5

bool cli_progress_wanted(void)
{
    return cli_supports_escapes(STDERR_FILENO) && cli_state.verbosity >= 0;
}

void cli_progress_show(void *progress, uint64_t done, uint64_t total)
{
    struct cli_progress *line = progress;
    const double seconds = mics_now_s() - line->begin_s;
    char size[32], rate[32];

    if (seconds < FIRST_S || total == 0)
        return;
    fprintf(stderr, "\r\033[K%3d %% of %s, %s/s", (int)(100 * (double)done / (double)total),
            mics_format_bytes(total, size, sizeof size),
            mics_format_bytes((uint64_t)((double)done / seconds), rate, sizeof rate));
    line->shown = true;
}

void cli_progress_clear(void *progress)
{
    struct cli_progress *line = progress;

    if (line->shown)
        fputs("\r\033[K", stderr);
    line->shown = false;
}
