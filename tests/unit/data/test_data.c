/* SPDX-License-Identifier: Apache-2.0 */
/* test_data.c - files, tokens, windows and their order. */
#include "tap.h"

#include "data/data.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEQ 16

static char folder[64];

static void put_file(const char *name, const char *text, size_t size)
{
    char path[128];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    out = fopen(path, "w");
    fwrite(text, 1, size, out);
    fclose(out);
}

static void make_folder(void)
{
    char sub[128];

    strcpy(folder, "/tmp/mics-data-XXXXXX");
    if (!mkdtemp(folder))
        exit(1);
    snprintf(sub, sizeof sub, "%s/sub", folder);
    mkdir(sub, 0777);
    put_file("b.txt", "bbbbbbbbbb", 10);
    put_file("a.txt", "0123456789", 10);
    put_file("empty.txt", "", 0);
    put_file("with blank.txt", "xyz", 3);
    for (int i = 0; i < 20; i++) {
        char name[32], text[100];

        snprintf(name, sizeof name, "sub/%02d.c", i);
        memset(text, 'A' + i, sizeof text);
        put_file(name, text, sizeof text);
    }
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
}

static enum mics_status open_data(const char *pattern, double val_fraction, uint32_t vocab_size,
                                  struct mics_data *data, struct mics_err *err)
{
    char text[512];
    const char *patterns[] = {text};
    char *out = text;

    for (const char *in = pattern; *in; in++) { /* % is the folder */
        if (*in == '%')
            out += sprintf(out, "%s", folder);
        else
            *out++ = *in;
    }
    *out = '\0';
    const struct mics_data_options options = {.patterns = patterns,
                                              .pattern_count = 1,
                                              .val_fraction = val_fraction,
                                              .seq = SEQ,
                                              .vocab_size = vocab_size,
                                              .seed = 7};
    return mics_data_open(&options, data, err);
}

static void refuses(const char *pattern, uint32_t vocab_size, const char *word)
{
    struct mics_data data;
    struct mics_err err = {""};

    CHECK_INT(open_data(pattern, 0, vocab_size, &data, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, word) != NULL);
    if (!strstr(err.text, word))
        printf("# text: %s\n", err.text);
    mics_data_close(&data); /* a closed one may be closed again */
}

