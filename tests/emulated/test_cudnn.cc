/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated cuDNN refuses what the real one refuses, so that a test with it means something. */
#include "cuda/cudnn_attention.cuh"
#include "cuda/cudnn_plan.cuh"

#include "tap.h"

#include <cstdlib>

static struct mics_cudnn_library library;

static const struct mics_cudnn_shape shape = {1, 4, 2, 2, 8, 2, 48, false, true};

static const struct mics_cudnn_layout square = {{1, 1, 8, 8}, {64, 64, 8, 1}};

static mics_cudnn_descriptor make(cudnnBackendDescriptorType_t type)
{
    mics_cudnn_descriptor made = NULL;

    CHECK_INT(library.create_descriptor(type, &made), CUDNN_STATUS_SUCCESS);
    return made;
}

/* Whether a graph gets an engine. */
static cudnnStatus_t judge(struct mics_cudnn_graph *graph)
{
    mics_cudnn_descriptor engines[MICS_CUDNN_ENGINES_MAX];
    struct mics_cudnn_place place = {NULL, NULL};
    cudnnStatus_t status;
    int count;

    CHECK_INT(library.create(&place.handle), CUDNN_STATUS_SUCCESS);
    status = mics_cudnn_engines(graph, &place, engines, &count);
    CHECK_INT(library.destroy(place.handle), CUDNN_STATUS_SUCCESS);
    CHECK(status == CUDNN_STATUS_SUCCESS ? count > 0 : count == 0);
    return status;
}

static cudnnStatus_t judge_shape(const struct mics_cudnn_shape &of)
{
    struct mics_cudnn_graph graph;
    cudnnStatus_t status;

    mics_cudnn_graph_init(&graph, &library);
    mics_cudnn_attention_build(&graph, &of);
    status = judge(&graph);
    mics_cudnn_graph_fini(&graph);
    return status;
}

static void attention_is_known(void)
{
    for (int i = 0; i < 8; i++) {
        struct mics_cudnn_shape of = shape;

        of.grad = i & 1;
        of.causal = i & 2;
        of.H_kv = i & 4 ? 1 : 2;
        CHECK_INT(judge_shape(of), CUDNN_STATUS_SUCCESS);
    }
}

