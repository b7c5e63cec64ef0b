/* SPDX-License-Identifier: Apache-2.0 */
/* host_list.c - expands brackets from left to right; a name is built in one buffer. */
#include "topology/host_list.h"

#include "topology/topology.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void mics_host_list_fini(struct mics_host_list *list)
{
    free(list->names);
    *list = (struct mics_host_list){0};
}

static enum mics_status add(struct mics_host_list *list, const char *name, struct mics_err *err)
{
    if (list->count == MICS_MAX_NODES)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %d hosts", MICS_MAX_NODES);
    if (list->count == list->capacity) {
        const uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        void *names = realloc(list->names, capacity * sizeof *list->names);

        if (!names)
            return mics_err_nomem(err);
        list->names = names;
        list->capacity = capacity;
    }
    strcpy(list->names[list->count++], name);
    return MICS_OK;
}

/* A name under construction, and the rest of its expression, which ends at `end`. */
struct expansion {
    struct mics_host_list *list;
    const char *end;
    char name[MICS_HOST_NAME];
    struct mics_err *err;
};

static bool is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* Digits at *at, at most nine. *width: their number. */
static bool read_digits(const char **at, const char *end, uint32_t *value, int *width)
{
    *value = 0;
    for (*width = 0; *at < end && isdigit((unsigned char)**at); (*at)++, (*width)++) {
        if (*width == 9)
            return false;
        *value = 10 * *value + (uint32_t)(**at - '0');
    }
    return *width > 0;
}

static enum mics_status expand(struct expansion *expansion, size_t used, const char *at);

/* Each number of "01-16,20]", with what follows the bracket. */
static enum mics_status expand_ranges(struct expansion *expansion, size_t used, const char *at)
{
    const char *close = memchr(at, ']', (size_t)(expansion->end - at));
    enum mics_status status = MICS_OK;

    if (!close)
        return mics_err_set(expansion->err, MICS_ERR_FORMAT, "'[' without ']'");
    while (status == MICS_OK) {
        uint32_t first, last;
        int width, last_width;
        bool valid = read_digits(&at, close, &first, &width);

        last = first;
        if (valid && at < close && *at == '-') {
            at++;
            valid = read_digits(&at, close, &last, &last_width) && last >= first;
        }
        if (!valid || (at < close && *at != ','))
            return mics_err_set(expansion->err, MICS_ERR_FORMAT,
                                "expected numbers and ranges in brackets, such as [01-16,20]");
        for (uint32_t i = first; i <= last && status == MICS_OK; i++) {
            const int length =
                snprintf(expansion->name + used, MICS_HOST_NAME - used, "%0*u", width, i);

            if (used + (size_t)length >= MICS_HOST_NAME)
                return mics_err_set(expansion->err, MICS_ERR_FORMAT,
                                    "a name is longer than %d bytes", MICS_HOST_NAME - 1);
            status = expand(expansion, used + (size_t)length, close + 1);
        }
        if (at == close)
            break;
        at++;
    }
    return status;
}

/* The rest of one name, to its end or to its next bracket. The depth of the recursion is the number
 * of brackets, each of which adds a digit to a name of limited length. */
static enum mics_status expand(struct expansion *expansion, size_t used, const char *at)
{
    for (; at < expansion->end && *at != '['; at++) {
        if (used == 0 && *at == '-')
            return mics_err_set(expansion->err, MICS_ERR_FORMAT,
                                "the name of a host begins with '-'");
        if (!is_name_character(*at))
            return mics_err_set(expansion->err, MICS_ERR_FORMAT,
                                isprint((unsigned char)*at) ? "'%c' in the name of a host"
                                                            : "byte 0x%02x in the name of a host",
                                (unsigned char)*at);
        if (used + 1 >= MICS_HOST_NAME)
            return mics_err_set(expansion->err, MICS_ERR_FORMAT, "a name is longer than %d bytes",
                                MICS_HOST_NAME - 1);
        expansion->name[used++] = *at;
    }
    if (at < expansion->end)
        return expand_ranges(expansion, used, at + 1);
    expansion->name[used] = '\0';
    if (used == 0)
        return mics_err_set(expansion->err, MICS_ERR_FORMAT, "an empty name");
    return add(expansion->list, expansion->name, expansion->err);
}

enum mics_status mics_host_list_append(struct mics_host_list *list, const char *text, size_t length,
                                       struct mics_err *err)
{
    const char *const end = text + length;
    enum mics_status status = MICS_OK;

    for (const char *at = text; status == MICS_OK; at++) {
        struct expansion expansion = {.list = list, .err = err};
        const char *stop = at;

        for (bool inside = false; stop < end && (inside || *stop != ','); stop++)
            inside = *stop == '[' || (inside && *stop != ']');
        expansion.end = stop;
        status = expand(&expansion, 0, at);
        at = stop;
        if (at == end)
            break;
    }
    return status;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

int64_t mics_host_list_duplicate(const struct mics_host_list *list)
{
    const char **sorted = malloc((list->count + 1) * sizeof *sorted);
    int64_t found = -1;

    if (!sorted)
        return -2;
    for (uint32_t i = 0; i < list->count; i++)
        sorted[i] = list->names[i];
    qsort(sorted, list->count, sizeof *sorted, by_name);
    for (uint32_t i = 1; i < list->count && found < 0; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            found = (const char(*)[MICS_HOST_NAME])(const void *)sorted[i - 1] -
                    (const char(*)[MICS_HOST_NAME])list->names;
    free(sorted);
    return found;
}
