/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_choice.cuh - the variants of attention, and which one a shape gets.
 *
 * The first variant that takes a shape is its reference: the kernels of mma.sync, or those without tensor cores. When
 * a shape is first met, forward or gradient, every other variant that takes it runs on the operation's own operands
 * and is compared with the reference (attention_compare.cu). One that deviates is never used again, and a line says
 * so. The rest are timed (stopwatch.cuh), and the fastest is kept. The stream is waited for, and memory for the
 * reference's results is allocated for that while, or for those of the first sequences where there is little; without
 * any the reference is taken. Results
 * of which one is all 0, or that are not finite, prove nothing: the reference is used and the shape is looked at again next time.
 *
 * MICS_CUDA_MEASURE=0 takes the reference: the same bits in every run. MICS_CUDA_ATTENTION=NAME insists on a variant
 * (where it is for one direction only, in that): a shape that it does not take, and a deviation, are errors. Different ranks may choose differently:
 * gradients are summed over ranks and every rank gets the same sum.
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_CHOICE_CUH
#define MICS_KERNELS_CUDA_ATTENTION_CHOICE_CUH

#include "cuda/choices.cuh"

/* One operation: `forward` or `grad`, the other is NULL. */
struct mics_attention_task {
    const struct mics_cuda_at *at;
    const struct mics_op_attention *forward;
    const struct mics_op_attention_grad *grad;
};

/* A way to do it; functions of a direction that it is not for are NULL. `takes` looks at types, sizes, addresses, the GPU and installed libraries, and is quick; at->choices
 * may be NULL. `run` may be called again on the same operands; it writes every result. */
struct mics_attention_variant {
    const char *name;
    bool (*takes)(const struct mics_cuda_at *at, const struct mics_op_attention *args);
    cudaError_t (*run)(const struct mics_cuda_at *at, const struct mics_op_attention *args);
    bool (*takes_grad)(const struct mics_cuda_at *at, const struct mics_op_attention_grad *args);
    cudaError_t (*run_grad)(const struct mics_cuda_at *at,
                            const struct mics_op_attention_grad *args);
};

/* What decides. A key of shapes.cuh. */
struct mics_attention_key {
    uint32_t B, T, H, H_kv, D;
    uint8_t grad, causal, bf16;
    uint8_t aligned; /* bytes, up to 128: of every tensor */
};

#define MICS_ATTENTION_VARIANTS_MAX 8

/* How far results are from the reference: over all vectors of D numbers of q, k or v, the norm of the difference over
 * the norm of the reference; and of the worst vector alone. Of lse, relative to 1 or itself, whichever is more. */
struct mics_attention_deviation {
    double all, worst;
    const char *worst_of; /* "out", "lse", "grad_q", "grad_k", "grad_v" */
    bool excessive;       /* more than the type's limit: bf16 0.02 and 0.2, fp32 1e-4 and 1e-3 */
};

/* The variants, the references first. `variant` from 0 on; NULL: there are no more. */
const struct mics_attention_variant *mics_attention_variant_at(int variant);
/* Its number; negative: none has this name. */
int mics_attention_variant_find(const char *name);
/* The one that is insisted on, if it is for the task's direction; else negative. */
int mics_attention_insisted(const struct mics_attention_task *task);
bool mics_attention_variant_takes(const struct mics_attention_task *task, int variant);
cudaError_t mics_attention_variant_run(const struct mics_attention_task *task, int variant);

/* Choose, where the shape is new, and run. cudaErrorNotSupported: no variant takes it, or the one that is insisted on
 * does not or deviates, of which a line is told. */
cudaError_t mics_attention_run(const struct mics_attention_task *task);

/* Try variant[0], the reference, and the others on the operation's operands: *chosen is one of the `count`. False:
 * this proves nothing, another time must. */
bool mics_attention_try(const struct mics_attention_task *task, const int *variants, int count,
                        int *chosen);

/* The bytes that are kept of the reference's results. */
size_t mics_attention_kept_bytes(const struct mics_attention_task *task);
/* Results to `kept`, which has so many bytes. */
cudaError_t mics_attention_keep(const struct mics_attention_task *task, void *kept);
/* NaN to the results. */
cudaError_t mics_attention_clear(const struct mics_attention_task *task);
/* Compare the results with what was kept; waits for the stream, uses its workspace. */
cudaError_t mics_attention_compare(const struct mics_attention_task *task, const void *kept,
                                   struct mics_attention_deviation *out);
/* Whether what was kept can prove anything: all of it is finite, and none of out, grad_q, grad_k and grad_v is 0
 * everywhere. */
cudaError_t mics_attention_kept_proves(const struct mics_attention_task *task, const void *kept,
                                       bool *out);

/* "attention, B 8 T 1024 H 12 of 12 D 64, causal, bf16". */
#define MICS_ATTENTION_SHAPE_BYTES 96
void mics_attention_describe(const struct mics_attention_task *task,
                             char text[MICS_ATTENTION_SHAPE_BYTES]);

#endif
