/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_graph.cu - cuDNN's descriptors of tensors and operations. */
#include "cuda/cudnn_graph.cuh"

#include <string.h>

void mics_cudnn_graph_init(struct mics_cudnn_graph *graph, const struct mics_cudnn_library *library)
{
    memset(graph, 0, sizeof(*graph));
    graph->library = library;
    graph->next_virtual = MICS_CUDNN_FIRST_VIRTUAL;
}

void mics_cudnn_graph_fini(struct mics_cudnn_graph *graph)
{
    while (graph->made_count > 0)
        graph->library->destroy_descriptor(graph->made[--graph->made_count]);
}

mics_cudnn_descriptor mics_cudnn_make(struct mics_cudnn_graph *graph,
                                      cudnnBackendDescriptorType_t type)
{
    mics_cudnn_descriptor made = NULL;

    if (graph->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (graph->made_count == MICS_CUDNN_MADE_MAX) {
        graph->status = CUDNN_STATUS_INTERNAL_ERROR;
        return NULL;
    }
    graph->status = graph->library->create_descriptor(type, &made);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->made[graph->made_count++] = made;
    return made;
}

void mics_cudnn_set(struct mics_cudnn_graph *graph, mics_cudnn_descriptor to,
                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *values)
{
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = graph->library->set_attribute(to, name, type, count, values);
}

void mics_cudnn_finalize(struct mics_cudnn_graph *graph, mics_cudnn_descriptor of)
{
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = graph->library->finalize(of);
}

static void set_descriptor(struct mics_cudnn_graph *graph, mics_cudnn_descriptor to,
                           cudnnBackendAttributeName_t name, mics_cudnn_descriptor value)
{
    mics_cudnn_set(graph, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct mics_cudnn_graph *graph, mics_cudnn_descriptor to,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    mics_cudnn_set(graph, to, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* A tensor that is not finalized. */
static mics_cudnn_descriptor begin_tensor(struct mics_cudnn_graph *graph, int64_t uid,
                                          cudnnDataType_t type,
                                          const struct mics_cudnn_layout *layout)
{
    const mics_cudnn_descriptor tensor = mics_cudnn_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t alignment = 16;

    set_type(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    mics_cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout->dims);
    mics_cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout->strides);
    mics_cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    mics_cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
                   &alignment);
    return tensor;
}

mics_cudnn_descriptor mics_cudnn_tensor(struct mics_cudnn_graph *graph, int64_t uid,
                                        cudnnDataType_t type,
                                        const struct mics_cudnn_layout *layout)
{
    const mics_cudnn_descriptor tensor = begin_tensor(graph, uid, type, layout);

    mics_cudnn_finalize(graph, tensor);
    return tensor;
}

mics_cudnn_descriptor mics_cudnn_number(struct mics_cudnn_graph *graph, int64_t uid)
{
    const struct mics_cudnn_layout one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    const mics_cudnn_descriptor tensor = begin_tensor(graph, uid, CUDNN_DATA_FLOAT, &one);
    const bool yes = true;

    mics_cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    mics_cudnn_finalize(graph, tensor);
    return tensor;
}

mics_cudnn_descriptor mics_cudnn_virtual(struct mics_cudnn_graph *graph, cudnnDataType_t type,
                                         const struct mics_cudnn_layout *layout)
{
    const mics_cudnn_descriptor tensor = begin_tensor(graph, graph->next_virtual++, type, layout);
    const bool yes = true;

    mics_cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    mics_cudnn_finalize(graph, tensor);
    return tensor;
}

/* An operation is whole: the graph's next. */
static void add(struct mics_cudnn_graph *graph, mics_cudnn_descriptor op)
{
    mics_cudnn_finalize(graph, op);
    if (graph->status == CUDNN_STATUS_SUCCESS && graph->op_count == MICS_CUDNN_OPS_MAX)
        graph->status = CUDNN_STATUS_INTERNAL_ERROR;
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->ops[graph->op_count++] = op;
}

void mics_cudnn_matmul(struct mics_cudnn_graph *graph, mics_cudnn_descriptor a,
                       mics_cudnn_descriptor b, mics_cudnn_descriptor c)
{
    const mics_cudnn_descriptor how = mics_cudnn_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    mics_cudnn_descriptor op;

    set_type(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    mics_cudnn_finalize(graph, how);
    op = mics_cudnn_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(graph, op);
}

static mics_cudnn_descriptor pointwise_mode(struct mics_cudnn_graph *graph,
                                            const struct mics_cudnn_elementwise *of)
{
    const mics_cudnn_descriptor how = mics_cudnn_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

    mics_cudnn_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &of->mode);
    set_type(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, of->math);
    if (of->mode == CUDNN_POINTWISE_GEN_INDEX)
        mics_cudnn_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &of->axis);
    mics_cudnn_finalize(graph, how);
    return how;
}

void mics_cudnn_pointwise(struct mics_cudnn_graph *graph, const struct mics_cudnn_elementwise *of)
{
    const mics_cudnn_descriptor how = pointwise_mode(graph, of);
    const mics_cudnn_descriptor op =
        mics_cudnn_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, of->x);
    if (of->b)
        set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, of->b);
    if (of->t)
        set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, of->t);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, of->y);
    add(graph, op);
}

void mics_cudnn_reduce(struct mics_cudnn_graph *graph, cudnnReduceTensorOp_t mode,
                       mics_cudnn_descriptor x, mics_cudnn_descriptor y)
{
    const mics_cudnn_descriptor how = mics_cudnn_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    mics_cudnn_descriptor op;

    mics_cudnn_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                   &mode);
    set_type(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    mics_cudnn_finalize(graph, how);
    op = mics_cudnn_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(graph, op);
}

void mics_cudnn_reshape(struct mics_cudnn_graph *graph, mics_cudnn_descriptor x,
                        mics_cudnn_descriptor y)
{
    const mics_cudnn_descriptor op =
        mics_cudnn_make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(graph, op);
}

cudnnStatus_t mics_cudnn_graph_finish(struct mics_cudnn_graph *graph, cudnnHandle_t handle)
{
    graph->graph = mics_cudnn_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    mics_cudnn_set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->op_count, graph->ops);
    if (handle)
        mics_cudnn_set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                       &handle);
    mics_cudnn_finalize(graph, graph->graph);
    return graph->status;
}
