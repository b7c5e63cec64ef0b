/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_options.h"

#include "base/file.h"
#include "base/units.h"
#include "plan/foreign/foreign_config.h"
#include "plan/memory.h"
#include "train/train_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Will the plan be in fp16? Where the type is still open, "no clipping" in the configuration does
 * not decide it: fp16 can clip to a norm that nothing reaches. */
static bool plans_f16(const struct plan_request *request, const struct mics_foreign_config *config,
                      const struct mics_topology *topology)
{
    struct mics_search_options options = request->search;

    if (options.dtype == MICS_AUTO)
        options.dtype = config->dtype;
    if (options.grad_dtype == MICS_AUTO)
        options.grad_dtype = config->grad_dtype;
    return mics_search_dtype(&options, topology) == MICS_F16;
}

/* Gradients in the other 16-bit type are of the configured type of parameters. */
static bool keeps_grad_dtype(const struct mics_foreign_config *config, bool f16)
{
    return config->grad_dtype != (uint32_t)(f16 ? MICS_BF16 : MICS_F16);
}

/* What both plans have in common: the job. */
static void take_job(const struct plan_request *request, const struct mics_foreign_config *config,
                     bool f16, struct mics_search_options *options)
{
    if (options->global_batch == 0)
        options->global_batch = config->global_batch;
    if (options->seq == 0)
        options->seq = config->seq;
    if (options->dtype == MICS_AUTO)
        options->dtype = config->dtype;
    if (options->grad_dtype == MICS_AUTO && keeps_grad_dtype(config, f16))
        options->grad_dtype = config->grad_dtype;
    if (!request->has_optimizer && config->optimizer != MICS_AUTO)
        options->optimizer = (enum mics_optimizer)config->optimizer;
    if (config->clips == 0 && !f16)
        options->clip = false;
    if (!request->has_offload && config->offloads)
        options->offload = MICS_OFFLOAD_AUTO;
}

/* How the job is cut. */
static void take_cut(const struct plan_request *request, const struct mics_foreign_config *config,
                     const struct mics_topology *topology, struct mics_search_options *options)
{
    if (options->micro_batch == 0)
        options->micro_batch = config->micro_batch;
    if (!options->strategy && config->strategy[0])
        options->strategy = config->strategy;
    if (!cli_given(&request->common, "recompute"))
        options->recompute = config->recompute;
    if (!cli_given(&request->common, "hierarchical"))
        options->hierarchical = config->hierarchical ? MICS_HIERARCHY_ON : MICS_HIERARCHY_OFF;
    if (!request->has_offload && config->offloads && !topology->integrated)
        options->offload = MICS_OFFLOAD_OPTIMIZER;
}

/* The keys that became `option` of `program` have another verdict. */
static enum mics_status say_keys(const struct mics_foreign_config *config, const char *program,
                                 const char *option, enum mics_verdict verdict, const char *text,
                                 struct mics_err *err)
{
    char became[80];
    const size_t length = (size_t)snprintf(became, sizeof became, "%s --%s", program, option);
    size_t i;
    json_t *key;

    json_array_foreach(config->keys, i, key)
    {
        const char *why = json_string_value(json_object_get(key, "why"));

        if (strncmp(why, became, length) != 0 || (why[length] && why[length] != '='))
            continue;
        if (json_object_set_new(key, "verdict", json_string(mics_verdict_name(verdict))) != 0 ||
            json_object_set_new(key, "why", json_string(text)) != 0)
            return mics_err_nomem(err);
    }
    return MICS_OK;
}

/* They are ignored: the command line has --given. */
static enum mics_status ignore_keys(const struct mics_foreign_config *config, const char *program,
                                    const char *option, const char *given, struct mics_err *err)
{
    char text[80];

    snprintf(text, sizeof text, "the command line has --%s", given);
    return say_keys(config, program, option, MICS_IGNORED, text, err);
}

/* A key that only the configuration's optimizer has is ignored where that is replaced. */
static enum mics_status ignore_key(const struct mics_foreign_config *config, const char *path,
                                   struct mics_err *err)
{
    size_t i;
    json_t *key;

    json_array_foreach(config->keys, i, key)
    {
        if (strcmp(json_string_value(json_object_get(key, "key")), path) != 0)
            continue;
        if (json_object_set_new(key, "verdict", json_string(mics_verdict_name(MICS_IGNORED))) !=
                0 ||
            json_object_set_new(key, "why", json_string("the command line has --optimizer")) != 0)
            return mics_err_nomem(err);
    }
    return MICS_OK;
}

/* Is there another optimizer on the command line than in the configuration? */
static bool replaces_optimizer(const struct plan_request *request,
                               const struct mics_foreign_config *config)
{
    const uint32_t there = config->optimizer == MICS_AUTO ? MICS_OPT_ADAMW : config->optimizer;

    return request->has_optimizer && (uint32_t)request->search.optimizer != there;
}

