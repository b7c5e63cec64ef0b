/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_compute.cc - a graph done operation by operation in double, every tensor rounded to its type; tensors of
 * sequences and heads lie one after the other here.
 */
#include "cudnn_internal.h"

#include "cuda_bf16.h"

#include <cmath>

namespace
{

typedef std::vector<double> numbers;

struct machine {
    const emu_cudnn_graph &graph;
    const emu_cudnn_memory &memory;
    std::map<int64_t, numbers> values;

    const emu_cudnn_tensor &tensor(int64_t uid) const
    {
        return graph.tensors.at(uid);
    }
};

size_t count_of(const emu_cudnn_tensor &t)
{
    return (size_t)(t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]);
}

/* Visit every element with its coordinates. */
template <typename F> void each(const emu_cudnn_tensor &t, F visit)
{
    int64_t at[4];
    size_t i = 0;

    for (at[0] = 0; at[0] < t.dims[0]; at[0]++)
        for (at[1] = 0; at[1] < t.dims[1]; at[1]++)
            for (at[2] = 0; at[2] < t.dims[2]; at[2]++)
                for (at[3] = 0; at[3] < t.dims[3]; at[3]++)
                    visit(i++, at);
}

size_t place(const emu_cudnn_tensor &t, const int64_t at[4])
{
    return (size_t)(at[0] * t.strides[0] + at[1] * t.strides[1] + at[2] * t.strides[2] +
                    at[3] * t.strides[3]);
}

/* The element of a tensor that stands for coordinates of a larger one: dimensions of 1 are broadcast, and heads
 * are shared by groups. */
size_t shared(const emu_cudnn_tensor &t, const int64_t at[4], int64_t heads)
{
    size_t i = 0;

    for (int d = 0; d < 4; d++) {
        const int64_t one = t.dims[d] == 1 ? 0 : d == 1 ? at[1] / (heads / t.dims[1]) : at[d];

        i = i * (size_t)t.dims[d] + (size_t)one;
    }
    return i;
}

double rounded(cudnnDataType_t type, double value)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return __bfloat162float(__float2bfloat16((float)value));
    return type == CUDNN_DATA_FLOAT ? (float)value : value;
}

void load(struct machine *m, int64_t uid)
{
    const emu_cudnn_tensor &t = m->tensor(uid);
    const void *from = m->memory.at(uid);
    numbers &to = m->values[uid];

    to.resize(count_of(t));
    each(t, [&](size_t i, const int64_t at[4]) {
        to[i] = t.type == CUDNN_DATA_BFLOAT16
                    ? __bfloat162float(static_cast<const __nv_bfloat16 *>(from)[place(t, at)])
                    : static_cast<const float *>(from)[place(t, at)];
    });
}

void store(const struct machine &m, int64_t uid)
{
    const emu_cudnn_tensor &t = m.tensor(uid);
    const numbers &from = m.values.at(uid);
    void *to = m.memory.at(uid);

    each(t, [&](size_t i, const int64_t at[4]) {
        if (t.type == CUDNN_DATA_BFLOAT16)
            static_cast<__nv_bfloat16 *>(to)[place(t, at)] = __float2bfloat16((float)from[i]);
        else
            static_cast<float *>(to)[place(t, at)] = (float)from[i];
    });
}

double apply(int mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_EXP:
        return std::exp(x);
    case CUDNN_POINTWISE_LOG:
        return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        return x;
    }
}

void pointwise(struct machine *m, const emu_cudnn_op &op, numbers *to)
{
    const emu_cudnn_tensor &y = m->tensor(op.out);
    double in[3] = {0, 0, 0};

    each(y, [&](size_t i, const int64_t at[4]) {
        if (op.mode == CUDNN_POINTWISE_GEN_INDEX) {
            (*to)[i] = (double)at[op.axis];
            return;
        }
        for (size_t k = 0; k < op.in.size(); k++)
            in[k] = m->values.at(op.in[k])[shared(m->tensor(op.in[k]), at, y.dims[1])];
        (*to)[i] = apply(op.mode, in[0], in[1], in[2]);
    });
}

void multiply(struct machine *m, const emu_cudnn_op &op, numbers *to)
{
    const emu_cudnn_tensor &a = m->tensor(op.in[0]), &b = m->tensor(op.in[1]);
    const emu_cudnn_tensor &c = m->tensor(op.out);
    const numbers &left = m->values.at(op.in[0]), &right = m->values.at(op.in[1]);

    each(c, [&](size_t i, const int64_t at[4]) {
        const int64_t row[4] = {at[0], at[1], at[2], 0}, column[4] = {at[0], at[1], 0, at[3]};
        const size_t from = shared(a, row, c.dims[1]), with = shared(b, column, c.dims[1]);
        double sum = 0;

        for (size_t k = 0; k < (size_t)a.dims[3]; k++)
            sum += left[from + k] * right[with + k * (size_t)b.dims[3]];
        (*to)[i] = sum;
    });
}

void reduce(struct machine *m, const emu_cudnn_op &op, numbers *to)
{
    const emu_cudnn_tensor &x = m->tensor(op.in[0]), &y = m->tensor(op.out);
    const bool largest = op.mode == CUDNN_REDUCE_TENSOR_MAX;
    const numbers &from = m->values.at(op.in[0]);

    to->assign(to->size(), largest ? -INFINITY : 0);
    each(x, [&](size_t i, const int64_t at[4]) {
        double &one = (*to)[shared(y, at, x.dims[1])];

        one = largest ? std::fmax(one, from[i]) : one + from[i];
    });
}

void turn(struct machine *m, const emu_cudnn_op &op, numbers *to)
{
    const emu_cudnn_tensor &x = m->tensor(op.in[0]);
    const numbers &from = m->values.at(op.in[0]);

    each(m->tensor(op.out), [&](size_t i, const int64_t at[4]) {
        const int64_t turned[4] = {at[0], at[1], at[3], at[2]};

        (*to)[i] = from[shared(x, turned, x.dims[1])];
    });
}

void run(struct machine *m, const emu_cudnn_op &op)
{
    const emu_cudnn_tensor &y = m->tensor(op.out);
    numbers to(count_of(y));

    if (op.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        multiply(m, op, &to);
    else if (op.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        reduce(m, op, &to);
    else if (op.kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        turn(m, op, &to);
    else
        pointwise(m, op, &to);
    for (double &one : to)
        one = rounded(y.type, one);
    m->values[op.out] = to;
    if (!y.is_virtual)
        store(*m, op.out);
}

} // namespace

void emu_cudnn_compute(const struct emu_cudnn_graph &graph, const emu_cudnn_memory &memory)
{
    struct machine m = {graph, memory, {}};

    for (const emu_cudnn_op &op : graph.ops) {
        for (int64_t in : op.in)
            if (!m.values.count(in))
                load(&m, in);
        run(&m, op);
    }
}
