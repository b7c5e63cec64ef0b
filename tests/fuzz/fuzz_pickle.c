/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pickle.c - libFuzzer target for the reader of pickles, of plain values (nanoGPT's meta.pkl)
 * and of objects (PyTorch's files).
 *
 * What is accepted of plain values can be written as JSON, so it contains no cycle. Objects may
 * contain themselves; whatever there is, the functions that read them accept it.
 *
 * sources: lib/base lib/doc/pickle.c lib/doc/pickle_values.c
 */
#include "doc/pickle.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

/* Follow all that a value leads to, a few steps deep. */
static void read_value(const struct mics_pickle *pickle, uint32_t node, int depth)
{
    struct mics_pickle_iterator items = mics_pickle_begin(pickle, node);
    const char *class = mics_pickle_class(pickle, node);
    uint32_t key, value;
    double real;
    int64_t integer;

    must(!class || strncmp(class, "torch.", 6) == 0);
    must(!mics_pickle_integer(pickle, node, &integer) || !mics_pickle_real(pickle, node, &real));
    must(!mics_pickle_text(pickle, node) || mics_pickle_count(pickle, node) == 0);
    mics_pickle_get(pickle, node, "fqn");
    for (int i = 0; depth > 0 && i < 8 && mics_pickle_next(&items, &key, &value); i++) {
        must(value != 0);
        read_value(pickle, key, 0);
        read_value(pickle, value, depth - 1);
    }
    if (depth > 0) {
        read_value(pickle, mics_pickle_args(pickle, node), depth - 1);
        read_value(pickle, mics_pickle_state(pickle, node), depth - 1);
        read_value(pickle, mics_pickle_item(pickle, node, 1), depth - 1);
    }
}

static void read_objects(const uint8_t *data, size_t size)
{
    static const char *const allowed[] = {"torch.*", NULL};
    struct mics_err err = {.text = ""};
    struct mics_pickle *pickle = NULL;

    if (mics_pickle_open(data, size, allowed, &pickle, &err) != MICS_OK) {
        must(pickle == NULL && err.text[0] != '\0' && !strchr(err.text, '\n'));
        return;
    }
    read_value(pickle, mics_pickle_root(pickle), 4);
    mics_pickle_close(pickle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_err err = {.text = ""};

    read_objects(data, size);
    json_t *value = NULL;

    if (mics_pickle_parse(data, size, &value, &err) != MICS_OK) {
        must(value == NULL && err.text[0] != '\0');
        return 0;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY);

    must(text != NULL);
    free(text);
    json_decref(value);
    return 0;
}