/* Options of mics-train that belong to what the command line replaces: it would refuse them. */
static enum mics_status drop_settings(const struct plan_request *request,
                                      const struct mics_foreign_config *config,
                                      struct mics_err *err)
{
    static const char *const of_optimizer[] = {"beta1", "beta2", "eps", "momentum"};
    static const char *const of_adam[] = {"optimizer.params.adam_w_mode",
                                          "optimizer.params.bias_correction"};
    enum mics_status status = MICS_OK;

    if (cli_given(&request->common, "no-clip")) {
        json_object_del(config->settings, "clip");
        status = ignore_keys(config, "mics-train", "clip", "no-clip", err);
    }
    for (size_t i = 0; i < 4 && status == MICS_OK && replaces_optimizer(request, config); i++) {
        json_object_del(config->settings, of_optimizer[i]);
        status = ignore_keys(config, "mics-train", of_optimizer[i], "optimizer", err);
    }
    for (size_t i = 0; i < 2 && status == MICS_OK && replaces_optimizer(request, config); i++)
        status = ignore_key(config, of_adam[i], err);
    return status;
}

/* What depends on whether the plan is in fp16, whatever the configuration is in. */
static enum mics_status settle_f16(const struct plan_request *request,
                                   const struct mics_foreign_config *config, bool f16,
                                   struct mics_err *err)
{
    static const char *const options[] = {"loss-scale", "initial-loss-scale", "min-loss-scale",
                                          "loss-scale-window", "hysteresis"};
    const char *why = request->search.dtype != MICS_AUTO ? "the command line has --dtype"
                      : f16                              ? "the plan is in fp16"
                                                         : "the plan is not in fp16";
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < 5 && status == MICS_OK && !f16; i++) {
        json_object_del(config->settings, options[i]);
        status = say_keys(config, "mics-train", options[i], MICS_IGNORED, why, err);
    }
    if (status == MICS_OK && !keeps_grad_dtype(config, f16))
        status = say_keys(config, "mics-plan", "grad-dtype", MICS_IGNORED, why, err);
    if (status != MICS_OK || !f16 || config->clips != 0 || !request->search.clip)
        return status;
    if (json_object_set_new(config->settings, "clip", json_real(1e9)) != 0)
        return mics_err_nomem(err);
    return say_keys(config, "mics-plan", "no-clip", MICS_TAKEN,
                    "mics-train --clip=1e9, which clips nothing; fp16 needs the norm", err);
}

/* A key that became an option which the command line has, too, is ignored. */
static enum mics_status replace_given(const struct plan_request *request,
                                      const struct mics_foreign_config *config,
                                      struct mics_err *err)
{
    static const char *const names[] = {"global-batch", "micro-batch", "seq",       "strategy",
                                        "dtype",        "grad-dtype",  "optimizer", "recompute",
                                        "hierarchical", "no-clip",     "offload"};
    enum mics_status status = MICS_OK;

    for (size_t k = 0; k < sizeof names / sizeof *names && status == MICS_OK; k++)
        if (cli_given(&request->common, names[k]))
            status = ignore_keys(config, "mics-plan", names[k], names[k], err);
    return status == MICS_OK ? drop_settings(request, config, err) : status;
}

static enum mics_status check_settings(const json_t *settings, struct mics_err *err)
{
    struct mics_train_settings scratch = mics_train_settings_default();
    enum mics_status status = MICS_OK;
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)settings, name, value)
    {
        char text[64];

        if (json_is_string(value))
            snprintf(text, sizeof text, "%s", json_string_value(value));
        else
            snprintf(text, sizeof text, "%.12g", json_number_value(value));
        if (mics_train_settings_has(name))
            status = mics_train_settings_set(&scratch, name, text, err);
        if (status != MICS_OK) {
            mics_err_prefix(err, "--%s of mics-train", name);
            return MICS_ERR_FORMAT;
        }
    }
    return MICS_OK;
}

static enum mics_status write_settings(const char *path, const json_t *settings,
                                       struct mics_err *err)
{
    struct mics_file_writer *file = NULL;
    enum mics_status status = mics_file_create(path, &file, err);
    FILE *out;

