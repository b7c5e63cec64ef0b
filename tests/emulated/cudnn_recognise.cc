/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_recognise.cc - is this graph attention? Each tensor in memory that the graph writes is spelled as an
 * expression of what is read, "m" in memory and "n" a number, and compared with what it has to be.
 */
#include "cudnn_internal.h"

#include <set>

namespace
{

std::string call(const std::string &name, const std::string &a, const std::string &b = "",
                 const std::string &c = "")
{
    return name + "(" + a + (b.empty() ? "" : "," + b) + (c.empty() ? "" : "," + c) + ")";
}

std::string name_of(const emu_cudnn_op &op)
{
    switch (op.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return "matmul";
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return "turn";
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return op.mode == CUDNN_REDUCE_TENSOR_MAX ? "max" : "sum";
    default:
        break;
    }
    switch (op.mode) {
    case CUDNN_POINTWISE_ADD:
        return "add";
    case CUDNN_POINTWISE_MUL:
        return "mul";
    case CUDNN_POINTWISE_DIV:
        return "div";
    case CUDNN_POINTWISE_SUB:
        return "sub";
    case CUDNN_POINTWISE_EXP:
        return "exp";
    case CUDNN_POINTWISE_LOG:
        return "log";
    case CUDNN_POINTWISE_IDENTITY:
        return "same";
    case CUDNN_POINTWISE_CMP_GE:
        return "ge";
    case CUDNN_POINTWISE_GEN_INDEX:
        return "index" + std::to_string(op.axis);
    case CUDNN_POINTWISE_BINARY_SELECT:
        return "select";
    default:
        return "unknown";
    }
}

std::string spell(const emu_cudnn_graph &graph, int64_t uid)
{
    const auto writer = graph.writers.find(uid);
    std::string text;

    if (writer == graph.writers.end())
        return graph.tensors.at(uid).by_value ? "n" : "m";
    for (int64_t in : graph.ops[writer->second].in)
        text += (text.empty() ? "" : ",") + spell(graph, in);
    return call(name_of(graph.ops[writer->second]), text);
}

std::string masked(const std::string &s, bool causal)
{
    return causal ? call("select", s, "n", call("ge", call("index2", s), call("index3", s))) : s;
}

std::set<std::string> forward(bool causal)
{
    const std::string s = masked(call("mul", "matmul(m,m)", "n"), causal);
    const std::string e = call("exp", call("sub", s, call("max", s)));

    return {call("add", call("max", s), call("log", call("sum", e))),
            call("matmul", call("div", e, call("sum", e)), "m")};
}

std::set<std::string> grad(bool causal, bool grouped)
{
    const std::string delta = "mul(sum(mul(m,m)),n)";
    const std::string p =
        call("exp", masked(call("sub", call("mul", "matmul(m,m)", "n"), "m"), causal));
    const std::string ds = call("mul", call("mul", call("sub", "matmul(m,m)", delta), p), "n");
    const std::string v = call("matmul", call("turn", p), "m");
    const std::string k = call("matmul", call("turn", ds), "m");
    const std::string q = call("matmul", ds, "turn(m)");

    if (grouped)
        return {delta, call("sum", v), call("sum", k), q, call("same", q)};
    return {delta, v, k, q, call("same", q)};
}

/* What cuDNN's kernels want of a tensor of bf16 in memory: [B, H, T, D] with whole 16-byte chunks. */
bool is_taken(const emu_cudnn_tensor &t)
{
    const bool turned = t.strides[2] == 1;
    const int64_t D = t.dims[turned ? 2 : 3];

    if (t.is_virtual || t.type != CUDNN_DATA_BFLOAT16)
        return true;
    return (turned || t.strides[3] == 1) && D % 8 == 0 && D <= 128 && t.strides[0] % 8 == 0 &&
           t.strides[1] % 8 == 0 && t.strides[turned ? 3 : 2] % 8 == 0;
}

/* Sizes of two dimensions that are taken element by element, or broadcast. */
bool is_broadcast(const emu_cudnn_tensor &from, const emu_cudnn_tensor &to)
{
    for (int i = 0; i < 4; i++)
        if (from.dims[i] != to.dims[i] && from.dims[i] != 1)
            return false;
    return true;
}

bool fits_matmul(const emu_cudnn_tensor &a, const emu_cudnn_tensor &b, const emu_cudnn_tensor &c)
{
    return a.dims[0] == c.dims[0] && b.dims[0] == c.dims[0] && c.dims[1] % a.dims[1] == 0 &&
           c.dims[1] % b.dims[1] == 0 && a.dims[2] == c.dims[2] && b.dims[3] == c.dims[3] &&
           a.dims[3] == b.dims[2];
}

bool fits_turn(const emu_cudnn_tensor &x, const emu_cudnn_tensor &y)
{
    return x.dims[0] == y.dims[0] && x.dims[1] == y.dims[1] && x.dims[2] == y.dims[3] &&
           x.dims[3] == y.dims[2] && x.strides[2] == y.strides[3] && x.strides[3] == y.strides[2];
}

bool fits_reduction(const emu_cudnn_tensor &x, const emu_cudnn_tensor &y)
{
    return x.dims[0] == y.dims[0] && x.dims[1] % y.dims[1] == 0 && x.dims[2] == y.dims[2] &&
           (y.dims[3] == 1 || y.dims[3] == x.dims[3]);
}

bool fits(const emu_cudnn_graph &graph, const emu_cudnn_op &op)
{
    const emu_cudnn_tensor &y = graph.tensors.at(op.out), &x = graph.tensors.at(op.in[0]);

    switch (op.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return fits_matmul(x, graph.tensors.at(op.in[1]), y);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return fits_turn(x, y);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return fits_reduction(x, y);
    default:
        break;
    }
    for (int64_t in : op.in)
        if (!is_broadcast(graph.tensors.at(in), y))
            return false;
    return true;
}

} // namespace

cudnnStatus_t emu_cudnn_recognise(struct emu_cudnn_graph *graph)
{
    std::set<std::string> made;

    for (const emu_cudnn_op &op : graph->ops)
        if (!fits(*graph, op))
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                                    "tensors of %s do not fit", name_of(op).c_str());
    for (const auto &one : graph->tensors)
        if (!is_taken(one.second))
            return emu_cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "no engine takes tensor %d",
                                    (int)one.first);
    for (const auto &one : graph->writers)
        if (!graph->tensors[one.first].is_virtual)
            made.insert(spell(*graph, one.first));
    graph->is_grad = made.size() > 2;
    if (made == forward(true) || made == forward(false) || made == grad(true, false) ||
        made == grad(false, false) || made == grad(true, true) || made == grad(false, true))
        return CUDNN_STATUS_SUCCESS;
    return emu_cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "this is no attention");
}
