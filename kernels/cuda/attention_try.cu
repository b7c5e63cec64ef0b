/* SPDX-License-Identifier: Apache-2.0 */
/* attention_try.cu - variants of attention tried on an operation's own operands: first compared, then timed. */
#include "cuda/attention_choice.cuh"
#include "cuda/stopwatch.cuh"

/* What a trial has. */
struct trial {
    const struct mics_attention_task *task; /* which is timed */
    struct mics_attention_task part;  /* which is compared: all of it, or the first sequences */
    struct mics_op_attention forward; /* of the part */
    struct mics_op_attention_grad grad;
    struct mics_cuda_choices *choices;
    struct mics_stopwatch watch;
    void *kept; /* the reference's results */
    int reference;
    char shape[MICS_ATTENTION_SHAPE_BYTES];
};

static const char *name_of(int variant)
{
    return mics_attention_variant_at(variant)->name;
}

/* Run the reference and keep what it gave; *proves: it can tell right from wrong. */
static cudaError_t run_reference(struct trial *trial, bool *proves)
{
    cudaError_t error = mics_attention_variant_run(&trial->part, trial->reference);

    if (error == cudaSuccess)
        error = mics_attention_keep(&trial->part, trial->kept);
    if (error == cudaSuccess)
        error = mics_attention_kept_proves(&trial->part, trial->kept, proves);
    return error;
}

/* Run a variant and compare. One that deviates is banned; one that does not run is left out here. */
static bool is_right(struct trial *trial, int variant)
{
    struct mics_attention_deviation deviation;
    cudaError_t error = mics_attention_clear(&trial->part);

    if (error == cudaSuccess)
        error = mics_attention_variant_run(&trial->part, variant);
    if (error == cudaSuccess)
        error = mics_attention_compare(&trial->part, trial->kept, &deviation);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        mics_choices_tell(trial->choices, error == cudaErrorNotSupported ? 1 : 0,
                          "%s: variant '%s' does not run: %s", trial->shape, name_of(variant),
                          cudaGetErrorString(error));
        return false;
    }
    if (!deviation.excessive)
        return true;
    trial->choices->banned[trial->part.grad != NULL] |= 1u << variant;
    mics_choices_tell(
        trial->choices, 0,
        "%s: variant '%s' is wrong and left out: %s differs from that of '%s' by %.2g "
        "of its norm, %.2g in the worst row",
        trial->shape, name_of(variant), deviation.worst_of, name_of(trial->reference),
        deviation.all, deviation.worst);
    return false;
}

/* The fastest of the variants. */
static int fastest(struct trial *trial, const int *variants, int count)
{
    float least = -1, reference = -1;
    int best = variants[0];

    for (int i = 0; i < count; i++) {
        const float took = mics_stopwatch_time(&trial->watch, trial->task->at->stream, [&]() {
            return mics_attention_variant_run(trial->task, variants[i]) == cudaSuccess;
        });

        if (i == 0)
            reference = took;
        if (!mics_is_faster(took, least))
            continue;
        least = took;
        best = variants[i];
    }
    mics_choices_tell(trial->choices, 2, "%s: variant '%s', %.3g ms ('%s' %.3g ms)", trial->shape,
                      name_of(best), (double)least, name_of(variants[0]), (double)reference);
    return best;
}

/* Compare all with the reference, and choose from what is right: the fastest, or the one that is insisted on. */
static bool try_all(struct trial *trial, const int *variants, int count, int *chosen)
{
    int right[MICS_ATTENTION_VARIANTS_MAX] = {variants[0]}, rights = 1;
    bool proves = false;
    cudaError_t error = run_reference(trial, &proves);

    if (error != cudaSuccess || !proves) {
        (void)cudaGetLastError(); /* where the reference fails, its real run says so */
        return false;
    }
    for (int i = 1; i < count; i++)
        if (is_right(trial, variants[i]))
            right[rights++] = variants[i];
    if (mics_attention_insisted(trial->task) >= 0)
        *chosen = right[rights - 1];
    else
        *chosen = rights > 1 ? fastest(trial, right, rights) : variants[0];
    return true;
}

/* The first `sequences` of the task as the part that is compared, and memory for its results. */
static bool prepare_part(struct trial *trial, uint32_t sequences)
{
    const struct mics_attention_task *task = trial->task;

    trial->part = *task;
    if (task->grad) {
        trial->grad = *task->grad;
        trial->grad.B = sequences;
        trial->part.grad = &trial->grad;
    } else {
        trial->forward = *task->forward;
        trial->forward.B = sequences;
        trial->part.forward = &trial->forward;
    }
    if (cudaMalloc(&trial->kept, mics_attention_kept_bytes(&trial->part)) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

/* All sequences where there is memory, else two, which differ in their places, else one. */
static bool prepare(struct trial *trial)
{
    const uint32_t B = trial->task->grad ? trial->task->grad->B : trial->task->forward->B;

    return prepare_part(trial, B) || (B > 2 && prepare_part(trial, 2)) ||
           (B > 1 && prepare_part(trial, 1));
}

bool mics_attention_try(const struct mics_attention_task *task, const int *variants, int count,
                        int *chosen)
{
    struct trial trial = {};
    bool sure = true;

    trial.task = task;
    trial.choices = task->at->choices;
    trial.reference = *chosen = variants[0];
    mics_attention_describe(task, trial.shape);
    if (prepare(&trial) && mics_stopwatch_open(&trial.watch)) {
        sure = try_all(&trial, variants, count, chosen);
        mics_stopwatch_close(&trial.watch);
    } else {
        (void)cudaGetLastError();
        mics_choices_tell(trial.choices, mics_attention_insisted(task) < 0 ? 1 : 0,
                          "%s: no memory to compare variants: '%s' is taken", trial.shape,
                          name_of(variants[0]));
    }
    cudaFree(trial.kept);
    return sure;
}
