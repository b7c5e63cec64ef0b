/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/abort_marker.h"

#include <fcntl.h>
#include <unistd.h>

enum mics_status mics_halt_init(struct mics_halt *halt, const char *folder, int ranks,
                                struct mics_err *err)
{
    halt->alone = ranks == 1;
    halt->told = false;
    return mics_path_format(halt->path, err, "%s/" MICS_HALT_NAME, folder);
}

/* If it cannot be made, the others find out when they are done. */
void mics_halt_tell(struct mics_halt *halt)
{
    const int fd = halt->alone || halt->told ? -1 : open(halt->path, O_WRONLY | O_CREAT, 0666);

    if (fd >= 0)
        close(fd);
    halt->told = true;
}

bool mics_halt_heard(const struct mics_halt *halt)
{
    return !halt->alone && !halt->told && access(halt->path, F_OK) == 0;
}
