/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's optimizers against the host's. */
#include "check.h"

/* Counts, where decay ends, how far from aligned, and whether there is a copy. */
static const struct {
    uint32_t count, decay_count;
    unsigned shift;
    bool copy;
} cases[] = {{0, 0, 0, true},        {1, 1, 0, false},    {31, 30, 0, true},
             {32, 0, 0, true},       {33, 33, 1, true},   {4097, 1030, 0, true},
             {4097, 4097, 0, false}, {4096, 3, 1, false}, {5000, 2501, 0, true}};

/* What an optimizer works on, on the device and in the arrays' values on the host. */
struct slice {
    struct array param, first, second, grad, copy;
    struct mics_args_scalars scalars, *device_scalars;
};

static struct slice slice_new(size_t at_case, struct mics_args_scalars scalars)
{
    const uint32_t count = cases[at_case].count;
    const unsigned shift = cases[at_case].shift;
    struct slice s = {
        .param = array_random(MICS_F32, count, 1, 1, shift),
        .first = array_random(MICS_F32, count, 0.1f, 2, shift),
        .second = array_random(MICS_F32, count, 0.1f, 3, shift),
        .grad = array_random(MICS_F32, count, 9, 4, shift),
        .copy = array_output(MICS_BF16, count, shift),
        .scalars = scalars,
    };

    for (size_t i = 0; i < count; i++) /* a second moment is not negative */
        s.second.values[i] = fabsf(s.second.values[i]);
    memcpy(s.second.begin, s.second.values, array_bytes(&s.second));
    array_send(&s.second);
    must(cudaMalloc((void **)&s.device_scalars, sizeof(scalars)), "cudaMalloc");
    must(cudaMemcpy(s.device_scalars, &scalars, sizeof(scalars), cudaMemcpyHostToDevice), "copy");
    return s;
}

static void slice_free(struct slice *s)
{
    ARRAYS_FREE(&s->param, &s->first, &s->second, &s->grad, &s->copy);
    must(cudaFree(s->device_scalars), "cudaFree");
}

/* The copy is the parameters rounded. */
static void check_copy(struct slice *s, bool copy)
{
    float *param = array_widen(&s->param, s->param.got);
    uint16_t *want = need(s->copy.count * sizeof(*want));

    mics_numbers_from_f32(MICS_STORAGE_BF16, param, want, s->copy.count);
    CHECK(memcmp(s->copy.got, copy ? (const char *)want : s->copy.begin, array_bytes(&s->copy)) ==
          0);
    free(param);
    free(want);
}

static struct mics_args_update update_of(enum mics_optimizer optimizer, size_t c,
                                         const struct slice *s, float clip)
{
    const bool two = mics_optimizer_states(optimizer) > 1;

    return (struct mics_args_update){.optimizer = optimizer,
                                     .step = 7,
                                     .param = s->param.device,
                                     .state = {s->first.device, two ? s->second.device : NULL},
                                     .copy = cases[c].copy ? s->copy.device : NULL,
                                     .grad = s->grad.device,
                                     .scalars = s->device_scalars,
                                     .count = cases[c].count,
                                     .decay_count = cases[c].decay_count,
                                     .lr = optimizer == MICS_OPT_SGD ? 1e-2f : 1e-3f,
                                     .settings = {.beta1 = 0.9f,
                                                  .beta2 = 0.95f,
                                                  .eps = 1e-8f,
                                                  .momentum = 0.9f,
                                                  .weight_decay = 0.1f,
                                                  .clip = clip}};
}

static void run_update(enum mics_optimizer optimizer, size_t c, struct slice *s, float clip)
{
    struct mics_args_update args = update_of(optimizer, c, s, clip);

    RUN(update, &args, &s->param, &s->first, &s->second, &s->copy);
    args.param = s->param.values;
    args.state[0] = s->first.values;
    args.state[1] = s->second.values;
    args.copy = NULL;
    args.grad = s->grad.values;
    args.scalars = &s->scalars;
    mics_host_update(pool, &args);
    check_copy(s, cases[c].copy);
}