static void heads_that_no_engine_takes_are_refused(void)
{
    struct mics_cudnn_shape of = shape;

    of.D = 12; /* rows of no whole 16 bytes */
    CHECK_INT(judge_shape(of), CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    of.D = 136;
    CHECK_INT(judge_shape(of), CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
}

static void another_graph_is_refused(void)
{
    struct mics_cudnn_graph graph;

    mics_cudnn_graph_init(&graph, &library);
    mics_cudnn_matmul(&graph, mics_cudnn_tensor(&graph, 1, CUDNN_DATA_BFLOAT16, &square),
                      mics_cudnn_tensor(&graph, 2, CUDNN_DATA_BFLOAT16, &square),
                      mics_cudnn_tensor(&graph, 3, CUDNN_DATA_BFLOAT16, &square));
    CHECK_INT(judge(&graph), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
    mics_cudnn_graph_fini(&graph);
}

static void tensors_that_do_not_fit_are_refused(void)
{
    const struct mics_cudnn_layout wide = {{1, 1, 8, 16}, {128, 128, 16, 1}};
    struct mics_cudnn_graph graph;

    mics_cudnn_graph_init(&graph, &library);
    mics_cudnn_matmul(&graph, mics_cudnn_tensor(&graph, 1, CUDNN_DATA_BFLOAT16, &wide),
                      mics_cudnn_tensor(&graph, 2, CUDNN_DATA_BFLOAT16, &square),
                      mics_cudnn_tensor(&graph, 3, CUDNN_DATA_BFLOAT16, &square));
    CHECK_INT(judge(&graph), CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    mics_cudnn_graph_fini(&graph);
}

static void what_is_read_before_it_is_made_is_refused(void)
{
    struct mics_cudnn_graph graph;
    mics_cudnn_descriptor later;

    mics_cudnn_graph_init(&graph, &library);
    later = mics_cudnn_virtual(&graph, CUDNN_DATA_FLOAT, &square);
    mics_cudnn_reshape(&graph, later, mics_cudnn_virtual(&graph, CUDNN_DATA_FLOAT, &square));
    CHECK_INT(judge(&graph), CUDNN_STATUS_BAD_PARAM);
    mics_cudnn_graph_fini(&graph);
}

static void attributes_are_of_their_type_and_in_time(void)
{
    const mics_cudnn_descriptor of = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const int64_t number = 0;

    CHECK_INT(library.finalize(of), CUDNN_STATUS_BAD_PARAM); /* it lacks its type */
    CHECK_INT(library.set_attribute(of, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_INT64, 1, &number),
              CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    CHECK_INT(
        library.set_attribute(of, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 2, &type),
        CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    CHECK_INT(library.set_attribute(of, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number),
              CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    CHECK_INT(
        library.set_attribute(of, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type),
        CUDNN_STATUS_SUCCESS);
    CHECK_INT(library.finalize(of), CUDNN_STATUS_SUCCESS);
    CHECK_INT(
        library.set_attribute(of, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type),
        CUDNN_STATUS_BAD_PARAM);
    library.destroy_descriptor(of);
}

static void descriptors_are_finalized_before_their_use(void)
{
    const mics_cudnn_descriptor tensor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const mics_cudnn_descriptor op = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);

    CHECK_INT(library.set_attribute(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor),
              CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    library.destroy_descriptor(op);
    library.destroy_descriptor(tensor);
}

/* Plans are run with every operand where it was promised to be. */
static void operands_are_there_and_aligned(void)
{
    struct mics_cudnn_plan plan = {};
    struct mics_cudnn_place place = {NULL, NULL};
    struct mics_cudnn_operands operands = {};
    char *memory = static_cast<char *>(aligned_alloc(16, 4096));

    CHECK_INT(library.create(&place.handle), CUDNN_STATUS_SUCCESS);
    mics_cudnn_graph_init(&plan.graph, &library);
    mics_cudnn_attention_build(&plan.graph, &shape);
    CHECK_INT(mics_cudnn_plan_make(&plan, &place, 16), CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
    mics_cudnn_plan_fini(&plan);
    mics_cudnn_graph_init(&plan.graph, &library);
    mics_cudnn_attention_build(&plan.graph, &shape);
    CHECK_INT(mics_cudnn_plan_make(&plan, &place, 256), CUDNN_STATUS_SUCCESS);
    operands.uids[0] = MICS_CUDNN_Q;
    operands.pointers[operands.count++] = memory + 2;
    CHECK_INT(mics_cudnn_plan_run(&plan, place.handle, &operands, memory),
              CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    operands.pointers[0] = memory;
    CHECK_INT(mics_cudnn_plan_run(&plan, place.handle, &operands, memory),
              CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    mics_cudnn_plan_fini(&plan);
    library.destroy(place.handle);
    free(memory);
}

static void every_descriptor_was_destroyed(void)
{
    CHECK_INT(emu_cudnn_alive(), 0);
}

int main(void)
{
    char why[MICS_CUDNN_WHY_BYTES];

    setenv("MICS_EMULATED_CUDNN", "91900", 1);
    if (!mics_cudnn_library_open(&library, why)) {
        printf("Bail out! %s\n", why);
        return 1;
    }
    TAP_RUN(attention_is_known);
    TAP_RUN(heads_that_no_engine_takes_are_refused);
    TAP_RUN(another_graph_is_refused);
    TAP_RUN(tensors_that_do_not_fit_are_refused);
    TAP_RUN(what_is_read_before_it_is_made_is_refused);
    TAP_RUN(attributes_are_of_their_type_and_in_time);
    TAP_RUN(descriptors_are_finalized_before_their_use);
    TAP_RUN(operands_are_there_and_aligned);
    TAP_RUN(every_descriptor_was_destroyed);
    return tap_done();
}
