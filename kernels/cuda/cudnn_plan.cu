/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_plan.cu - cuDNN's engines for a graph, and running one. */
#include "cuda/cudnn_plan.cuh"

/* The heuristics of a finished graph. */
static mics_cudnn_descriptor ask(struct mics_cudnn_graph *graph,
                                 const struct mics_cudnn_place *place)
{
    const mics_cudnn_descriptor advice =
        mics_cudnn_make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;

    mics_cudnn_set(graph, advice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->graph);
    mics_cudnn_set(graph, advice, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (place->device)
        mics_cudnn_set(graph, advice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &place->device);
    mics_cudnn_finalize(graph, advice);
    return advice;
}

cudnnStatus_t mics_cudnn_engines(struct mics_cudnn_graph *graph,
                                 const struct mics_cudnn_place *place,
                                 mics_cudnn_descriptor engines[MICS_CUDNN_ENGINES_MAX], int *count)
{
    mics_cudnn_descriptor advice;
    int64_t found = 0;

    *count = 0;
    mics_cudnn_graph_finish(graph, place->handle);
    advice = ask(graph, place);
    for (int i = 0; i < MICS_CUDNN_ENGINES_MAX; i++)
        engines[i] = mics_cudnn_make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = graph->library->get_attribute(advice, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                      MICS_CUDNN_ENGINES_MAX, &found, engines);
    if (graph->status == CUDNN_STATUS_SUCCESS && found == 0)
        graph->status = CUDNN_STATUS_NOT_SUPPORTED;
    if (graph->status == CUDNN_STATUS_SUCCESS)
        *count = (int)(found < MICS_CUDNN_ENGINES_MAX ? found : MICS_CUDNN_ENGINES_MAX);
    return graph->status;
}

/* An engine's plan, not looked at closer. */
static mics_cudnn_descriptor make_plan(struct mics_cudnn_graph *graph,
                                       const struct mics_cudnn_place *place,
                                       mics_cudnn_descriptor engine)
{
    const mics_cudnn_descriptor made =
        mics_cudnn_make(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    if (place->handle)
        mics_cudnn_set(graph, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                       &place->handle);
    else
        mics_cudnn_set(graph, made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &place->device);
    mics_cudnn_set(graph, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    mics_cudnn_finalize(graph, made);
    return made;
}

static cudnnStatus_t read_bytes(struct mics_cudnn_graph *graph, mics_cudnn_descriptor of,
                                cudnnBackendAttributeName_t name, size_t limit, int64_t *bytes)
{
    int64_t count = 0;
    const cudnnStatus_t status =
        graph->library->get_attribute(of, name, CUDNN_TYPE_INT64, 1, &count, bytes);

    if (status == CUDNN_STATUS_SUCCESS && (*bytes < 0 || (size_t)*bytes > limit))
        return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    return status;
}

/* The plan of one engine, where its workspace suffices: the engine knows before anything is compiled. A failure is
 * the engine's only, not the graph's. */
static cudnnStatus_t try_engine(struct mics_cudnn_plan *plan, const struct mics_cudnn_place *place,
                                mics_cudnn_descriptor engine, size_t limit)
{
    struct mics_cudnn_graph *graph = &plan->graph;
    mics_cudnn_descriptor made;
    int64_t bytes = 0;
    cudnnStatus_t status =
        read_bytes(graph, engine, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, limit, &bytes);

    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    made = make_plan(graph, place, engine);
    status = graph->status;
    graph->status = CUDNN_STATUS_SUCCESS;
    if (status == CUDNN_STATUS_SUCCESS)
        status = read_bytes(graph, made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, limit, &bytes);
    if (status == CUDNN_STATUS_SUCCESS) {
        plan->plan = made;
        plan->workspace_bytes = (size_t)bytes;
    }
    return status;
}

cudnnStatus_t mics_cudnn_plan_make(struct mics_cudnn_plan *plan,
                                   const struct mics_cudnn_place *place, size_t limit)
{
    mics_cudnn_descriptor engines[MICS_CUDNN_ENGINES_MAX];
    int count;
    cudnnStatus_t status = mics_cudnn_engines(&plan->graph, place, engines, &count);
    bool is_large = false;

    for (int i = 0; i < count; i++) {
        status = try_engine(plan, place, engines[i], limit);
        if (status == CUDNN_STATUS_SUCCESS)
            return status;
        is_large |= status == CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    }
    return is_large ? CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT : status;
}

void mics_cudnn_plan_fini(struct mics_cudnn_plan *plan)
{
    if (plan->graph.library)
        mics_cudnn_graph_fini(&plan->graph);
    *plan = {};
}

static cudnnStatus_t fill_pack(const struct mics_cudnn_library *library,
                               const struct mics_cudnn_operands *operands, void *workspace,
                               mics_cudnn_descriptor pack)
{
    cudnnStatus_t status =
        library->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                               operands->count, operands->uids);

    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, operands->count, operands->pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &workspace);
    return status == CUDNN_STATUS_SUCCESS ? library->finalize(pack) : status;
}

cudnnStatus_t mics_cudnn_plan_run(const struct mics_cudnn_plan *plan, cudnnHandle_t handle,
                                  const struct mics_cudnn_operands *operands, void *workspace)
{
    const struct mics_cudnn_library *library = plan->graph.library;
    mics_cudnn_descriptor pack = NULL;
    cudnnStatus_t status = library->create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    status = fill_pack(library, operands, workspace, pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->execute(handle, plan->plan, pack);
    library->destroy_descriptor(pack);
    return status;
}
