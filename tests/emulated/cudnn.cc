/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn.cc - the emulated cuDNN's descriptors: attributes, their checks, and what is asked of them. */
#include "cudnn_internal.h"
#include "queue.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

struct emu_cudnn {
    cudaStream_t stream;
};

namespace
{

/* An attribute that a descriptor may have. */
struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* elements; least 0: it may be absent */
};

#define TENSOR(of, name, least)                                                                    \
    {                                                                                              \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, least,  \
            1                                                                                      \
    }
#define RULE(of, name, type, least, most)                                                          \
    {                                                                                              \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, least, most         \
    }

const struct rule rules[] = {
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 4, 4),
    RULE(TENSOR, TENSOR_STRIDES, INT64, 4, 4),
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1),
    RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 0, 1),
    RULE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 0, 1),
    RULE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, 1),
    TENSOR(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, 1),
    TENSOR(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, 1),
    TENSOR(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, 1),
    TENSOR(OPERATION_MATMUL, OPERATION_MATMUL_DESC, 1),
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, 1),
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, 1),
    RULE(POINTWISE, POINTWISE_AXIS, INT64, 0, 1),
    TENSOR(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, 1),
    TENSOR(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, 1),
    TENSOR(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, 0),
    TENSOR(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, 0),
    TENSOR(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, 1),
    RULE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, 1),
    RULE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, 1),
    TENSOR(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, 1),
    TENSOR(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, 1),
    TENSOR(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, 1),
    TENSOR(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, 1),
    TENSOR(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, 1),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, 64),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1),
    TENSOR(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, 1),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1),
    TENSOR(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, 1),
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, 32),
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, 32),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1),
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<int, std::vector<char>> values;
    std::shared_ptr<emu_cudnn_graph> graph; /* of graphs and what is made of them */
    size_t workspace_bytes;                 /* of engines and plans */
};

int alive, plans;

size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return sizeof(int);
    }
}

template <typename T> T get(const descriptor &of, cudnnBackendAttributeName_t name, T otherwise)
{
    const auto found = of.values.find(name);

    if (found != of.values.end())
        memcpy(&otherwise, found->second.data(), sizeof(otherwise));
    return otherwise;
}

template <typename T> std::vector<T> get_all(const descriptor &of, cudnnBackendAttributeName_t name)
{
    const auto found = of.values.find(name);
    std::vector<T> all;

    if (found != of.values.end()) {
        all.resize(found->second.size() / sizeof(T));
        memcpy(all.data(), found->second.data(), found->second.size());
    }
    return all;
}

descriptor *get_descriptor(const descriptor &of, cudnnBackendAttributeName_t name)
{
    return static_cast<descriptor *>(get<void *>(of, name, nullptr));
}

const struct rule *find_rule(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (const struct rule &one : rules)
        if (one.of == of && one.name == name)
            return &one;
    return nullptr;
}

bool is_complete(const descriptor &of)
{
    for (const struct rule &one : rules)
        if (one.of == of.type && one.least > 0 && !of.values.count(one.name)) {
            emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "descriptor %d has no attribute %d", one.of,
                             one.name);
            return false;
        }
    return true;
}

