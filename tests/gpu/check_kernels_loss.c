/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's cross entropy against the host's. */
#include "check.h"

/* Vocabularies that fit shared memory and that do not, aligned rows and not, with gaps and
 * without. */
static const struct {
    uint32_t rows, V, gap;
    unsigned shift;
} shapes[] = {{0, 7, 0, 0},     {1, 1, 0, 0},     {3, 2, 0, 1},      {9, 31, 1, 0},
              {32, 32, 0, 0},   {5, 33, 7, 0},    {4, 4097, 7, 0},   {3, 4096, 0, 0},
              {2, 50257, 7, 0}, {2, 50257, 0, 0}, {1, 131072, 0, 0}, {7, 8, 0, 0},
              {520, 3, 5, 0},   {2, 57000, 3, 1}, {1, 57344, 0, 0},  {1, 56832, 0, 0}};

/* Every fifth target is masked, some by being too large. */
static int32_t *make_targets(uint32_t rows, uint32_t V)
{
    int32_t *targets = need(rows * sizeof(*targets));

    for (uint32_t i = 0; i < rows; i++)
        targets[i] = i % 5 != 3 ? (int32_t)(i * 7919 % V) : i % 2 ? -1 : (int32_t)V;
    return targets;
}

/* The loss that the device computes onto 2; the logits' array has the result. */
static double device_loss(struct array *logits, const int32_t *targets, uint32_t rows, uint32_t V,
                          uint32_t ld, bool grad)
{
    struct mics_args_cross_entropy args = {logits->device, NULL,         NULL, rows, V, ld,
                                           grad,           logits->dtype};
    double loss[2] = {2, 2}, got[2];

    must(cudaMalloc((void **)&args.targets, rows * sizeof(*targets)), "cudaMalloc");
    must(cudaMalloc((void **)&args.loss_sum, sizeof(loss)), "cudaMalloc");
    must(cudaMemcpy((void *)args.targets, targets, rows * sizeof(*targets), cudaMemcpyHostToDevice),
         "copy");
    must(cudaMemcpy(args.loss_sum, loss, sizeof(loss), cudaMemcpyHostToDevice), "copy");
    CHECK_INT(mics_cuda_cross_entropy(&at, &args), cudaSuccess);
    after_first((struct array *const[]){logits, NULL});
    must(cudaMemcpy(got, args.loss_sum, sizeof(got), cudaMemcpyDeviceToHost), "copy");
    must(cudaMemcpy(args.loss_sum, loss, sizeof(loss), cudaMemcpyHostToDevice), "copy");
    CHECK_INT(mics_cuda_cross_entropy(&at, &args), cudaSuccess);
    after_second((struct array *const[]){logits, NULL});
    must(cudaMemcpy(loss, args.loss_sum, sizeof(loss), cudaMemcpyDeviceToHost), "copy");
    CHECK(memcmp(got, loss, sizeof(got)) == 0);
    CHECK(got[1] == 2); /* beyond it nothing is written */
    must(cudaFree((void *)args.targets), "cudaFree");
    must(cudaFree(args.loss_sum), "cudaFree");
    return got[0];
}

static void losses_and_gradients_agree(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < (shapes[s].rows > 500 ? 1 : LENGTH(dtypes)); d++) {
            const uint32_t rows = shapes[s].rows, V = shapes[s].V, ld = V + shapes[s].gap;
            struct array logits =
                array_random(dtypes[d], (size_t)rows * ld, 12, s, shapes[s].shift);
            int32_t *targets = make_targets(rows, V);
            double got = device_loss(&logits, targets, rows, V, shapes[s].gap ? ld : 0, true),
                   want = 2;

            mics_host_cross_entropy(pool,
                                    &(struct mics_args_cross_entropy){logits.values, targets, &want,
                                                                      rows, V, ld, true, MICS_F32});
            CHECK_NEAR(got / want, 1, 1e-6);
            CHECK_ARRAY(&logits, logits.values, 2e-6);
            array_free(&logits);
            free(targets);
        }
}

static void without_gradient_the_logits_stay_on_the_gpu(void)
{
    for (size_t d = 0; d < LENGTH(dtypes); d++) {
        struct array logits = array_random(dtypes[d], 6 * 5001, 9, 1, 0);
        int32_t *targets = make_targets(6, 5001);
        double got = device_loss(&logits, targets, 6, 5001, 0, false), want = 2;

        mics_host_cross_entropy(pool,
                                &(struct mics_args_cross_entropy){logits.values, targets, &want, 6,
                                                                  5001, 0, false, MICS_F32});
        CHECK_NEAR(got / want, 1, 1e-6);
        CHECK(memcmp(logits.got, logits.begin, array_bytes(&logits)) == 0);
        array_free(&logits);
        free(targets);
    }
}

static void masked_rows_count_nothing_even_with_nan_on_the_gpu(void)
{
    const float numbers[] = {NAN, 1, 2, 0, 0, 0, 5, NAN, 1}, third = 1.0f / 3;
    const float want[] = {0, 0, 0, third, third - 1, third, 0, 0, 0};
    const int32_t targets[] = {-1, 1, 3};
    struct array logits = array_of(MICS_F32, numbers, 9, 0);

    CHECK_NEAR(device_loss(&logits, targets, 3, 3, 3, true), 2 + log(3), 1e-6);
    CHECK_ARRAY(&logits, want, 1e-6);
    array_free(&logits);
}

static void nan_and_infinity_give_a_loss_that_is_not_a_number_on_the_gpu(void)
{
    static const float bad[] = {NAN, INFINITY};

    for (size_t i = 0; i < LENGTH(bad); i++)
        for (uint32_t place = 0; place < 40; place += 13) {
            float numbers[40] = {0};
            const int32_t target = 2;
            struct array logits;

            numbers[place] = bad[i];
            logits = array_of(dtypes[place % 2], numbers, 40, 0);
            CHECK(isnan(device_loss(&logits, &target, 1, 40, 0, true)));
            array_free(&logits);
        }
}

static void excluded_and_large_logits_neither_overflow_nor_vanish(void)
{
    const float numbers[] = {-INFINITY, 30000, 29999, -INFINITY}, e = 0.26894143f;
    const float want[] = {0, -e, e, 0};
    const int32_t target = 1;
    struct array logits = array_of(MICS_F32, numbers, 4, 0);

    CHECK_NEAR(device_loss(&logits, &target, 1, 4, 0, true), 2 + log(1 + exp(-1)), 1e-6);
    CHECK_ARRAY(&logits, want, 1e-6);
    array_free(&logits);
}

int main(void)
{
    open_gpu();
    TAP_RUN(losses_and_gradients_agree);
    TAP_RUN(without_gradient_the_logits_stay_on_the_gpu);
    TAP_RUN(masked_rows_count_nothing_even_with_nan_on_the_gpu);
    TAP_RUN(nan_and_infinity_give_a_loss_that_is_not_a_number_on_the_gpu);
    TAP_RUN(excluded_and_large_logits_neither_overflow_nor_vanish);
    return close_gpu();
}