/* Steps of 1e-3 in size: 1e-6 of 1 is 1e-3 of a step. */
static void check_optimizer(enum mics_optimizer optimizer)
{
    for (size_t c = 0; c < LENGTH(cases); c++)
        for (int clip = 0; clip < 3; clip++) {
            struct slice s =
                slice_new(c, (struct mics_args_scalars){8, 0, clip == 1 ? 1e6 : 1e-3, 0});

            run_update(optimizer, c, &s, clip ? 1.0f : 0.0f);
            CHECK_ARRAY(&s.param, s.param.values, 3e-7);
            CHECK_ARRAY(&s.first, s.first.values, 3e-7);
            CHECK_ARRAY(&s.second, s.second.values, 3e-7);
            slice_free(&s);
        }
}

static void adamw_agrees_with_and_without_clipping(void)
{
    check_optimizer(MICS_OPT_ADAMW);
}

static void sgd_agrees_with_and_without_clipping(void)
{
    check_optimizer(MICS_OPT_SGD);
}

static void lion_agrees_with_and_without_clipping(void)
{
    check_optimizer(MICS_OPT_LION);
}

static void nothing_changes_without_targets_or_with_a_norm_or_loss_that_is_not_finite(void)
{
    static const struct mics_args_scalars bad[] = {{0, 0, 1, 0},        {0, 0, NAN, 0},
                                                   {4, 0, NAN, 0},      {4, 0, INFINITY, 0},
                                                   {4, INFINITY, 1, 0}, {4, NAN, 1, 0}};

    for (size_t c = 0; c < LENGTH(cases); c++)
        for (size_t i = 0; i < LENGTH(bad); i++) {
            struct slice s = slice_new(c, bad[i]);

            run_update((enum mics_optimizer)((c + i) % MICS_OPT_COUNT), c, &s, 1);
            CHECK(memcmp(s.param.got, s.param.begin, array_bytes(&s.param)) == 0);
            CHECK(memcmp(s.first.got, s.first.begin, array_bytes(&s.first)) == 0);
            slice_free(&s);
        }
}

static void without_clipping_a_norm_that_is_not_finite_is_ignored(void)
{
    for (int optimizer = 0; optimizer < MICS_OPT_COUNT; optimizer++) {
        struct slice s = slice_new(5, (struct mics_args_scalars){4, 0, NAN, 0});

        run_update((enum mics_optimizer)optimizer, 5, &s, 0);
        CHECK(memcmp(s.param.got, s.param.begin, array_bytes(&s.param)) != 0);
        CHECK_ARRAY(&s.param, s.param.values, 3e-7);
        slice_free(&s);
    }
}

/* Cut at any place, a vector is updated to the same bits. */
static void an_elements_update_does_not_depend_on_its_place(void)
{
    enum { CASE = 8, CUT = 1237 };

    for (int optimizer = 0; optimizer < MICS_OPT_COUNT; optimizer++) {
        struct slice s = slice_new(CASE, (struct mics_args_scalars){8, 0, 1e6, 0});
        struct mics_args_update args = update_of((enum mics_optimizer)optimizer, CASE, &s, 1);
        float *again = need(array_bytes(&s.param));

        RUN(update, &args, &s.param, &s.first, &s.second, &s.copy);
        ARRAYS_SEND(&s.param, &s.first, &s.second);
        args.count = CUT;
        CHECK_INT(mics_cuda_update(&at, &args), cudaSuccess);
        args.param += CUT;
        for (uint32_t i = 0; i < mics_optimizer_states(args.optimizer); i++)
            args.state[i] += CUT;
        args.grad += CUT;
        args.copy += CUT;
        args.count = cases[CASE].count - CUT;
        args.decay_count -= CUT;
        CHECK_INT(mics_cuda_update(&at, &args), cudaSuccess);
        must(cudaStreamSynchronize(at.stream), "update");
        must(cudaMemcpy(again, s.param.device, array_bytes(&s.param), cudaMemcpyDeviceToHost),
             "copy");
        CHECK(memcmp(again, s.param.got, array_bytes(&s.param)) == 0);
        free(again);
        slice_free(&s);
    }
}

int main(void)
{
    open_gpu();
    TAP_RUN(adamw_agrees_with_and_without_clipping);
    TAP_RUN(sgd_agrees_with_and_without_clipping);
    TAP_RUN(lion_agrees_with_and_without_clipping);
    TAP_RUN(nothing_changes_without_targets_or_with_a_norm_or_loss_that_is_not_finite);
    TAP_RUN(without_clipping_a_norm_that_is_not_finite_is_ignored);
    TAP_RUN(an_elements_update_does_not_depend_on_its_place);
    return close_gpu();
}
