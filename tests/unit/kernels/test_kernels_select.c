/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_select.c - the rows that have a target. */
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

enum { UNTOUCHED = 0x55555555 };

/* Rows of a case: room for `most` of them. */
struct selection {
    int32_t *targets, *selected;
    uint32_t *order, most, counted; /* rows that have a target */
    double loss;
};

static struct selection select_of(const struct select_case *c, uint32_t most)
{
    struct selection s = {.most = most, .loss = 2};

    s.targets = (int32_t *)(void *)random_floats(c->rows + 1, 1);
    s.selected = (int32_t *)(void *)random_floats(most + 1, 2);
    s.order = (uint32_t *)(void *)random_floats(most + 1, 3);
    s.order[most] = UNTOUCHED;
    s.selected[most] = UNTOUCHED;
    for (uint32_t i = 0; i < c->rows; i++) {
        s.targets[i] = select_target(c, i);
        s.counted += s.targets[i] >= 0;
    }
    mics_host_select_rows(pools[1], &(struct mics_args_select_rows){.order = s.order,
                                                                    .selected = s.selected,
                                                                    .loss_sum = &s.loss,
                                                                    .targets = s.targets,
                                                                    .rows = c->rows,
                                                                    .most = most});
    return s;
}

static void selection_free(struct selection *s)
{
    free(s->targets);
    free(s->selected);
    free(s->order);
}

static void rows_with_a_target_come_first_and_others_follow(void)
{
    for (size_t i = 0; i < LENGTH(select_cases); i++) {
        const struct select_case *c = &select_cases[i];
        struct selection s = select_of(c, c->most);

        CHECK(s.counted <= c->most);
        CHECK(s.loss == 2);
        for (uint32_t k = 0; k < c->most; k++) {
            CHECK(s.order[k] < c->rows && s.selected[k] == s.targets[s.order[k]]);
            CHECK((s.selected[k] >= 0) == (k < s.counted));
            CHECK(k == 0 || k == s.counted || s.order[k] > s.order[k - 1]);
        }
        CHECK(s.order[c->most] == UNTOUCHED && s.selected[c->most] == UNTOUCHED);
        selection_free(&s);
    }
}

static void without_room_for_all_targets_the_loss_is_not_a_number(void)
{
    for (size_t i = 0; i < LENGTH(select_cases); i++) {
        const struct select_case *c = &select_cases[i];
        struct selection whole = select_of(c, c->most);
        struct selection s = select_of(c, whole.counted > 0 ? whole.counted - 1 : 0);

        CHECK(whole.counted > 0 ? isnan(s.loss) : s.loss == 2);
        CHECK(s.order[s.most] == UNTOUCHED && s.selected[s.most] == UNTOUCHED);
        selection_free(&whole);
        selection_free(&s);
    }
}

int main(void)
{
    open_pools();
    TAP_RUN(rows_with_a_target_come_first_and_others_follow);
    TAP_RUN(without_room_for_all_targets_the_loss_is_not_a_number);
    return close_pools();
}
