/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/step_names.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX    "step-"
#define TEMPORARY ".tmp."

static bool parse(const char *name, enum mics_step_kind kind, uint64_t *step)
{
    static const char *const others[] = {"latest" TEMPORARY, "shared" TEMPORARY};
    const char *digits = name + strlen(PREFIX);
    char *end;

    *step = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return kind == MICS_STEP_TEMPORARY;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !isdigit((unsigned char)*digits))
        return false;
    *step = strtoull(digits, &end, 10);
    return kind == MICS_STEP_FINAL ? *end == '\0' : strncmp(end, TEMPORARY, strlen(TEMPORARY)) == 0;
}

static enum mics_status append(struct mics_step_names *names, uint64_t step, const char *name,
                               struct mics_err *err)
{
    struct mics_step_name *item;

    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 16;

        item = realloc(names->items, capacity * sizeof *item);
        if (!item)
            return mics_err_nomem(err);
        names->items = item;
        names->capacity = capacity;
    }
    item = &names->items[names->count++];
    item->step = step;
    snprintf(item->name, sizeof item->name, "%s", name);
    return MICS_OK;
}

static int by_step(const void *a, const void *b)
{
    const struct mics_step_name *x = a, *y = b;

    return (x->step > y->step) - (x->step < y->step);
}

enum mics_status mics_step_names_read(const char *folder, enum mics_step_kind kind,
                                      struct mics_step_names *out, struct mics_err *err)
{
    DIR *dir = opendir(folder);
    enum mics_status status = MICS_OK;
    const struct dirent *entry;
    uint64_t step;

    *out = (struct mics_step_names){0};
    if (!dir)
        return mics_err_set_errno(err, "%s", folder);
    while (status == MICS_OK && (entry = readdir(dir)) != NULL)
        if (strlen(entry->d_name) < sizeof out->items->name && parse(entry->d_name, kind, &step))
            status = append(out, step, entry->d_name, err);
    closedir(dir);
    if (status != MICS_OK)
        mics_step_names_free(out);
    else if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_step);
    return status;
}

void mics_step_names_free(struct mics_step_names *names)
{
    free(names->items);
    *names = (struct mics_step_names){0};
}
