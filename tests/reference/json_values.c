/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_values.c - how mics reads JSON of other programs: for check_json.py.
 *
 * usage: json_values <LIST, where each line is the name of a file. For each a line: "rejected" and
 * the reason, or "accepted" and the value with sorted keys, in which NaN is {"__float__": "NaN"}.
 */
#include "base/file.h"
#include "doc/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char name[1024];

    while (fgets(name, sizeof name, stdin)) {
        struct mics_err err = {.text = ""};
        json_t *value = NULL;

        name[strcspn(name, "\n")] = '\0';
        if (mics_foreign_read_file(name, 1 << 20, 1 << 20, &value, &err) != MICS_OK) {
            printf("rejected %s\n", err.text);
            continue;
        }
        json_t *copy = mics_foreign_to_document(value);
        char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));

        printf("accepted %s\n", text ? text : "");
        free(text);
        json_decref(copy);
        json_decref(value);
    }
    return 0;
}
