/* SPDX-License-Identifier: Apache-2.0 */
/* plan_write.c - a plan as a document. The topology's history becomes the plan's, to be continued. */
#include "doc/doc.h"
#include "plan/doc.h"
#include "plan/types.h"

/* Steals `value`; false: out of memory. */
static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static bool put_count(json_t *object, const char *key, uint64_t value)
{
    return put(object, key, json_integer((json_int_t)value));
}

static json_t *write_choice(const struct mics_plan_choice *choice)
{
    json_t *object = json_object();
    bool done = put(object, "strategy", json_string(choice->strategy)) &&
                put(object, "recompute", json_string(mics_recompute_name(choice->recompute))) &&
                put(object, "optimizer", json_string(mics_optimizer_name(choice->optimizer))) &&
                put(object, "dtype", json_string(mics_dtype_name(choice->dtype))) &&
                put(object, "grad_dtype", json_string(mics_dtype_name(choice->grad_dtype)));

    for (size_t i = 0; i < mics_choice_number_count && done; i++)
        done = put_count(object, mics_choice_numbers[i].key,
                         *(const uint32_t *)((const char *)choice + mics_choice_numbers[i].offset));
    for (size_t i = 0; i < mics_choice_flag_count && done; i++)
        done =
            put(object, mics_choice_flags[i].key,
                json_boolean(*(const bool *)((const char *)choice + mics_choice_flags[i].offset)));
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_prediction(const struct mics_prediction *predicted)
{
    json_t *object = json_object();
    bool done = put_count(object, "net_bytes", predicted->net_bytes) &&
                put_count(object, "sent_bytes", predicted->sent_bytes);

    for (size_t i = 0; i < mics_prediction_real_count && done; i++)
        done = put(object, mics_prediction_reals[i].key,
                   json_real(*(const double *)((const char *)predicted +
                                               mics_prediction_reals[i].offset)));
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_memory(const struct mics_memory *memory)
{
    json_t *object = json_object(), *regions = json_array();
    bool done = put_count(object, "arena_bytes", memory->arena_bytes) &&
                put_count(object, "workspace_bytes", memory->workspace_bytes) &&
                put_count(object, "context_bytes", memory->context_bytes) &&
                put_count(object, "communicator_bytes", memory->communicator_bytes) &&
                put_count(object, "snapshot_bytes", memory->snapshot_bytes) &&
                put(object, "regions", regions);

    for (int i = 0; i < MICS_REGION_COUNT && done; i++) {
        const struct mics_region *region = &memory->regions[i];

        done = json_array_append_new(regions, json_pack("{s:s, s:I, s:I}", "name", region->name,
                                                        "bytes", (json_int_t)region->bytes,
                                                        "offset", (json_int_t)region->offset)) == 0;
    }
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_alternative(const struct mics_alternative *alternative)
{
    json_t *object = json_object();
    bool done = put(object, "choice", write_choice(&alternative->choice)) &&
                put_count(object, "total_bytes", alternative->total_bytes) &&
                put(object, "fits", json_boolean(alternative->fits)) &&
                put(object, "why", json_string(alternative->why)) &&
                put(object, "predicted",
                    alternative->fits ? write_prediction(&alternative->predicted) : json_null());

    if (done)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_alternatives(const struct mics_plan *plan)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < plan->alternative_count; i++) {
        if (json_array_append_new(array, write_alternative(&plan->alternatives[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static bool put_topology(json_t *doc, json_t *topology)
{
    json_t *history = json_incref(json_object_get(topology, "history"));
    bool done = true;

    json_object_del(topology, "history");
    if (history && !json_object_get(doc, "history"))
        done = json_object_set(doc, "history", history) == 0;
    json_decref(history);
    return put(doc, "topology", topology) && done;
}

enum mics_status mics_plan_to_doc(const struct mics_plan *plan, json_t **out, struct mics_err *err)
{
    json_t *topology = NULL, *doc;
    enum mics_status status = mics_topology_to_doc(plan->topology, &topology, err);
    bool done;

    if (status != MICS_OK)
        return status;
    doc = plan->doc ? json_deep_copy(plan->doc) : mics_doc_new(MICS_PLAN_KIND, MICS_PLAN_VERSION);
    done = put_count(doc, "v", MICS_PLAN_VERSION) &&
           put(doc, "model", mics_model_to_json(plan->model));
    done = put_topology(doc, topology) && done;
    done = done && put_count(doc, "global_batch", plan->global_batch) &&
           put_count(doc, "memory_limit_bytes", plan->memory_limit) &&
           put(doc, "choice", write_choice(&plan->choice)) &&
           put(doc, "memory", write_memory(&plan->memory)) &&
           put(doc, "predicted", write_prediction(&plan->predicted)) &&
           put(doc, "alternatives", write_alternatives(plan));
    if (!done) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}
