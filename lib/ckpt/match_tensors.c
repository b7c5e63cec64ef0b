/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/match_tensors.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors that differ in the same way. */
struct difference {
    char text[192];
    uint32_t count;
    char name[64]; /* of the first */
};

struct differences {
    struct difference *items;
    uint32_t count, tensors;
    bool failed; /* out of memory */
};

/* "h.11.ln_1.weight" -> "h.*.ln_1.weight" */
static void generalise(const char *name, char *buf, size_t size)
{
    size_t used = 0;
    bool fresh = true; /* a word begins here */

    while (*name && used + 1 < size) {
        const size_t digits = fresh ? strspn(name, "0123456789") : 0;

        fresh = *name == '.';
        if (digits > 0 && (name[digits] == '.' || !name[digits])) {
            buf[used++] = '*';
            name += digits;
        } else {
            buf[used++] = *name++;
        }
    }
    buf[used] = '\0';
}

static void add(struct differences *all, const char *name, const char *what)
{
    char general[64], text[sizeof all->items->text];
    struct difference *grown;

    generalise(name, general, sizeof general);
    snprintf(text, sizeof text, "%s %s", general, what);
    all->tensors++;
    for (uint32_t i = 0; i < all->count; i++) {
        if (strcmp(all->items[i].text, text) == 0) {
            all->items[i].count++;
            return;
        }
    }
    grown = realloc(all->items, (all->count + 1) * sizeof *grown);
    if (!grown) {
        all->failed = true;
        return;
    }
    all->items = grown;
    grown[all->count] = (struct difference){.count = 1};
    snprintf(grown[all->count].text, sizeof grown->text, "%s", text);
    snprintf(grown[all->count++].name, sizeof grown->name, "%s", name);
}

static void print_shape(char *buf, size_t size, uint32_t rank, const uint64_t *shape)
{
    if (rank == 1)
        snprintf(buf, size, "[%llu]", (unsigned long long)shape[0]);
    else
        snprintf(buf, size, "[%llu, %llu]", (unsigned long long)shape[0],
                 (unsigned long long)shape[1]);
}

static const struct mics_ckpt_tensor *find_tensor(const struct mics_ckpt_table *table,
                                                  const char *name, const char **unit)
{
    for (uint32_t u = 0; u < table->unit_count; u++) {
        for (uint32_t i = 0; i < table->units[u].tensor_count; i++) {
            if (strcmp(table->units[u].tensors[i].name, name) == 0) {
                *unit = table->units[u].name;
                return &table->units[u].tensors[i];
            }
        }
    }
    return NULL;
}

static void compare(struct differences *all, const struct mics_ckpt_table *table,
                    const struct mics_unit *unit, const struct mics_tensor *now)
{
    const char *home = NULL;
    const struct mics_ckpt_tensor *then = find_tensor(table, now->name, &home);
    char a[48], b[48], what[112];

    if (!then) {
        add(all, now->name, "is missing");
        return;
    }
    print_shape(a, sizeof a, then->rank, then->shape);
    print_shape(b, sizeof b, now->rank, now->shape);
    if (strcmp(a, b) != 0) {
        snprintf(what, sizeof what, "is %s, not %s", a, b);
        add(all, now->name, what);
    } else if (strcmp(home, unit->name) != 0 || then->offset != now->offset) {
        add(all, now->name, "is at another place");
    }
}

static bool model_has(const struct mics_model *model, const char *name)
{
    for (uint32_t u = 0; u < model->unit_count; u++)
        for (uint32_t i = 0; i < model->units[u].tensor_count; i++)
            if (strcmp(model->units[u].tensors[i].name, name) == 0)
                return true;
    return false;
}

static enum mics_status report(const struct differences *all, struct mics_err *err)
{
    char text[sizeof err->text - 128];
    size_t used = 0;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct difference *item = &all->items[i];
        const char *rest = strchr(item->text, ' ');
        char one[224];
        int length;

        if (item->count == 1)
            length = snprintf(one, sizeof one, "%s%s%s", i ? "; " : "", item->name, rest);
        else
            length = snprintf(one, sizeof one, "%s%s (%u)", i ? "; " : "", item->text, item->count);
        if (used + (size_t)length + 32 > sizeof text) {
            snprintf(text + used, sizeof text - used, "; and %u more kinds", all->count - i);
            break;
        }
        memcpy(text + used, one, (size_t)length + 1);
        used += (size_t)length;
    }
    return mics_err_set(err, MICS_ERR_FORMAT, "%u tensor%s not the model's: %s", all->tensors,
                        all->tensors == 1 ? " is" : "s are", text);
}

enum mics_status mics_ckpt_match_tensors(const struct mics_ckpt_table *table,
                                         const struct mics_model *model, struct mics_err *err)
{
    struct differences all = {0};
    enum mics_status status = MICS_OK;

    for (uint32_t u = 0; u < model->unit_count; u++)
        for (uint32_t i = 0; i < model->units[u].tensor_count; i++)
            compare(&all, table, &model->units[u], &model->units[u].tensors[i]);
    for (uint32_t u = 0; u < table->unit_count; u++)
        for (uint32_t i = 0; i < table->units[u].tensor_count; i++)
            if (!model_has(model, table->units[u].tensors[i].name))
                add(&all, table->units[u].tensors[i].name, "is not in the model");
    if (all.failed)
        status = mics_err_nomem(err);
    else if (all.count > 0)
        status = report(&all, err);
    free(all.items);
    return status;
}