emu_cudnn_tensor tensor_of(const descriptor &of)
{
    emu_cudnn_tensor tensor = {};

    tensor.uid = get<int64_t>(of, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    tensor.alignment = get<int64_t>(of, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    tensor.type = get(of, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
    tensor.is_virtual = get(of, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
    tensor.by_value = get(of, CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
    memcpy(tensor.dims, of.values.at(CUDNN_ATTR_TENSOR_DIMENSIONS).data(), sizeof(tensor.dims));
    memcpy(tensor.strides, of.values.at(CUDNN_ATTR_TENSOR_STRIDES).data(), sizeof(tensor.strides));
    return tensor;
}

cudnnStatus_t finalize_tensor(const descriptor &of)
{
    const emu_cudnn_tensor tensor = tensor_of(of);

    for (int i = 0; i < 4; i++)
        if (tensor.dims[i] < 1 || tensor.strides[i] < 1)
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %d: dimension or stride %d",
                                    (int)tensor.uid, i);
    if (tensor.is_virtual && tensor.by_value)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %d is virtual and by value",
                                (int)tensor.uid);
    return CUDNN_STATUS_SUCCESS;
}

/* Keep a tensor; every descriptor of a number says the same. */
bool note_tensor(emu_cudnn_graph *graph, const descriptor *of, int64_t *uid)
{
    const emu_cudnn_tensor tensor = tensor_of(*of);
    const auto found = graph->tensors.find(tensor.uid);

    *uid = tensor.uid;
    if (found == graph->tensors.end())
        graph->tensors[tensor.uid] = tensor;
    else if (memcmp(&found->second, &tensor, sizeof(tensor)) != 0)
        return false;
    return true;
}

/* The attributes of an operation that are tensors, the written one last. */
std::vector<cudnnBackendAttributeName_t> tensors_of(cudnnBackendDescriptorType_t kind)
{
    switch (kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    default:
        return {};
    }
}

emu_cudnn_op op_of(const descriptor &of)
{
    const descriptor *pointwise = get_descriptor(of, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const descriptor *reduction = get_descriptor(of, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    emu_cudnn_op op = {of.type, 0, -1, {}, 0};

    if (pointwise) {
        op.mode = get<int>(*pointwise, CUDNN_ATTR_POINTWISE_MODE, 0);
        op.axis = get<int64_t>(*pointwise, CUDNN_ATTR_POINTWISE_AXIS, -1);
    }
    if (reduction)
        op.mode = get<int>(*reduction, CUDNN_ATTR_REDUCTION_OPERATOR, 0);
    return op;
}

/* One operation to the graph: what it reads was written before, or is in memory. */
cudnnStatus_t add_op(emu_cudnn_graph *graph, const descriptor &of)
{
    emu_cudnn_op op = op_of(of);

    for (cudnnBackendAttributeName_t name : tensors_of(of.type)) {
        const descriptor *tensor = get_descriptor(of, name);

        if (!tensor)
            continue;
        if (!note_tensor(graph, tensor, &op.out))
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "two tensors are number %d",
                                    (int)op.out);
        op.in.push_back(op.out);
    }
    op.in.pop_back();
    for (int64_t uid : op.in)
        if (graph->tensors[uid].is_virtual && !graph->writers.count(uid))
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %d is read before it is made",
                                    (int)uid);
    if (graph->writers.count(op.out) || graph->tensors[op.out].by_value)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %d is written twice", (int)op.out);
    graph->writers[op.out] = graph->ops.size();
    graph->ops.push_back(op);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_graph(descriptor *of)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    of->graph = std::make_shared<emu_cudnn_graph>();
    for (void *op : get_all<void *>(*of, CUDNN_ATTR_OPERATIONGRAPH_OPS))
        if (status == CUDNN_STATUS_SUCCESS)
            status = add_op(of->graph.get(), *static_cast<descriptor *>(op));
    return status;
}

cudnnStatus_t finalize_plan(descriptor *of)
{
    const descriptor *engine = get_descriptor(*of, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    if (engine->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a plan of what is no engine");
    of->graph = engine->graph;
    of->workspace_bytes = engine->workspace_bytes;
    plans++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const descriptor &of)
{
    if (get_all<int64_t>(of, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() !=
        get_all<void *>(of, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "not as many pointers as tensors");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_type(descriptor *of)
{
    switch (of->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finalize_tensor(*of);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return finalize_graph(of);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        of->graph = get_descriptor(*of, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
        return emu_cudnn_recognise(of->graph.get());
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finalize_plan(of);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return finalize_pack(*of);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

/* The engines of a graph: one that wants too much, and one that does not. */
cudnnStatus_t get_engines(const descriptor &advice, int64_t requested, int64_t *count, void *values)
{
    const long long each = emu_setting("MICS_EMULATED_CUDNN_WORKSPACE", 0);
    void **engines = static_cast<void **>(values);

    for (*count = 0; *count < 2 && *count < requested; ++*count) {
        descriptor *engine = static_cast<descriptor *>(engines[*count]);

        if (engine->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || engine->finalized)
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "no place for an engine");
        engine->finalized = true;
        engine->graph = advice.graph;
        engine->workspace_bytes = *count == 0 ? (size_t)1 << 40
                                  : each      ? (size_t)(each * advice.graph->heads())
                                              : 256;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_bytes(const descriptor &of, int64_t *count, void *value)
{
    const int64_t bytes = (int64_t)of.workspace_bytes;

    *count = 1;
    memcpy(value, &bytes, sizeof(bytes));
    return CUDNN_STATUS_SUCCESS;
}

/* Every tensor in memory has its place, aligned as its descriptor says. */
cudnnStatus_t read_pack(const emu_cudnn_graph &graph, const descriptor &pack,
                        emu_cudnn_memory *memory)
{
    const auto uids = get_all<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = get_all<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

    for (size_t i = 0; i < uids.size(); i++)
        (*memory)[uids[i]] = pointers[i];
    for (const auto &one : graph.tensors) {
        const emu_cudnn_tensor &tensor = one.second;
        const void *at = memory->count(one.first) ? memory->at(one.first) : nullptr;

        if (tensor.is_virtual)
            continue;
        if (!at)
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "tensor %d is nowhere",
                                    (int)tensor.uid);
        if (!tensor.by_value && (uintptr_t)at % (uintptr_t)tensor.alignment != 0)
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                                    "tensor %d is not aligned to %d bytes", (int)tensor.uid,
                                    (int)tensor.alignment);
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

int64_t emu_cudnn_graph::heads(void) const
{
    int64_t least = INT64_MAX, batch = 1;

    for (const auto &one : tensors)
        if (!one.second.by_value) {
            batch = one.second.dims[0];
            least = one.second.dims[1] < least ? one.second.dims[1] : least;
        }
    return batch * least;
}

static char last_error[256];

cudnnStatus_t emu_cudnn_refuse(cudnnStatus_t status, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    vsnprintf(last_error, sizeof(last_error), format, rest);
    va_end(rest);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM)
        fprintf(stderr, "emulated cuDNN: %s\n", last_error);
    return status;
}

static size_t get_version(void)
{
    return (size_t)emu_setting("MICS_EMULATED_CUDNN", 0);
}

static const char *get_error_string(cudnnStatus_t status)
{
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}

static void get_last_error_string(char *message, size_t most)
{
    snprintf(message, most, "Reason: %s\n", last_error);
}

static cudnnStatus_t create(cudnnHandle_t *out)
{
    *out = new emu_cudnn{nullptr};
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *out)
{
    *out = new descriptor{type, false, {}, nullptr, 0};
    alive++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t of)
{
    delete static_cast<descriptor *>(of);
    alive--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *values)
{
    descriptor *of = static_cast<descriptor *>(to);
    const struct rule *rule = of ? find_rule(of->type, name) : nullptr;
    const char *bytes = static_cast<const char *>(values);

    if (!rule || !values)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                                "attribute %d of what has none", name);
    if (of->finalized)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d comes too late", name);
    if (type != rule->type || count < 1 || count < rule->least || count > rule->most)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                                "attribute %d: type %d, %d elements", name, type, (int)count);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        const descriptor *one = static_cast<descriptor *const *>(values)[i];

        if (!one || !one->finalized)
            return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                    "attribute %d is not finalized", name);
    }
    of->values[name].assign(bytes, bytes + (size_t)count * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t one)
{
    descriptor *of = static_cast<descriptor *>(one);
    cudnnStatus_t status;

    if (!of || of->finalized || !is_complete(*of))
        return CUDNN_STATUS_BAD_PARAM;
    status = finalize_type(of);
    of->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t one, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t requested,
                                   int64_t *count, void *values)
{
    const descriptor *of = static_cast<descriptor *>(one);

    if (!of->finalized)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d is asked for",
                                name);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_engines(*of, requested, count, values);
    if ((name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE ||
         name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) &&
        type == CUDNN_TYPE_INT64 && requested == 1)
        return get_bytes(*of, count, values);
    return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d is not to be read", name);
}

/* Numbers are read when it is enqueued, tensors when it is run; the workspace may be used, all of it. */
static void enqueue(const descriptor &plan, const emu_cudnn_memory &memory, void *workspace,
                    cudaStream_t stream)
{
    const std::shared_ptr<emu_cudnn_graph> graph = plan.graph;
    const size_t bytes = plan.workspace_bytes;
    std::map<int64_t, float> numbers;

    for (const auto &one : graph->tensors)
        if (one.second.by_value)
            numbers[one.first] = *static_cast<float *>(memory.at(one.first));
    emu_enqueue_plain(stream, [=] {
        std::map<int64_t, float> held = numbers;
        emu_cudnn_memory all = memory;

        for (auto &one : held)
            all[one.first] = &one.second;
        memset(workspace, 0xff, bytes);
        emu_cudnn_compute(*graph, all);
    });
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_of,
                             cudnnBackendDescriptor_t pack_of)
{
    const descriptor *plan = static_cast<descriptor *>(plan_of);
    const descriptor *pack = static_cast<descriptor *>(pack_of);
    emu_cudnn_memory memory;
    cudnnStatus_t status;

    if (!handle || !plan->finalized || !pack->finalized)
        return emu_cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                "a plan or a pack is not finalized");
    status = read_pack(*plan->graph, *pack, &memory);
    if (status == CUDNN_STATUS_SUCCESS)
        enqueue(*plan, memory, get<void *>(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr),
                handle->stream);
    return status;
}

int emu_cudnn_alive(void)
{
    return alive;
}

int emu_cudnn_plans(void)
{
    return plans;
}

void *emu_cudnn_open(const char *path)
{
    const bool known = strcmp(path, "libcudnn.so.9") == 0 || strcmp(path, "emulated") == 0;

    return known && get_version() != 0 ? &alive : nullptr;
}

void *emu_cudnn_function(void *, const char *name)
{
    static const std::map<std::string, void *> functions = {
        {"cudnnGetVersion", reinterpret_cast<void *>(get_version)},
        {"cudnnGetErrorString", reinterpret_cast<void *>(get_error_string)},
        {"cudnnGetLastErrorString", reinterpret_cast<void *>(get_last_error_string)},
        {"cudnnCreate", reinterpret_cast<void *>(create)},
        {"cudnnDestroy", reinterpret_cast<void *>(destroy)},
        {"cudnnSetStream", reinterpret_cast<void *>(set_stream)},
        {"cudnnBackendCreateDescriptor", reinterpret_cast<void *>(create_descriptor)},
        {"cudnnBackendDestroyDescriptor", reinterpret_cast<void *>(destroy_descriptor)},
        {"cudnnBackendFinalize", reinterpret_cast<void *>(finalize)},
        {"cudnnBackendSetAttribute", reinterpret_cast<void *>(set_attribute)},
        {"cudnnBackendGetAttribute", reinterpret_cast<void *>(get_attribute)},
        {"cudnnBackendExecute", reinterpret_cast<void *>(execute)},
    };
    const auto found = functions.find(name);

    return found == functions.end() ? nullptr : found->second;
}
