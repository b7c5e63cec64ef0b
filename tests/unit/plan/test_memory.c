/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "plan/schedule/routes.h"
#include "tap.h"

#include "plan_fake.h"

static struct fake_model fake;
static struct mics_memory memory;

static void compute(const struct mics_plan_choice *choice)
{
    struct mics_err err = {""};

    CHECK_INT(mics_memory_compute(&fake.model, choice, &memory, &err), MICS_OK);
    if (err.text[0])
        printf("# %s\n", err.text);
}

static uint64_t pages(uint64_t bytes)
{
    return mics_round_up(bytes, 4096);
}

/* Three blocks of 10000 (padded to 10240 in groups of 4) and embedding and head of 7001 (7168). */
static void every_region_is_the_sum_of_its_parts(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 4, 4, 4);
    uint64_t shards = (3 * 10240 + 7168) / 4, input = 2 * 128 * 64 * 4;

    choice.micro_steps = 3;
    fake_model_init(&fake, 3, 10000, 7001, true);
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_PARAM].bytes, pages(shards * 4));
    CHECK_INT(memory.regions[MICS_REGION_GRAD].bytes, pages(shards * 4));
    CHECK_INT(memory.regions[MICS_REGION_OPTIM].bytes, pages(shards * 4 * 2));
    CHECK_INT(memory.regions[MICS_REGION_PARAM_SLOT].bytes, pages((2 * 10240 + 7168) * 4));
    CHECK_INT(memory.regions[MICS_REGION_GRAD_SLOT].bytes, pages((2 * 10240 + 7168) * 4));
    CHECK_INT(memory.regions[MICS_REGION_SAVED].bytes, pages(5 * 16 * input));
    CHECK_INT(memory.regions[MICS_REGION_SCRATCH].bytes, pages(12 * input + input));
    CHECK_INT(memory.regions[MICS_REGION_BATCH].bytes,
              pages(2 * (2 * 3 * 2 * 128 * 4 + MICS_BUFFER_ALIGN)));
}

/* 2 bytes per parameter over p_param, 4 over p_grad, 12 over p_optim: here (2, 4, 8), with staging
 * for a piece of the largest unit's gradients for each exchange of the second hop. */
static void bf16_takes_two_four_and_twelve_bytes(void)
{
    struct mics_plan_choice choice = fake_choice(4, 4, 2, 4, 8);
    const uint64_t all = 3 * 10240 + 10240, slots = 2 * 10240 + 10240;

    choice.dtype = choice.grad_dtype = MICS_BF16;
    fake_model_init(&fake, 3, 10240, 10240, true);
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_PARAM].bytes, pages(2 * all / 2));
    CHECK_INT(memory.regions[MICS_REGION_GRAD].bytes, pages(4 * all / 4));
    CHECK_INT(memory.regions[MICS_REGION_OPTIM].bytes, pages(12 * all / 8));
    CHECK_INT(memory.regions[MICS_REGION_PARAM_SLOT].bytes, pages(2 * slots));
    CHECK_INT(memory.regions[MICS_REGION_GRAD_SLOT].bytes,
              pages(2 * (slots + 10240 / 4 + 10240 / 8)));
    choice.grad_dtype = MICS_F32;
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_GRAD_SLOT].bytes, pages(4 * slots));
}

/* A single rank accumulates its gradients in fp32; a single group needs no second hop. */
static void gradients_that_are_not_exchanged_need_no_staging(void)
{
    struct mics_plan_choice single = fake_choice(1, 1, 1, 1, 1), group = fake_choice(2, 2, 4, 4, 4);

    fake_model_init(&fake, 3, 10240, 10240, true);
    single.grad_dtype = group.grad_dtype = MICS_BF16;
    CHECK_INT(mics_choice_written_grads(&single, MICS_UNIT_DENSE), MICS_F32);
    CHECK_INT(mics_choice_written_grads(&group, MICS_UNIT_DENSE), MICS_BF16);
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++) {
        CHECK_INT(mics_staging_bytes(&fake.model, &single, (enum mics_buffer)b), 0);
        CHECK_INT(mics_staging_bytes(&fake.model, &group, (enum mics_buffer)b), 0);
    }
}

static void regions_follow_each_other_and_make_the_arena(void)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 2, 2, 4);
    uint64_t next = 0;

    fake_model_init(&fake, 3, 10000, 7001, false);
    compute(&choice);
    for (int i = 0; i < MICS_REGION_COUNT; i++) {
        CHECK_INT(memory.regions[i].offset, next);
        CHECK_INT(next % 4096, 0);
        next += memory.regions[i].bytes;
    }
    CHECK_INT(memory.arena_bytes, next);
}

