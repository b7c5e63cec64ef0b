/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every family against PyTorch: the model folders and the values that make_gpt2.py,
 * make_decoders.py and make_encoders.py in tests/reference wrote, the latter two by the
 * transformers library. The reference is computed in double precision; ours in fp32, so the two
 * agree to some 1e-6 of the largest value of each tensor. Run from the top of the sources.
 */
#include "model_run.h"
#include "tap.h"

#include "base/file.h"
#include "model/transformer/transformer.h"

#define TOLERANCE 1e-5

/* A family, its folder, the name of the file of values ("documents": attention stays in them), and
 * whether the names in the model's file have the family's prefix. */
struct reference {
    const char *family, *folder, *values;
    bool prefixed;
    bool parallel; /* the family with a parallel residual, which it does not have itself */
};

static const struct reference references[] = {
    {"gpt2", "tests/reference/gpt2-tiny", "reference", false, false},
    {"gpt2", "tests/reference/gpt2-tiny", "reference-parallel", false, true},
    {"llama", "tests/reference/llama-tiny", "reference", true, false},
    {"mistral", "tests/reference/mistral-tiny", "reference", true, false},
    {"qwen2", "tests/reference/qwen2-tiny", "reference", true, false},
    {"qwen3", "tests/reference/qwen3-tiny", "reference", true, false},
    {"llama", "tests/reference/llama-yarn-tiny", "reference", true, false},
    {"mistral", "tests/reference/mistral-window-tiny", "reference", true, false},
    {"qwen2", "tests/reference/qwen2-window-tiny", "reference", true, false},
    {"qwen3", "tests/reference/qwen3-window-tiny", "reference", true, false},
    {"mixtral", "tests/reference/mixtral-tiny", "reference", true, false},
    {"olmoe", "tests/reference/olmoe-tiny", "reference", true, false},
    {"qwen2_moe", "tests/reference/qwen2-moe-tiny", "reference", true, false},
    {"qwen3_moe", "tests/reference/qwen3-moe-tiny", "reference", true, false},
    {"bert", "tests/reference/bert-tiny", "reference", true, false},
    {"roberta", "tests/reference/roberta-tiny", "reference", true, false},
    {"bert", "tests/reference/bert-tiny", "documents", true, false},
    {"roberta", "tests/reference/roberta-tiny", "documents", true, false},
};

#define REFERENCE_COUNT (sizeof references / sizeof *references)

/* A safetensors file in memory. */
struct values {
    char *data;
    const char *begin; /* of the tensors */
    json_t *header;
};

