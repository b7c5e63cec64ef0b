/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include <stdlib.h>

void mics_plan_free(struct mics_plan *plan)
{
    if (!plan)
        return;
    mics_topology_free(plan->topology);
    mics_model_free(plan->model);
    json_decref(plan->doc);
    free(plan->alternatives);
    free(plan);
}