/* Shards of (3 * 10240 + 7168) / 2 elements, three states: 221 KiB, so one part; then 4 MiB in two
 * parts. */
static void the_snapshot_is_a_replicas_part_of_the_shard(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_topology topology = {.device = "host"};

    fake_model_init(&fake, 3, 10000, 7001, true);
    compute(&choice);
    CHECK_INT(memory.snapshot_bytes, (3 * 10112 + 7040) / 2 * 3 * 4);
    fake_model_init(&fake, 3, 200000, 12800, true);
    compute(&choice);
    CHECK_INT(mics_choice_checkpoint_parts(&fake.model, &choice), 2);
    CHECK_INT(memory.snapshot_bytes, (3 * 200064 + 12800) / 4 * 3 * 4);
    CHECK_INT(mics_memory_total(&memory, &topology),
              memory.arena_bytes + memory.workspace_bytes + memory.snapshot_bytes);
    strcpy(topology.device, "NVIDIA H100");
    CHECK_INT(mics_memory_total(&memory, &topology), memory.arena_bytes + memory.workspace_bytes);
}

/* Only for bf16 on hosts that multiply it in hardware, by oneDNN. */
static void check_onednn_bytes(struct mics_topology topology, struct mics_plan_choice choice)
{
    const uint64_t without = 1000000 + MICS_TRAINING_PROCESS_BYTES;

    strcpy(topology.flops_dtype, "bf16");
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK_INT(memory.process_bytes, without);
    choice.dtype = MICS_BF16;
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK_INT(memory.process_bytes, without);
    topology.onednn = true;
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK_INT(memory.process_bytes, without + MICS_ONEDNN_BYTES);
    strcpy(topology.flops_dtype, "f32");
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK_INT(memory.process_bytes, without);
}

/* A reduce-scatter of two ranks receives half of 10112 fp32 values; of the second hop one rank has
 * a quarter, or 512 KiB of a large unit. */
static void a_host_has_the_process_and_staging_beside_the_arena(void)
{
    const struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_topology topology = {.device = "host", .cores = 3, .process_bytes = 1000000};
    const uint64_t fixed = 3 * MICS_BLAS_THREAD_BYTES + MICS_MPI_BYTES;

    fake_model_init(&fake, 3, 10000, 7001, true);
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK_INT(memory.workspace_bytes, fixed + 2 * (10112 / 2 * 4));
    CHECK_INT(memory.process_bytes, 1000000 + MICS_TRAINING_PROCESS_BYTES);
    CHECK_INT(mics_memory_total(&memory, &topology), memory.arena_bytes + memory.workspace_bytes +
                                                         memory.snapshot_bytes +
                                                         memory.process_bytes);
    fake_model_init(&fake, 3, 2000000, 7001, true);
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK_INT(memory.workspace_bytes, fixed + 2 * 512 * 1024);
    check_onednn_bytes(topology, choice);
    strcpy(topology.device, "NVIDIA H100");
    topology.nodes = topology.per_node = 2;
    CHECK_INT(mics_memory_compute_on(&topology, &fake.model, &choice, &memory, NULL), MICS_OK);
    CHECK(memory.pinned_bytes > 0 &&
          memory.pinned_bytes <= memory.regions[MICS_REGION_BATCH].bytes);
    CHECK_INT(mics_memory_host(&memory, &topology),
              memory.process_bytes + memory.snapshot_bytes + memory.pinned_bytes);
}

/* AdamW with masters: 12 bytes of an element leave the device, but for three pieces. */
static void states_in_host_memory_leave_three_pieces(void)
{
    struct mics_plan_choice choice = fake_choice(2, 2, 2, 2, 2);
    struct mics_topology topology = {.device = "NVIDIA H100", .nodes = 2, .per_node = 2};

    fake_model_init(&fake, 3, 200000, 12800, true);
    choice.optimizer = MICS_OPT_ADAMW;
    choice.dtype = MICS_BF16;
    compute(&choice);
    const uint64_t states = memory.regions[MICS_REGION_OPTIM].bytes, arena = memory.arena_bytes;
    CHECK_INT(states, pages((3 * 200064 + 12800) / 2 * 12));
    CHECK_INT(memory.offload_bytes, 0);
    choice.offload_piece = 4096;
    compute(&choice);
    CHECK_INT(memory.offload_bytes, (3 * 200064 + 12800) / 2 * 12);
    CHECK_INT(memory.regions[MICS_REGION_OPTIM].bytes, 3 * 4096 * 12);
    CHECK_INT(arena - memory.arena_bytes, states - 3 * 4096 * 12);
    CHECK_INT(mics_memory_host(&memory, &topology), memory.process_bytes + memory.snapshot_bytes +
                                                        memory.pinned_bytes + memory.offload_bytes);
    /* No piece is larger than the largest shard, here of 100032 elements. */
    choice.offload_piece = MICS_OFFLOAD_PIECE;
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_OPTIM].bytes, pages(3 * 100032 * 12));
    choice.offload_piece = 100;
    CHECK_INT(mics_memory_compute(&fake.model, &choice, &memory, NULL), MICS_ERR_ARG);
}

