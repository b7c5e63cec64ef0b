/* SPDX-License-Identifier: Apache-2.0 */
/* test_data.c - files, tokens, windows and their order. */
#include "tap.h"

#include "data/data.h"
#include "ops.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

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

static enum mics_status open_packed(const char *pattern, double val_fraction, uint32_t vocab_size,
                                    enum mics_pack pack, bool mask, struct mics_data *data,
                                    struct mics_err *err)
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
                                              .seed = 7,
                                              .pack = pack,
                                              .mask_prompt = mask};
    return mics_data_open(&options, data, err);
}

static enum mics_status open_data(const char *pattern, double val_fraction, uint32_t vocab_size,
                                  struct mics_data *data, struct mics_err *err)
{
    return open_packed(pattern, val_fraction, vocab_size, MICS_PACK_CONCAT, false, data, err);
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
    CHECK_INT(data.sources[0].corpus.count, 4); /* a, b, empty, "with blank" */
    CHECK_INT(data.bytes, 23);
    CHECK(data.sources[0].corpus.count == 4 &&
          strstr(data.sources[0].corpus.documents[1].path, "b.txt") != NULL);
    CHECK_INT(data.train_tokens, 26);
    mics_data_close(&data);
    unlink(link_path);
}

static void a_backslash_escapes_a_blank_in_a_name(void)
{
    struct mics_data data;
    struct mics_err err = {""};

    CHECK_INT(open_data("%/with\\ blank.txt %/sub/*", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(data.sources[0].corpus.count, 21);
    mics_data_close(&data);
}

static void wildcards_skip_folders_but_a_named_one_is_refused(void)
{
    struct mics_data data;
    struct mics_err err = {""};

    CHECK_INT(open_data("%/*", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(data.sources[0].corpus.count, 4);
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
    uint32_t tokens[30];

    CHECK_INT(open_data("%/*.txt", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(mics_tokens_read(&data.sources[0].train.tokens, 8, 6, 257, tokens, &err), MICS_OK);
    CHECK_INT(tokens[0], '8');
    CHECK_INT(tokens[1], '9');
    CHECK_INT(tokens[2], MICS_TOKEN_END);
    CHECK_INT(tokens[3], 'b');
    mics_tokens_read(&data.sources[0].train.tokens, 24, 30, 257, tokens, &err); /* wraps around */
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
    CHECK_INT(data.train_tokens, 20 * 81);
    CHECK_INT(data.sources[0].val.tokens.count, 20 * 21);
    CHECK_INT(data.train_windows, 20 * 81 / SEQ);
    CHECK_INT(data.val_windows, (20 * 21 - 1) / SEQ + 1);
    mics_data_close(&data);
}

static void targets_are_the_tokens_shifted_by_one(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[SEQ], targets[SEQ];

    CHECK_INT(open_data("%/sub/* %/*.txt", 0.1, 257, &data, &err), MICS_OK);
    for (uint64_t i = 0; i < 3 * data.train_windows; i++) {
        CHECK_INT(mics_data_read_train(&data, i, tokens, targets, &err), MICS_OK);
        CHECK(memcmp(tokens + 1, targets, (SEQ - 1) * sizeof *tokens) == 0);
        for (int t = 0; t < SEQ; t++)
            CHECK(targets[t] >= 0 && targets[t] < MICS_TOKEN_VOCAB_SIZE);
    }
    for (uint64_t i = 0; i + 1 < data.val_windows; i++) {
        CHECK_INT(mics_data_read_val(&data, i, tokens, targets, &err), MICS_OK);
        CHECK(memcmp(tokens + 1, targets, (SEQ - 1) * sizeof *tokens) == 0);
    }
    mics_data_close(&data);
}

/* For every length that the last window may have. */
static void validation_predicts_every_token_but_the_first_once(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[SEQ], targets[SEQ];
    char text[2 * SEQ + 1], path[128];
    const char *const pattern = path;
    const struct mics_data_options options = {
        .patterns = &pattern, .pattern_count = 1, .val_only = true, .seq = SEQ, .vocab_size = 257};

    for (size_t length = SEQ; length < sizeof text; length++) {
        uint64_t at = 0;

        for (size_t i = 0; i < length; i++)
            text[i] = (char)('A' + i);
        put_file("val.txt", text, length);
        snprintf(path, sizeof path, "%s/val.txt", folder);
        CHECK_INT(mics_data_open(&options, &data, &err), MICS_OK);
        CHECK_INT(data.val_windows, (length + SEQ - 1) / SEQ);
        for (uint64_t i = 0; i < data.val_windows; i++) {
            CHECK_INT(mics_data_read_val(&data, i, tokens, targets, &err), MICS_OK);
            for (int t = 0; t < SEQ; t++, at++) {
                const bool padding = at >= length;

                CHECK_INT(tokens[t], padding ? 0 : 'A' + (int)at);
                CHECK_INT(targets[t], padding            ? -1
                                      : at + 1 == length ? MICS_TOKEN_END
                                                         : 'A' + (int)at + 1);
            }
        }
        mics_data_close(&data);
    }
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
        mics_data_read_train(&data, data.train_windows + i, tokens, targets, &err);
        for (int t = 0; t < SEQ; t++)
            counted[tokens[t]]++;
    }
    for (int c = 'A'; c < 'A' + 20; c++) {
        CHECK(counted[c] <= 100);
        total += counted[c];
    }
    CHECK_INT(total + counted[MICS_TOKEN_END], data.train_windows * SEQ);
    CHECK(total + counted[MICS_TOKEN_END] > (int)data.train_tokens - SEQ);
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
    CHECK(one.fingerprint == two.fingerprint);
    CHECK(one.fingerprint != three.fingerprint);
    mics_data_close(&one);
    mics_data_close(&two);
    mics_data_close(&three);
}

/* Each source has its share of every run of samples, and its samples come in order. */
static void a_blend_has_the_weights_at_every_step(void)
{
    static const char *const blends[] = {"0.7:%/a.txt 0.3:%/sub/*", "1:%/a.txt 1:%/b.txt 2:%/sub/*",
                                         "0.001:%/a.txt 5:%/sub/*"};
    struct mics_data data;
    struct mics_err err = {""};

    put_file("a.txt", "0123456789abcdefghijklmnop", 26);
    put_file("b.txt", "bbbbbbbbbbbbbbbbbbbbbbbbbb", 26);
    for (size_t b = 0; b < sizeof blends / sizeof *blends; b++) {
        uint64_t counts[3] = {0};

        CHECK_INT(open_data(blends[b], 0, 257, &data, &err), MICS_OK);
        for (uint64_t i = 0; i < 3000; i++) {
            int32_t tokens[SEQ], targets[SEQ];
            size_t source = 0;

            for (size_t k = 0; k < data.source_count; k++) {
                const uint64_t now = mics_data_source_samples(&data, k, i);

                CHECK_INT(now, counts[k]);
                CHECK(fabs((double)now - data.weights[k] * (double)i) < 4);
                if (mics_data_source_samples(&data, k, i + 1) != now)
                    source = k;
            }
            counts[source]++;
            CHECK_INT(mics_data_read_train(&data, i, tokens, targets, &err), MICS_OK);
            if (source + 1 == data.source_count)
                CHECK(tokens[0] >= 'A' && (tokens[0] <= 'T' || tokens[0] == MICS_TOKEN_END));
            else
                CHECK(tokens[0] >= '0' && !(tokens[0] >= 'A' && tokens[0] <= 'T'));
        }
        mics_data_close(&data);
    }
    put_file("a.txt", "0123456789", 10);
    put_file("b.txt", "bbbbbbbbbb", 10);
}

static const char lines[] = "{\"prompt\": \"12+3=\", \"answer\": \"15\"}\n\n"
                            "{\"text\": \"plain\"}\n"
                            "{\"prompt\": \"6*7=\", \"completion\": \"42\"}\n"
                            "{\"text\": \"longer than a sequence, of 16 tokens\"}";

/* No state: samples are read in any order, from data that were opened again; and each source has
 * epochs of its own. */
static void a_sample_depends_on_seed_and_number_only(void)
{
    static const enum mics_pack packs[] = {MICS_PACK_CONCAT, MICS_PACK_DOCUMENT};
    enum { SAMPLES = 600 };
    int32_t tokens[SEQ], targets[SEQ];
    struct mics_err err = {""};
    struct mics_data data;
    uint64_t sums[SAMPLES];

    put_file("pairs.jsonl", lines, sizeof lines - 1);
    for (int p = 0; p < 2; p++) {
        const char *const blend = "2:%/pairs.jsonl 1:%/sub/*";
        int same = 0;

        CHECK_INT(open_packed(blend, 0, 257, packs[p], true, &data, &err), MICS_OK);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            CHECK_INT(mics_data_read_train(&data, i, tokens, targets, &err), MICS_OK);
            sums[i] = XXH64(tokens, sizeof tokens, XXH64(targets, sizeof targets, 0));
        }
        CHECK(mics_data_source_samples(&data, 0, SAMPLES) > 10 * data.sources[0].train.windows);
        CHECK(mics_data_source_samples(&data, 1, SAMPLES) > data.sources[1].train.windows);
        mics_data_close(&data);
        CHECK_INT(open_packed(blend, 0, 257, packs[p], true, &data, &err), MICS_OK);
        for (uint64_t i = SAMPLES; i-- > 0;) {
            CHECK_INT(mics_data_read_train(&data, i, tokens, targets, &err), MICS_OK);
            CHECK(sums[i] == XXH64(tokens, sizeof tokens, XXH64(targets, sizeof targets, 0)));
        }
        data.seed++;
        for (uint64_t i = 0; i < SAMPLES; i++) {
            mics_data_read_train(&data, i, tokens, targets, &err);
            same += sums[i] == XXH64(tokens, sizeof tokens, XXH64(targets, sizeof targets, 0));
        }
        CHECK(same < SAMPLES / 2);
        mics_data_close(&data);
    }
}

static void a_blend_counts_samples_beyond_32_bits(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    const uint64_t samples = ((uint64_t)5 << 32) + 123;

    CHECK_INT(open_data("1:%/sub/00.c 3:%/sub/*", 0, 257, &data, &err), MICS_OK);
    CHECK_INT(mics_data_source_samples(&data, 0, samples) +
                  mics_data_source_samples(&data, 1, samples),
              samples);
    CHECK(fabs((double)mics_data_source_samples(&data, 1, samples) / (double)samples - 0.75) <
          1e-6);
    mics_data_close(&data);
}

static void blends_without_sense_are_refused(void)
{
    refuses("0.5:%/sub/* %/a.txt", 257, "has no weight");
    refuses("%/sub/* 0.5:%/a.txt", 257, "has a weight");
    refuses("0:%/sub/*", 257, "greater than 0");
    refuses("1:%/sub/* 1e-12:%/sub/00.c", 257, "weight of only");
}

/* Documents of 8, 6, 7 and 36 tokens: rows [8 + 6], [7], [16], [16], [4]. */
static void packed_documents_are_whole_and_padded(void)
{
    static const int lengths[] = {14, 7, 16, 16, 5};
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[SEQ], targets[SEQ];
    bool seen[5] = {false};

    put_file("pairs.jsonl", lines, sizeof lines - 1);
    CHECK_INT(open_packed("%/pairs.jsonl", 0, 257, MICS_PACK_DOCUMENT, true, &data, &err), MICS_OK);
    CHECK_INT(data.documents, 4);
    CHECK_INT(data.train_windows, 5);
    for (uint64_t i = 0; i < 5; i++) {
        const uint64_t *rows = data.sources[0].train.rows;
        uint64_t row = mics_data_permute(7, 0, 5, i);

        seen[row] = true;
        CHECK_INT(rows[row + 1] - rows[row], lengths[row]);
        CHECK_INT(mics_data_read_train(&data, i, tokens, targets, &err), MICS_OK);
        for (int t = lengths[row]; t < SEQ; t++)
            CHECK(targets[t] == -1);
        if (row == 0) {
            static const int32_t want[] = {-1, -1,  -1,  -1,  '1', '5', 256,
                                           -2, 'l', 'a', 'i', 'n', 256, -2};

            for (int t = 0; t < 14; t++)
                CHECK_INT(targets[t], want[t]);
            CHECK_INT(tokens[0], '1');
            CHECK_INT(tokens[7], 256);
            CHECK_INT(tokens[8], 'p');
        }
        if (row == 2) { /* a piece goes on in the next row */
            CHECK_INT(targets[15], 'q');
            CHECK_INT(tokens[15], 'e');
        }
    }
    CHECK(seen[0] && seen[1] && seen[2] && seen[3] && seen[4]);
    mics_data_close(&data);
}

enum { MASK = 257, CLS, SEP, MASKED_VOCAB };

/* The four documents above, masked at `rate`; with [CLS] and [SEP] if `framed`. */
static void open_masked(struct mics_data *data, struct mics_masking *masking, double rate,
                        double val_fraction, bool framed)
{
    const struct mics_masking_options options = {
        .mask_token = "257", .vocab_size = MASKED_VOCAB, .seq = SEQ, .rate = rate, .seed = 3};
    struct mics_err err = {""};

    put_file("pairs.jsonl", lines, sizeof lines - 1);
    CHECK_INT(open_packed("%/pairs.jsonl", val_fraction, MASKED_VOCAB, MICS_PACK_DOCUMENT, false,
                          data, &err),
              MICS_OK);
    CHECK_INT(mics_masking_open(&options, masking, &err), MICS_OK);
    if (framed) {
        masking->begin = CLS;
        masking->end = SEP;
        masking->is_ordinary[CLS] = masking->is_ordinary[SEP] = 0;
    }
    CHECK_INT(mics_data_set_masking(data, masking, &err), MICS_OK);
}

/* What a row has where it is not masked: of which text, and where it ends. */
static void check_masked_row(const struct mics_data *data, const int32_t *tokens,
                             const int32_t *targets, int length, bool framed, double *chosen)
{
    CHECK_INT(targets[length - 1], MICS_TARGET_LAST);
    for (int t = 0; t < SEQ; t++) {
        const bool begins = t == 0 || targets[t - 1] == MICS_TARGET_LAST;
        const bool special = t >= length || targets[t] == MICS_TARGET_LAST || (framed && begins);

        if (t >= length)
            CHECK(tokens[t] == 0);
        else if (targets[t] == MICS_TARGET_LAST && (framed || length < SEQ))
            CHECK_INT(tokens[t], framed ? SEP : 256);
        else if (framed && begins)
            CHECK_INT(tokens[t], CLS);
        CHECK(!special || targets[t] < 0);
        CHECK(targets[t] < 0 || (targets[t] >= ' ' && targets[t] <= 'z'));
        CHECK(targets[t] < 0 || targets[t] != MASK);
        *chosen += targets[t] >= 0;
    }
    CHECK(data->masking->rate > 0);
}

/* Rows [9 + 7], [8], [16], [16], [10] with the tokens around documents, without them as above. */
static void documents_are_masked_apart_and_padding_never(void)
{
    static const int lengths[2][5] = {{14, 7, 16, 16, 5}, {16, 8, 16, 16, 10}};

    for (int framed = 0; framed < 2; framed++) {
        struct mics_data data;
        struct mics_masking masking;
        struct mics_err err = {""};
        int32_t tokens[SEQ], targets[SEQ], again[SEQ], targets_again[SEQ];
        double chosen = 0;

        open_masked(&data, &masking, 0.5, 0, framed);
        CHECK_INT(data.train_windows, 5);
        for (uint64_t i = 0; i < 100; i++) {
            const uint64_t row = mics_data_permute(7, i / 5, 5, i % 5);

            CHECK_INT(mics_data_read_train(&data, i, tokens, targets, &err), MICS_OK);
            check_masked_row(&data, tokens, targets, lengths[framed][row], framed, &chosen);
            CHECK_INT(targets[framed ? 8 : 7] == MICS_TARGET_LAST, row == 0);
            CHECK_INT(mics_data_read_train(&data, i, again, targets_again, &err), MICS_OK);
            CHECK(memcmp(tokens, again, sizeof tokens) == 0);
            CHECK(memcmp(targets, targets_again, sizeof targets) == 0);
        }
        /* All 58 tokens but the last of each document, or piece where that is not put behind it. */
        CHECK_NEAR(chosen / 20, 0.5 * (framed ? 54 : 52), 1);
        mics_masking_close(&masking);
        mics_data_close(&data);
    }
}

/* Whole documents, the same in each run, in a sequence that is shorter than one. */
static void validation_masks_documents_apart_as_well(void)
{
    struct mics_data data[2];
    struct mics_masking masking[2];
    int32_t tokens[2][SEQ], targets[2][SEQ];
    struct mics_err err = {""};
    double chosen = 0;

    for (int i = 0; i < 2; i++)
        open_masked(&data[i], &masking[i], i ? 0.9 : 0.1, 0.25, true);
    CHECK_INT(data[0].val_windows, 3);
    for (uint64_t window = 0; window < 3; window++) {
        for (int i = 0; i < 2; i++)
            CHECK_INT(mics_data_read_val(&data[i], window, tokens[i], targets[i], &err), MICS_OK);
        CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
        CHECK(memcmp(targets[0], targets[1], sizeof targets[0]) == 0);
        check_masked_row(&data[0], tokens[0], targets[0], window < 2 ? 16 : 10, true, &chosen);
    }
    CHECK(chosen >= 3 && chosen <= 8); /* 15 % of 14, 14 and 8 */
    for (int i = 0; i < 2; i++) {
        mics_masking_close(&masking[i]);
        mics_data_close(&data[i]);
    }
}

static void prompts_are_no_targets_if_masked(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    int32_t tokens[SEQ], targets[SEQ];
    int counted[2] = {0, 0};

    put_file("pairs.jsonl", lines, sizeof lines - 1);
    for (int mask = 0; mask < 2; mask++) {
        CHECK_INT(open_packed("%/pairs.jsonl", 0, 257, MICS_PACK_CONCAT, mask, &data, &err),
                  MICS_OK);
        for (uint64_t i = 0; i < data.train_windows; i++) {
            mics_data_read_train(&data, i, tokens, targets, &err);
            for (int t = 0; t < SEQ; t++) {
                CHECK(tokens[t] >= 0 && tokens[t] < 257);
                CHECK(t + 1 == SEQ || targets[t] == tokens[t + 1] || (mask && targets[t] == -1));
                counted[mask] += targets[t] >= 0;
            }
        }
        mics_data_close(&data);
    }
    CHECK_INT(counted[0], 48);
    CHECK(counted[1] >= 48 - 9 && counted[1] < 48);
}

static void refuses_lines(const char *text, const char *word)
{
    put_file("bad.jsonl", text, strlen(text));
    refuses("%/bad.jsonl", 257, word);
}

static void bad_lines_are_refused_with_file_and_line(void)
{
    refuses_lines("{\"text\": \"a\"}\n{\"txt\": \"a\"}\n",
                  "bad.jsonl': line 2: no string \"text\"");
    refuses_lines("{\"prompt\": \"a\"}\n", "line 1: no string \"answer\", nor \"completion\"");
    refuses_lines("{\"text\": 5}\n", "no string \"text\"");
    refuses_lines("\n[1]\n", "line 2: column 1: expected an object");
    refuses_lines("{\"text\": \"a\"\n", "line 1: column");
    refuses_lines("{\"text\": \"\xff\"}\n", "line 1: column");
    refuses_lines("{\"text\": \"a\"}\n", "too few");
    refuses("%/pairs.jsonl %/sub/*", 257, "give weights to mix them");
}

/* Raw ids of 16 bits. */
static void ids_of_a_file_are_checked_where_they_are_read(void)
{
    struct mics_data data;
    struct mics_err err = {""};
    uint16_t ids[200];
    int32_t tokens[SEQ], targets[SEQ];
    enum mics_status status = MICS_OK;

    for (uint16_t i = 0; i < 200; i++)
        ids[i] = i;
    put_file("ids.bin", (const char *)ids, sizeof ids);
    for (int prefix = 0; prefix < 2; prefix++) {
        CHECK_INT(open_data(prefix ? "%/ids" : "%/ids.bin", 0.1, 200, &data, &err), MICS_OK);
        CHECK_INT(data.train_tokens, 180);
        CHECK_INT(data.val_windows, 2); /* 19 targets of 20 tokens */
        CHECK_INT(mics_data_read_val(&data, 0, tokens, targets, &err), MICS_OK);
        CHECK_INT(tokens[0], 180);
        CHECK_INT(targets[SEQ - 1], 196);
        mics_data_close(&data);
    }
    CHECK_INT(open_data("%/ids.bin", 0, 100, &data, &err), MICS_OK);
    for (uint64_t i = 0; status == MICS_OK && i < data.train_windows; i++)
        status = mics_data_read_train(&data, i, tokens, targets, &err);
    CHECK_INT(status, MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "ids.bin") != NULL);
    mics_data_close(&data);
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
    TAP_RUN(validation_predicts_every_token_but_the_first_once);
    TAP_RUN(a_permutation_visits_every_window_once);
    TAP_RUN(epochs_and_seeds_have_different_orders);
    TAP_RUN(an_epoch_sees_every_token_but_the_remainder_once);
    TAP_RUN(a_step_has_the_same_samples_whatever_the_number_of_ranks);
    TAP_RUN(a_fingerprint_depends_on_the_text_but_not_on_names);
    TAP_RUN(a_blend_has_the_weights_at_every_step);
    TAP_RUN(a_sample_depends_on_seed_and_number_only);
    TAP_RUN(a_blend_counts_samples_beyond_32_bits);
    TAP_RUN(blends_without_sense_are_refused);
    TAP_RUN(packed_documents_are_whole_and_padded);
    TAP_RUN(documents_are_masked_apart_and_padding_never);
    TAP_RUN(validation_masks_documents_apart_as_well);
    TAP_RUN(prompts_are_no_targets_if_masked);
    TAP_RUN(bad_lines_are_refused_with_file_and_line);
    TAP_RUN(ids_of_a_file_are_checked_where_they_are_read);
    remove_folder();
    return tap_done();
}