static void files_are_sorted_and_counted_once(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    char link_path[128], path[128];

    snprintf(path, sizeof path, "%s/a.txt", folder);
    snprintf(link_path, sizeof link_path, "%s/z.txt", folder);
    CHECK_INT(symlink(path, link_path), 0);
    CHECK_INT(open_data("%/b.txt %/*.txt %/./a.txt", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(data.corpus.count, 4); /* a, b, empty, "with blank" */
    CHECK_INT(data.corpus.bytes, 23);
    CHECK(data.corpus.count == 4 && strstr(data.corpus.documents[1].path, "b.txt") != NULL);
    CHECK_INT(data.train.count, 26);
    mics_data_close(&data);
    unlink(link_path);
}

static void a_backslash_escapes_a_blank_in_a_name(void)
{
    struct mics_data data;
    struct mics_err err = {""};

    CHECK_INT(open_data("%/with\\ blank.txt %/sub/*", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(data.corpus.count, 21);
    mics_data_close(&data);
}

static void wildcards_skip_folders_but_a_named_one_is_refused(void)
{
    struct mics_data data;
    struct mics_err err = {""};

    CHECK_INT(open_data("%/*", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(data.corpus.count, 4);
    mics_data_close(&data);
    refuses("%/sub", 257, "is a folder");
    refuses("%/su[b]", 257, "matches no file");
}

static void bad_input_is_refused_with_a_reason(void)
{
    refuses("%/none*.txt", 257, "matches no file");
    refuses("%/none.txt", 257, "matches no file");
    refuses("  ", 257, "no pattern is given");
    refuses("%/empty.txt", 257, "only empty files");
    refuses("%/a.txt", 257, "too few");
    refuses("%/sub/*", 256, "token 256");
    refuses("/dev/null", 257, "not a regular file");
}

static void documents_end_with_their_own_token(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[30];

    CHECK_INT(open_data("%/*.txt", 0, 257, &data, &err), MICS_OK);
    mics_tokens_read(&data.train, 8, 6, tokens);
    CHECK_INT(tokens[0], '8');
    CHECK_INT(tokens[1], '9');
    CHECK_INT(tokens[2], MICS_TOKEN_END);
    CHECK_INT(tokens[3], 'b');
    mics_tokens_read(&data.train, 24, 30, tokens); /* wraps around */
    CHECK_INT(tokens[0], 'z');
    CHECK_INT(tokens[1], MICS_TOKEN_END);
    CHECK_INT(tokens[2], '0');
    CHECK_INT(tokens[28], '0');
    mics_data_close(&data);
}

static void the_end_of_every_document_is_for_validation(void)
{
    struct mics_data data;
    struct mics_err err = {""};

    CHECK_INT(open_data("%/sub/*", 0.2, 257, &data, &err), MICS_OK);
    CHECK_INT(data.train.count, 20 * 81);
    CHECK_INT(data.val.count, 20 * 21);
    CHECK_INT(data.train_windows, 20 * 81 / SEQ);
    CHECK_INT(data.val_windows, (20 * 21 - 1) / SEQ);
    mics_data_close(&data);
}

static void targets_are_the_tokens_shifted_by_one(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[SEQ], targets[SEQ];

    CHECK_INT(open_data("%/sub/* %/*.txt", 0.1, 257, &data, &err), MICS_OK);
    for (uint64_t i = 0; i < 3 * data.train_windows; i++) {
        mics_data_read_train(&data, i, tokens, targets);
        CHECK(memcmp(tokens + 1, targets, (SEQ - 1) * sizeof *tokens) == 0);
        for (int t = 0; t < SEQ; t++)
            CHECK(targets[t] >= 0 && targets[t] < MICS_TOKEN_VOCAB_SIZE);
    }
    for (uint64_t i = 0; i < data.val_windows; i++) {
        mics_data_read_val(&data, i, tokens, targets);
        CHECK(memcmp(tokens + 1, targets, (SEQ - 1) * sizeof *tokens) == 0);
    }
    mics_data_close(&data);
}

static void a_permutation_visits_every_window_once(void)
{
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        bool *seen = calloc(counts[c], sizeof *seen);

        for (uint64_t i = 0; i < counts[c]; i++) {
            uint64_t at = mics_data_permute(3, 5, counts[c], i);

            CHECK(at < counts[c] && !seen[at]);
            seen[at] = true;
        }
        free(seen);
    }
}

static void epochs_and_seeds_have_different_orders(void)
{
    int same_epoch = 0, same_seed = 0, in_place = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t at = mics_data_permute(3, 0, 1000, i);

        same_epoch += at == mics_data_permute(3, 1, 1000, i);
        same_seed += at == mics_data_permute(4, 0, 1000, i);
        in_place += at == i;
    }
    CHECK(same_epoch < 10 && same_seed < 10 && in_place < 10);
}

static void an_epoch_sees_every_token_but_the_remainder_once(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[SEQ], targets[SEQ];
    int counted[257] = {0}, total = 0;

    CHECK_INT(open_data("%/sub/*", 0, 257, &data, &err), MICS_OK);
    for (uint64_t i = 0; i < data.train_windows; i++) {
        mics_data_read_train(&data, data.train_windows + i, tokens, targets);
        for (int t = 0; t < SEQ; t++)
            counted[tokens[t]]++;
    }
    for (int c = 'A'; c < 'A' + 20; c++) {
        CHECK(counted[c] <= 100);
        total += counted[c];
    }
    CHECK_INT(total + counted[MICS_TOKEN_END], data.train_windows * SEQ);
    CHECK(total + counted[MICS_TOKEN_END] > (int)data.train.count - SEQ);
    mics_data_close(&data);
}

/* For all (n, B, s) of one global batch, each slot has exactly one owner. */
static void a_step_has_the_same_samples_whatever_the_number_of_ranks(void)
{
    static const uint32_t shapes[][3] = {{1, 24, 1}, {1, 1, 24}, {2, 4, 3}, {4, 2, 3},
                                         {8, 1, 3},  {8, 3, 1},  {4, 6, 1}, {3, 2, 4}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const uint32_t n = shapes[i][0], B = shapes[i][1], s = shapes[i][2];
        int owners[24] = {0};

        for (uint32_t rank = 0; rank < n; rank++)
            for (uint32_t micro_step = 0; micro_step < s; micro_step++)
                for (uint32_t row = 0; row < B; row++) {
                    uint64_t slot = mics_data_batch_slot(micro_step, n, rank, B, row);

                    CHECK(slot < 24);
                    owners[slot]++;
                }
        for (int slot = 0; slot < 24; slot++)
            CHECK_INT(owners[slot], 1);
    }
}

static void a_fingerprint_depends_on_the_text_but_not_on_names(void)
{
    struct mics_data one, two, three;
    struct mics_err err = {""};

    CHECK_INT(open_data("%/a.txt %/b.txt", 0, 257, &one, &err), MICS_OK);
    put_file("0.txt", "0123456789", 10);
    CHECK_INT(open_data("%/0.txt %/b.txt", 0, 257, &two, &err), MICS_OK);
    put_file("0.txt", "0123456798", 10);
    CHECK_INT(open_data("%/0.txt %/b.txt", 0, 257, &three, &err), MICS_OK);
    CHECK(one.corpus.fingerprint == two.corpus.fingerprint);
    CHECK(one.corpus.fingerprint != three.corpus.fingerprint);
    mics_data_close(&one);
    mics_data_close(&two);
    mics_data_close(&three);
}

int main(void)
{
    make_folder();
    TAP_RUN(files_are_sorted_and_counted_once);
    TAP_RUN(a_backslash_escapes_a_blank_in_a_name);
    TAP_RUN(wildcards_skip_folders_but_a_named_one_is_refused);
    TAP_RUN(bad_input_is_refused_with_a_reason);
    TAP_RUN(documents_end_with_their_own_token);
    TAP_RUN(the_end_of_every_document_is_for_validation);
    TAP_RUN(targets_are_the_tokens_shifted_by_one);
    TAP_RUN(a_permutation_visits_every_window_once);
    TAP_RUN(epochs_and_seeds_have_different_orders);
    TAP_RUN(an_epoch_sees_every_token_but_the_remainder_once);
    TAP_RUN(a_step_has_the_same_samples_whatever_the_number_of_ranks);
    TAP_RUN(a_fingerprint_depends_on_the_text_but_not_on_names);
    remove_folder();
    return tap_done();
}