/* DeepSpeed: of an element fp32 master, two moments and gradient; the sum of micro-steps and the
 * parameter in bf16. */
static void updates_on_the_host_have_gradients_there(void)
{
    static const struct {
        uint32_t p_param, p_grad, micro_steps, bytes;
    } cases[] = {{1, 1, 1, 18}, {1, 4, 1, 18}, {1, 4, 2, 20}, {4, 4, 1, 18}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_plan_choice choice = fake_choice(1, 4, cases[i].p_param, cases[i].p_grad, 4);

        choice.optimizer = MICS_OPT_ADAMW;
        choice.dtype = MICS_BF16;
        choice.trainer = MICS_TRAINER_DEEPSPEED;
        choice.micro_steps = cases[i].micro_steps;
        CHECK(!mics_choice_updates_on_host(&choice));
        choice.offload_piece = MICS_OFFLOAD_PIECE;
        CHECK(mics_choice_updates_on_host(&choice));
        CHECK_INT(mics_host_state_bytes(&choice), cases[i].bytes);
        CHECK_INT(mics_host_update_bytes(&choice), 42);
    }
}

static void host_memory_that_a_node_lacks_is_named(void)
{
    struct mics_topology topology = {.nodes = 1, .per_node = 8, .device = "NVIDIA H100"};
    struct mics_plan plan = {
        .topology = &topology,
        .memory = {.process_bytes = 1000, .snapshot_bytes = (uint64_t)1 << 30}};
    struct mics_err err = {{0}};

    CHECK_INT(mics_memory_check_host(&plan.memory, plan.topology, &err), MICS_OK); /* unknown */
    topology.doc = json_pack("{s:{s:I}}", "machine", "memory_bytes", (json_int_t)8000000000);
    CHECK_INT(mics_memory_check_host(&plan.memory, plan.topology, &err), MICS_ERR_INFEASIBLE);
    CHECK(strstr(err.text, "of host memory on each node"));
    CHECK(strstr(err.text, "--optimizer=lion"));
    plan.memory.snapshot_bytes /= 2;
    CHECK_INT(mics_memory_check_host(&plan.memory, plan.topology, &err), MICS_OK);
    json_decref(topology.doc);
}

static void groups_of_one_rank_need_no_slots(void)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 1, 1, 1);

    fake_model_init(&fake, 3, 10000, 7001, true);
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_PARAM_SLOT].bytes, 0);
    CHECK_INT(memory.regions[MICS_REGION_GRAD_SLOT].bytes, 0);
    CHECK_INT(memory.regions[MICS_REGION_PARAM].bytes, pages((3 * 10048 + 7040) * 4));
}

static void no_more_slots_are_made_than_there_are_units(void)
{
    struct mics_plan_choice few = fake_choice(1, 4, 4, 4, 4), many = few;
    uint64_t bytes;

    fake_model_init(&fake, 3, 10000, 7001, true);
    few.prefetch = 2;
    many.prefetch = 60000;
    compute(&few);
    bytes = memory.arena_bytes;
    compute(&many);
    CHECK_INT(memory.arena_bytes, bytes);
}

static void sgd_and_lion_keep_half_of_the_state_of_adamw(void)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    uint64_t adamw;

    fake_model_init(&fake, 3, 10240, 10240, true);
    compute(&choice);
    adamw = memory.regions[MICS_REGION_OPTIM].bytes;
    choice.optimizer = MICS_OPT_SGD;
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_OPTIM].bytes * 2, adamw);
    choice.optimizer = MICS_OPT_LION;
    compute(&choice);
    CHECK_INT(memory.regions[MICS_REGION_OPTIM].bytes * 2, adamw);
}

