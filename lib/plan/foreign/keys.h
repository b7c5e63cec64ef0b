/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - the keys of a configuration, each with a verdict. For lib/plan/foreign only.
 *
 * A trainer has a table of the keys that it knows, and a function that makes the job of their
 * values. mics_keys_walk() finds each key of the file in the table, checks its type, and gives it
 * the verdict of its row; the function then replaces verdicts that depend on values.
 *
 * After an error every function does nothing, and returns the default, so that the status is
 * checked once.
 */
#ifndef MICS_PLAN_FOREIGN_KEYS_H
#define MICS_PLAN_FOREIGN_KEYS_H

#include "plan/foreign/foreign_config.h"

/* Types of values, and what may be said of them, or-ed together. */
enum {
    KEY_BOOL = 1,
    KEY_COUNT = 2,  /* a whole number, 0 or more */
    KEY_NUMBER = 4, /* any number */
    KEY_TEXT = 8,
    KEY_LIST = 16,
    KEY_MAP = 32,
    KEY_ANY = 63,    /* with whatever is in it: it is one key */
    KEY_OFF = 64,    /* false, 0, "none", "no", {}, and a map without enabled: true are ignored */
    KEY_ONE = 128,   /* so is 1 */
    KEY_NESTED = 256 /* with KEY_OFF: only a map is off that has `enabled`, and nowhere true */
};

enum { KEYS_MAX = 4096 }; /* rows of a configuration */

struct mics_key {
    const char *path; /* "zero_optimization.stage"; "comm.*": what has no row in that section */
    unsigned types;
    enum mics_verdict verdict;
    const char *why;    /* NULL: the trainer's function says it */
    const char *option; /* "mics-plan --micro-batch": says it where the value is "auto"; or NULL */
};

struct mics_keys {
    const struct mics_key *table;
    size_t count;
    const json_t *root;
    struct mics_foreign_config *config;
    uint32_t nodes, per_node;
    struct mics_err *err;
    enum mics_status status; /* the first error */
};

static inline uint32_t mics_keys_ranks(const struct mics_keys *keys)
{
    return keys->nodes * keys->per_node;
}

void mics_keys_walk(struct mics_keys *keys);

/* MICS_ERR_FORMAT if there is another text at a path than one of `words`, which '|' separates.
 * False is "no", as in YAML. */
void mics_keys_expect_word(struct mics_keys *keys, const char *path, const char *words);

/* Keep the first error. MICS_ERR_FORMAT. */
void mics_keys_fail(struct mics_keys *keys, const char *fmt, ...) MICS_PRINTF(2, 3);

/* The value at a path; NULL: absent, null or "auto". */
const json_t *mics_keys_at(const struct mics_keys *keys, const char *path);
bool mics_keys_is_auto(const struct mics_keys *keys, const char *path);
bool mics_keys_has(const struct mics_keys *keys, const char *path); /* also null and "auto" */
/* The value, or `absent`. */
uint64_t mics_keys_count(const struct mics_keys *keys, const char *path, uint64_t absent);
double mics_keys_number(const struct mics_keys *keys, const char *path, double absent);
bool mics_keys_bool(const struct mics_keys *keys, const char *path, bool absent);
const char *mics_keys_text(const struct mics_keys *keys, const char *path, const char *absent);
/* A count that must fit 32 bits and not be 0. 0: absent. */
uint32_t mics_keys_size(struct mics_keys *keys, const char *path);

/* Replace the verdict of a key; nothing if the file does not have it, or has no value for it. */
void mics_keys_say(struct mics_keys *keys, const char *path, enum mics_verdict verdict,
                   const char *fmt, ...) MICS_PRINTF(4, 5);
/* Replace the verdicts of all keys below a path. */
void mics_keys_say_section(struct mics_keys *keys, const char *section, enum mics_verdict verdict,
                           const char *why);
/* Add a row for a key that the file does not have. */
void mics_keys_say_absent(struct mics_keys *keys, const char *path, enum mics_verdict verdict,
                          const char *fmt, ...) MICS_PRINTF(4, 5);

/* At the end: keys of which nothing has been said are void; the refused ones are in one text. */
void mics_keys_list_refusals(struct mics_keys *keys);

/* Options of mics-train. */
void mics_keys_set(struct mics_keys *keys, const char *option, json_t *value);
/* The number at a path as an option: taken. `absent` is the trainer's default, which becomes the
 * option where the file is silent. Returns the value; -1: it is "auto". */
double mics_keys_take(struct mics_keys *keys, const char *path, const char *option, double absent);

/* Clipping to a norm, 0: none. */
void mics_keys_take_clip(struct mics_keys *keys, const char *path, double norm);

/* The batch, of which each part may be 0: unknown. MICS_ERR_FORMAT unless global = micro x steps x
 * ranks. Names are those of the keys. */
void mics_keys_set_batch(struct mics_keys *keys, const char *const names[3], uint64_t global,
                         uint64_t micro, uint64_t steps);

/* MICS_ERR_FORMAT unless the count at a path, if there is one, is `present`, the topology's number
 * of `what`. Taken. */
void mics_keys_expect(struct mics_keys *keys, const char *path, uint64_t present, const char *what);

/* A key that offloads the optimizer ("cpu", "nvme", true), unless it is off; and one that offloads
 * parameters, which stay on the GPUs. */
void mics_keys_take_offload(struct mics_keys *keys, const char *path);
void mics_keys_leave_params(struct mics_keys *keys, const char *path);

/* Groups of p ranks for all: "mics:8", or its other name. */
void mics_keys_set_groups(struct mics_keys *keys, uint64_t p);

/* The trainers, each with its table and function. `root` is the file. */
void mics_deepspeed_interpret(struct mics_keys *keys);
void mics_torchtitan_interpret(struct mics_keys *keys);
void mics_accelerate_interpret(struct mics_keys *keys);

/* torchtitan's flags, with the command that starts it or one on each line, as {section: {field}};
 * torchrun's are in "torchrun". */
bool mics_flags_recognise(const char *text, size_t size);
enum mics_status mics_flags_read(const char *text, size_t size, json_t **out, struct mics_err *err);

/* One map of YAML. MICS_ERR_UNSUPPORTED: libyaml is not there. */
enum mics_status mics_yaml_read(const char *text, size_t size, json_t **out, struct mics_err *err);

#endif
