/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/staged.h"

#include <stdlib.h>
#include <string.h>

static enum mics_status is_detour_asked(bool *out, struct mics_err *err)
{
    const char *text = getenv("MICS_COMM");

    *out = text && strcmp(text, "staged") == 0;
    if (!text || !*text || *out)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "MICS_COMM: expected \"staged\", found \"%s\"", text);
}

enum mics_status mics_comm_new_for_device(struct mics_comm *control, struct mics_device *device,
                                          struct mics_comm **out, struct mics_err *err)
{
    struct mics_comm *host = NULL;
    bool detour;
    enum mics_status status = is_detour_asked(&detour, err);

    if (status != MICS_OK)
        return status;
    if (device->ops->comm_open && !detour)
        return device->ops->comm_open(device, control, out, err);
    status = control->ops->split(control, 0, control->rank, control->rank, &host, err);
    if (status != MICS_OK)
        return status;
    if (!device->on_host || detour)
        return mics_comm_new_staged(host, device, out, err);
    *out = host;
    return MICS_OK;
}