static void values_open(struct values *values, const struct reference *reference, const char *name)
{
    struct mics_err err;
    uint64_t length;
    size_t size;
    char path[80];

    snprintf(path, sizeof path, "%s/%s.safetensors", reference->folder, name);
    if (mics_file_read(path, 1 << 20, &values->data, &size, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    memcpy(&length, values->data, sizeof length);
    values->header = json_loadb(values->data + 8, (size_t)length, 0, NULL);
    values->begin = values->data + 8 + length;
    CHECK(json_is_object(values->header));
}

static void values_close(struct values *values)
{
    json_decref(values->header);
    free(values->data);
}

/* Copy a tensor's `bytes` bytes, which must be all it has. */
static void values_copy(const struct values *values, const char *name, void *out, size_t bytes)
{
    json_int_t begin = 0, end = 0;

    CHECK_INT(json_unpack(json_object_get(values->header, name), "{s:[I,I]}", "data_offsets",
                          &begin, &end),
              0);
    CHECK_INT(end - begin, bytes);
    if (end - begin == (json_int_t)bytes)
        memcpy(out, values->begin + begin, bytes);
}

static void load_params(struct model_run *run, const struct reference *reference)
{
    struct values values;
    char name[80];

    values_open(&values, reference, "model");
    for (uint32_t u = 0; u < run->model->unit_count; u++)
        for (uint32_t i = 0; i < run->model->units[u].tensor_count; i++) {
            const struct mics_tensor *tensor = &run->model->units[u].tensors[i];

            snprintf(name, sizeof name, "%s", tensor->name);
            if (reference->prefixed)
                mics_family_file_name(run->model->family, tensor->name, name, sizeof name);
            values_copy(&values, name, run_params(run, u) + tensor->offset,
                        tensor->count * sizeof(float));
        }
    values_close(&values);
}

static struct mics_model *open_model(const struct reference *reference)
{
    static struct mics_family parallel;
    struct mics_model *model = NULL, *other = NULL;
    struct mics_err err;

    if (mics_model_open(reference->folder, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    CHECK_STR(model->family->name, reference->family);
    if (model->family->bidirectional) /* more targets than are masked in training */
        CHECK_INT(mics_model_set_mask_rate(&model, 0, &err), MICS_OK);
    if (!reference->parallel)
        return model;
    parallel = *model->family;
    parallel.parallel_residual = true;
    CHECK_INT(mics_model_new_custom(&mics_transformer_ops, &parallel, &model->config, &other, &err),
              MICS_OK);
    mics_model_free(model);
    return other;
}

static void open_reference(struct model_run *run, const struct reference *reference,
                           struct values *values, enum mics_recompute recompute)
{
    run_open(run, open_model(reference),
             (struct mics_batch){.B = 2,
                                 .T = 10,
                                 .recompute = recompute,
                                 .train = true,
                                 .documents = strcmp(reference->values, "documents") == 0},
             1);
    load_params(run, reference);
    values_open(values, reference, reference->values);
    values_copy(values, "tokens", run->tokens.data, run->tokens.bytes);
    values_copy(values, "targets", run->targets.data, run->targets.bytes);
}

/* Largest difference, relative to the largest of `want`. */
static double differ(const float *got, const float *want, uint64_t count)
{
    double worst = 0, scale = 0;

    for (uint64_t i = 0; i < count; i++) {
        const double difference = fabs((double)got[i] - want[i]);

        worst = difference > worst || isnan(difference) ? difference : worst;
        scale = fmax(scale, fabs((double)want[i]));
    }
    return scale > 0 ? worst / scale : worst; /* an expert without rows has zeros */
}

static void check_loss(const struct reference *reference)
{
    struct model_run run;
    struct values values;
    double want = 0;

    open_reference(&run, reference, &values, MICS_RECOMPUTE_NONE);
    values_copy(&values, "loss", &want, sizeof want);
    CHECK_NEAR(run_step(&run), want, 1e-6 * want);
    values_close(&values);
    run_close(&run);
}

static void check_logits(const struct reference *reference)
{
    struct model_run run;
    struct values values;
    float want[20 * 29], got[29];

    open_reference(&run, reference, &values, MICS_RECOMPUTE_NONE);
    run.batch.train = false;
    values_copy(&values, "logits", want, sizeof want);
    run_step(&run);
    for (uint32_t row = 0; row < 20; row++) {
        const struct mics_pass pass = run_pass(&run, run.model->stage_count - 1);
        const uint32_t unit = run.model->stages[run.model->stage_count - 1].unit;

        mics_head_logits(&pass, unit, row, 1, got);
        run_sync(&run);
        CHECK(differ(got, want + row * 29, 29) < TOLERANCE);
    }
    values_close(&values);
    run_close(&run);
}

/* Without rotary positions the bias of keys adds the same to all scores of a query, so that its
 * gradient is 0, and only rounding is left of it. */
static bool has_no_gradient(const struct mics_tensor *tensor)
{
    return strstr(tensor->name, "self.key.bias") != NULL;
}

static void check_gradient(const struct values *values, const struct mics_tensor *tensor,
                           const float *got)
{
    char name[80];
    float *want = calloc(tensor->count, sizeof *want);

    snprintf(name, sizeof name, "grad.%s", tensor->name);
    values_copy(values, name, want, tensor->count * sizeof *want);
    double worst = differ(got, want, tensor->count);
    if (has_no_gradient(tensor)) {
        worst = 0;
        for (uint64_t i = 0; i < tensor->count; i++)
            worst = fmax(worst, fabs((double)got[i]));
    }
    if (!(worst < TOLERANCE))
        printf("# %s differs by %.2g of its largest\n", name, worst);
    CHECK(worst < TOLERANCE);
    free(want);
}

static void check_gradients(const struct reference *reference, enum mics_recompute recompute)
{
    struct model_run run;
    struct values values;
    uint64_t tensors = 0;

    open_reference(&run, reference, &values, recompute);
    run_step(&run);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        for (uint32_t i = 0; i < run.model->units[u].tensor_count; i++, tensors++) {
            const struct mics_tensor *tensor = &run.model->units[u].tensors[i];

            check_gradient(&values, tensor, run_grads(&run, u) + tensor->offset);
        }
    /* The reference has no parameter that the model lacks: the rest is __metadata__, loss, logits,
     * tokens, targets. */
    CHECK_INT(json_object_size(values.header), tensors + 5);
    values_close(&values);
    run_close(&run);
}

static void the_loss_is_that_of_pytorch(void)
{
    for (size_t i = 0; i < REFERENCE_COUNT; i++)
        check_loss(&references[i]);
}

static void the_logits_are_those_of_pytorch(void)
{
    for (size_t i = 0; i < REFERENCE_COUNT; i++)
        check_logits(&references[i]);
}

static void all_gradients_are_those_of_pytorch(void)
{
    for (size_t i = 0; i < REFERENCE_COUNT; i++)
        check_gradients(&references[i], MICS_RECOMPUTE_NONE);
}

static void all_gradients_are_those_of_pytorch_when_recomputing(void)
{
    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++)
        for (size_t i = 0; i < REFERENCE_COUNT; i++)
            check_gradients(&references[i], (enum mics_recompute)level);
}

int main(void)
{
    TAP_RUN(the_loss_is_that_of_pytorch);
    TAP_RUN(the_logits_are_those_of_pytorch);
    TAP_RUN(all_gradients_are_those_of_pytorch);
    TAP_RUN(all_gradients_are_those_of_pytorch_when_recomputing);
    return tap_done();
}
