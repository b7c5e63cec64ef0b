/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.c - encode a text on one thread; print bytes, ids and the CPU seconds of the fastest pass.
 *
 * usage: encode TOKENIZER TEXT PASSES [IDS]      IDS: a file for the ids, 32 bits each
 *
 * The text is encoded in parts of about 1 MiB, as mics-data does. Every pass has a new encoder, so
 * none begins with the pieces of another.
 */
#include "base/file.h"
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PART ((size_t)1 << 20)

/* CPU time of this process, which other load on the machine does not change. */
static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Encode the text once. */
static enum mics_status encode(const struct mics_tokenizer *tokenizer, const char *text,
                               size_t size, FILE *out, uint64_t *total, struct mics_err *err)
{
    struct mics_encoder *encoder = NULL;
    const uint32_t *ids;
    size_t count, part;
    enum mics_status status = mics_encoder_new(tokenizer, &encoder, err);

    *total = 0;
    for (size_t at = 0; at < size && status == MICS_OK; at += part) {
        part = size - at;
        if (part > PART) {
            part = mics_tokenizer_cut(tokenizer, text + at, PART);
            part = part == 0 ? size - at : part;
        }
        status = mics_encode(encoder, text + at, part, 0, &ids, &count, NULL, err);
        *total += count;
        if (out != NULL && status == MICS_OK && fwrite(ids, sizeof *ids, count, out) != count)
            status = mics_err_set_errno(err, "writing ids");
    }
    mics_encoder_free(encoder);
    return status;
}

static enum mics_status measure(const struct mics_tokenizer *tokenizer, const char *text,
                                size_t size, int passes, FILE *out, struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    double best = 0;
    uint64_t total = 0;

    for (int pass = 0; pass < passes && status == MICS_OK; pass++) {
        const double begin = cpu_seconds();

        status = encode(tokenizer, text, size, NULL, &total, err);
        if (pass == 0 || cpu_seconds() - begin < best)
            best = cpu_seconds() - begin;
    }
    if (status == MICS_OK && out != NULL)
        status = encode(tokenizer, text, size, out, &total, err);
    if (status == MICS_OK)
        printf("%zu %" PRIu64 " %.6f\n", size, total, best);
    return status;
}

int main(int argc, char **argv)
{
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {.text = ""};
    char *text = NULL;
    size_t size = 0;
    FILE *out = NULL;
    enum mics_status status;

    if (argc < 4 || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: encode TOKENIZER TEXT PASSES [IDS]\n");
        return 2;
    }
    status = mics_tokenizer_open(argv[1], &tokenizer, &err);
    if (status == MICS_OK)
        status = mics_file_read(argv[2], SIZE_MAX / 2, &text, &size, &err);
    if (status == MICS_OK && argc > 4 && (out = fopen(argv[4], "wb")) == NULL)
        status = mics_err_set_errno(&err, "%s", argv[4]);
    if (status == MICS_OK)
        status = measure(tokenizer, text, size, atoi(argv[3]), out, &err);
    if (out != NULL && fclose(out) != 0 && status == MICS_OK)
        status = mics_err_set_errno(&err, "%s", argv[4]);
    if (status != MICS_OK)
        fprintf(stderr, "encode: %s\n", err.text);
    free(text);
    mics_tokenizer_free(tokenizer);
    return status == MICS_OK ? 0 : 1;
}