    if (status != MICS_OK)
        return status;
    out = mics_file_stream(file);
    if (json_dumpf(settings, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0) {
        fputc('\n', out);
        return mics_file_commit(file, err);
    }
    mics_file_discard(file);
    return mics_err_set(err, MICS_ERR_IO, "%s: cannot be written", path);
}

static void report_plan(const char *name, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    char step[32], tokens[32], bytes[32];

    cli_note(
        0,
        "%s: %s per step, %s tokens/s, %s per rank; groups of %u, %u, %u, micro-batches of "
        "%u x %u, recompute %s",
        name, mics_format_time(plan->predicted.step_s, step, sizeof step),
        mics_format_count(plan->predicted.tokens_per_s, tokens, sizeof tokens),
        mics_format_bytes(mics_memory_total(&plan->memory, plan->topology), bytes, sizeof bytes),
        shape->p_param, shape->p_grad, shape->p_optim, choice->micro_batch, choice->micro_steps,
        mics_recompute_name(choice->recompute));
}

static void report_keys(const struct mics_foreign_config *config, const char *path)
{
    unsigned counts[MICS_VERDICTS] = {0};
    size_t i;
    json_t *key;

    json_array_foreach(config->keys, i, key) for (int k = 0; k < MICS_VERDICTS; k++) counts[k] +=
        strcmp(json_string_value(json_object_get(key, "verdict")),
               mics_verdict_name((enum mics_verdict)k)) == 0;
    cli_note(0, "%s: %s, %u keys taken, %u taken differently, %u ignored: mics-show has the table",
             path, config->trainer, counts[MICS_TAKEN], counts[MICS_TAKEN_DIFFERENTLY],
             counts[MICS_IGNORED]);
}

/* Both plans. If the configured one does not fit, the best one is still said, and with
 * --strategy=auto it is enough: out[0] is NULL then. */
static enum mics_status search_both(const struct plan_request *request,
                                    const struct mics_foreign_config *config,
                                    const struct mics_topology *topology,
                                    const struct mics_model *model, bool f16,
                                    struct mics_plan *out[2], struct mics_err *err)
{
    const bool is_auto = request->search.strategy && strcmp(request->search.strategy, "auto") == 0;
    struct mics_search_options options = request->search;
    enum mics_status status;

    take_job(request, config, f16, &options);
    if (is_auto)
        options.strategy = NULL;
    status = plan_search_copies(request, topology, model, &options, &out[1], err);
    if (status != MICS_OK && status != MICS_ERR_INFEASIBLE) {
        if (status == MICS_ERR_ARG && config->seq > 0 && request->search.seq == 0)
            mics_err_prefix(err, "%s", request->from);
        return status;
    }
    take_cut(request, config, topology, &options);
    status = plan_search_copies(request, topology, model, &options, &out[0], err);
    if (status == MICS_OK && !out[1])
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "no plan but the configured one fits");
    if (status == MICS_OK)
        return MICS_OK;
    mics_err_prefix(err, "as configured in %s", request->from);
    if (out[1] && status == MICS_ERR_INFEASIBLE && is_auto) {
        cli_warn("%s; the best plan is written", err->text);
        return MICS_OK;
    }
    if (out[1] && status == MICS_ERR_INFEASIBLE)
        report_plan("best", out[1]);
    return status == MICS_ERR_ARG ? MICS_ERR_FORMAT : status;
}

static enum mics_status plan_config(struct plan_request *request,
                                    const struct mics_foreign_config *config,
                                    const struct mics_topology *topology,
                                    const struct mics_model *model, struct mics_plan **out,
                                    struct mics_err *err)
{
    const bool is_auto = request->search.strategy && strcmp(request->search.strategy, "auto") == 0;
    struct mics_plan *plans[2] = {NULL, NULL}; /* as configured; best */
    const bool f16 = plans_f16(request, config, topology);
    enum mics_status status = replace_given(request, config, err);

    if (status == MICS_OK)
        status = settle_f16(request, config, f16, err);
    if (status == MICS_OK)
        status = check_settings(config->settings, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", request->from);
        return status;
    }
    status = search_both(request, config, topology, model, f16, plans, err);
    if (status == MICS_OK) {
        report_keys(config, request->from);
        if (plans[0])
            report_plan("as configured", plans[0]);
        report_plan("best", plans[1]);
        request->configured = mics_foreign_config_to_doc(config, plans[0], plans[1]);
        if (!request->configured)
            status = mics_err_nomem(err);
    }
    if (status == MICS_OK && request->settings)
        status = write_settings(request->settings, config->settings, err);
    if (status == MICS_OK)
        *out = plans[is_auto];
    mics_plan_free(plans[status == MICS_OK ? !is_auto : 0]);
    if (status != MICS_OK)
        mics_plan_free(plans[1]);
    return status;
}

enum mics_status plan_from_config(struct plan_request *request,
                                  const struct mics_topology *topology,
                                  const struct mics_model *model, struct mics_plan **out,
                                  struct mics_err *err)
{
    struct mics_foreign_config config;
    enum mics_status status =
        mics_foreign_config_read(request->from, topology->nodes, topology->per_node, &config, err);

    if (status != MICS_OK)
        return status;
    request->cluster.all_nodes = true; /* the job has a batch for all ranks */
    if (config.refused > 0)
        status = mics_err_set(err, MICS_ERR_INFEASIBLE, "%s: refused: %s", request->from,
                              config.refusals);
    else
        status = plan_config(request, &config, topology, model, out, err);
    mics_foreign_config_fini(&config);
    return status;
}