static void recomputation_keeps_less_and_never_less_than_evaluation_needs(void)
{
    static const uint64_t inputs[MICS_RECOMPUTE_LEVELS] = {16, 10, 1};
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);
    const uint64_t input = 2 * 128 * 64 * 4;

    fake_model_init(&fake, 3, 10240, 10240, true);
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        choice.recompute = (enum mics_recompute)level;
        compute(&choice);
        CHECK_INT(memory.regions[MICS_REGION_SAVED].bytes, 5 * inputs[level] * input);
        CHECK_INT(memory.regions[MICS_REGION_SCRATCH].bytes, (12 + 1) * input); /* evaluation's */
    }
}

/* GPT-2 nano in fp32: 4 blocks, C = 128, F = 512, 4 heads; the head saves its input. */
static void activations_are_what_each_level_keeps(void)
{
    const uint64_t R = 2 * 256, C = 128, F = 512, H = 4,
                   stats = 4 * R + R * H; /* mean, rstd, lse */
    const uint64_t kept[MICS_RECOMPUTE_LEVELS] = {
        [MICS_RECOMPUTE_NONE] = R * (8 * C + 2 * F) + stats,
        [MICS_RECOMPUTE_SELECTIVE] = R * (6 * C + F) + stats,
        [MICS_RECOMPUTE_FULL] = R * C,
    };
    struct mics_plan_choice choice = fake_choice(1, 1, 1, 1, 1);
    struct mics_model *model = NULL;

    choice.seq = 256;
    CHECK_INT(mics_model_open("gpt2-nano", &model, NULL), MICS_OK);
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        choice.recompute = (enum mics_recompute)level;
        CHECK_INT(mics_memory_compute(model, &choice, &memory, NULL), MICS_OK);
        CHECK_INT(memory.regions[MICS_REGION_SAVED].bytes, 4 * (4 * kept[level] + R * C));
    }
    mics_model_free(model);
}

static void refuse(struct mics_plan_choice choice, const char *why)
{
    struct mics_err err = {""};

    memory.arena_bytes = 42;
    CHECK_INT(mics_memory_compute(&fake.model, &choice, &memory, &err), MICS_ERR_ARG);
    CHECK(strstr(err.text, why) != NULL);
    CHECK_INT(memory.arena_bytes, 42);
}

static void choices_out_of_range_are_refused_and_change_nothing(void)
{
    struct mics_plan_choice choice = fake_choice(1, 4, 4, 4, 4);

    fake_model_init(&fake, 3, 10240, 10240, true);
    choice.seq = 1025;
    refuse(choice, "sequence of 1025: the model has 1024 positions");
    choice.seq = 1024;
    choice.micro_batch = 1u << 22;
    refuse(choice, "2^31-1 tokens");
    choice.micro_batch = 0;
    refuse(choice, "micro-batch of 0");
    choice = fake_choice(1, 4, 3, 3, 3);
    refuse(choice, "does not divide the 4 ranks");
    choice = fake_choice(1, 4, 4, 4, 4);
    choice.segments = 0;
    refuse(choice, "0 segments");
    choice.segments = 1;
    choice.coalesce = 0;
    refuse(choice, "0 coalesced units: expected 1 to 8");
    choice.coalesce = 1;
    fake.units[0].resident = false;
    refuse(choice, "'u.0': used by 2 stages but not resident");
}

int main(void)
{
    TAP_RUN(every_region_is_the_sum_of_its_parts);
    TAP_RUN(bf16_takes_two_four_and_twelve_bytes);
    TAP_RUN(gradients_that_are_not_exchanged_need_no_staging);
    TAP_RUN(regions_follow_each_other_and_make_the_arena);
    TAP_RUN(the_snapshot_is_a_replicas_part_of_the_shard);
    TAP_RUN(a_host_has_the_process_and_staging_beside_the_arena);
    TAP_RUN(states_in_host_memory_leave_three_pieces);
    TAP_RUN(updates_on_the_host_have_gradients_there);
    TAP_RUN(host_memory_that_a_node_lacks_is_named);
    TAP_RUN(groups_of_one_rank_need_no_slots);
    TAP_RUN(no_more_slots_are_made_than_there_are_units);
    TAP_RUN(sgd_and_lion_keep_half_of_the_state_of_adamw);
    TAP_RUN(recomputation_keeps_less_and_never_less_than_evaluation_needs);
    TAP_RUN(activations_are_what_each_level_keeps);
    TAP_RUN(choices_out_of_range_are_refused_and_change_nothing);
    return tap_done();
}
