/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled differences, and the outer update of DiLoCo, against their formulas in double. */
#include "host/pool.h"
#include "host/vector.h"
#include "kernel_cases.h"
#include "kernels.h"

static void differences_are_scaled_and_may_replace_their_first_array(void)
{
    for (size_t c = 0; c < LENGTH(flat_cases); c++)
        for (unsigned p = 0; p < POOLS; p++) {
            const size_t count = flat_cases[c].count;
            float *a = random_floats(count, 1), *b = random_floats(count, 2);
            float *out = calloc(count + 1, sizeof *out);

            mics_host_difference(pools[p], &(struct mics_args_difference){out, a, b, count, 0.5f});
            for (size_t i = 0; i < count; i++)
                CHECK(out[i] == 0.5f * (a[i] - b[i]));
            CHECK(out[count] == 0);
            memcpy(out, a, count * sizeof *a);
            mics_host_difference(pools[p],
                                 &(struct mics_args_difference){a, a, NULL, count, 0.25f});
            for (size_t i = 0; i < count; i++)
                CHECK(a[i] == 0.25f * out[i]);
            free(a);
            free(b);
            free(out);
        }
}

static void outer_updates_agree_with_the_formula(void)
{
    const float lr = 0.7f, mu = 0.9f, scale = 0.25f;

    for (size_t c = 0; c < LENGTH(flat_cases); c++)
        for (unsigned p = 0; p < POOLS; p++) {
            const size_t count = flat_cases[c].count;
            float *anchor = random_floats(count, 3), *was = random_floats(count, 3);
            float *m = random_floats(count, 4), *m_was = random_floats(count, 4);
            float *delta = random_floats(count, 5), *param = calloc(count + 1, sizeof *param);
            uint16_t *copy = calloc(count + 1, sizeof *copy);

            mics_host_outer_update(
                pools[p], &(struct mics_args_outer_update){param, anchor, m, p ? copy : NULL, delta,
                                                           count, scale, lr, mu, p == 1});
            for (size_t i = 0; i < count; i++) {
                const double d = (double)scale * delta[i], next = (double)mu * m_was[i] + d;

                CHECK_NEAR(m[i], next, 1e-6 * (1 + fabs(next)));
                CHECK_NEAR(anchor[i], was[i] - (double)lr * (d + (double)mu * next),
                           1e-6 * (1 + fabs((double)anchor[i])));
                CHECK(param[i] == anchor[i]);
                CHECK(copy[i] == (p == 0   ? 0
                                  : p == 1 ? mics_f16_round(anchor[i])
                                           : mics_bf16_round(anchor[i])));
            }
            CHECK(param[count] == 0 && copy[count] == 0);
            free(anchor);
            free(was);
            free(m);
            free(m_was);
            free(delta);
            free(param);
            free(copy);
        }
}

int main(void)
{
    open_pools();
    TAP_RUN(differences_are_scaled_and_may_replace_their_first_array);
    TAP_RUN(outer_updates_agree_with_the_formula);
    return close_pools();
}
