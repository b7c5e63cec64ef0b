/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - write recordings: record --chip=sm_75|sm_80|sm_90 PTX_FOLDER OUT_FOLDER */
#include "record.h"

#include "host/numbers.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_MAX 24

/* The description of one allocation of a case. */
struct note {
    const char *name;
    const void *device;
    const char *dtype;
    float *values; /* of a tensor */
    bool written;
    void *expected;
    const char *expected_dtype;
    size_t expected_bytes;
    double atol, rtol, norm;
};

struct recording {
    char name[128];
    struct note notes[BUFFERS_MAX];
    size_t count;
    FILE *bin;
};

static void *need(size_t bytes)
{
    void *memory = malloc(bytes + 1);

    if (!memory)
        gpu_die("out of memory");
    return memory;
}

static struct note *add_note(struct suite *suite, const char *name, const void *device,
                             const char *dtype)
{
    struct note *note = &suite->recording->notes[suite->recording->count];

    if (suite->recording->count++ == BUFFERS_MAX)
        gpu_die("%s: more than %d buffers", suite->recording->name, BUFFERS_MAX);
    *note = (struct note){.name = name, .device = device, .dtype = dtype};
    return note;
}

static struct note *find_note(struct suite *suite, const void *device)
{
    for (size_t i = 0; i < suite->recording->count; i++)
        if (suite->recording->notes[i].device == device)
            return &suite->recording->notes[i];
    gpu_die("%s: no buffer at %p", suite->recording->name, device);
}

void case_begin(struct suite *suite, int multiprocessors, const char *name, ...)
{
    va_list args;

    gpu_reset();
    suite->recording = need(sizeof(*suite->recording));
    memset(suite->recording, 0, sizeof(*suite->recording));
    va_start(args, name);
    vsnprintf(suite->recording->name, sizeof(suite->recording->name), name, args);
    va_end(args);
    suite->at.multiprocessors = multiprocessors ? multiprocessors : suite->chip->multiprocessors;
    suite->at.workspace = case_bytes(suite, "workspace", NULL, MICS_CUDA_WORKSPACE_BYTES, 0);
    case_scratch(suite, suite->at.workspace);
}

struct tensor case_output(struct suite *suite, const char *name, enum mics_dtype dtype,
                          size_t count, unsigned shift)
{
    const size_t each = mics_dtype_bytes(dtype);
    struct tensor tensor = {dtype, count, gpu_alloc(count * each, shift * each),
                            need(count * sizeof(float))};

    memset(tensor.values, 0xff, count * sizeof(float));
    add_note(suite, name, tensor.device, dtype_name(dtype))->values = tensor.values;
    return tensor;
}

/* The values rounded to the type; the caller frees them. */
static void *rounded(const struct tensor *tensor)
{
    void *bytes = need(tensor->count * mics_dtype_bytes(tensor->dtype));

    mics_numbers_from_f32(storage_of(tensor->dtype), tensor->values, bytes, tensor->count);
    mics_numbers_to_f32(storage_of(tensor->dtype), bytes, tensor->values, tensor->count);
    return bytes;
}

void case_round(struct tensor *tensor)
{
    free(rounded(tensor));
}

void case_send(struct suite *suite, struct tensor *tensor)
{
    void *bytes = rounded(tensor);

    case_ran(suite,
             cudaMemcpy(tensor->device, bytes, tensor->count * mics_dtype_bytes(tensor->dtype),
                        cudaMemcpyHostToDevice));
    free(bytes);
}

struct tensor case_random(struct suite *suite, const char *name, enum mics_dtype dtype,
                          size_t count, float scale, uint64_t seed, unsigned shift)
{
    struct tensor tensor = case_output(suite, name, dtype, count, shift);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1; /* xorshift64: Marsaglia 2003 */

    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        tensor.values[i] = scale * (float)((double)(state >> 11) / 4503599627370496.0 - 1.0);
    }
    case_send(suite, &tensor);
    return tensor;
}

void *case_bytes(struct suite *suite, const char *name, const void *from, size_t bytes,
                 unsigned shift)
{
    void *device = gpu_alloc(bytes, shift);

    if (from)
        case_ran(suite, cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice));
    add_note(suite, name, device, "u8");
    return device;
}

void case_scratch(struct suite *suite, const void *device)
{
    find_note(suite, device)->written = true;
}

void case_ran(struct suite *suite, cudaError_t error)
{
    if (error != cudaSuccess)
        gpu_die("%s: %s", suite->recording->name, cudaGetErrorString(error));
}

static struct note *expect(struct suite *suite, const void *device, const void *want, size_t bytes,
                           const char *dtype)
{
    struct note *note = find_note(suite, device);

    note->written = true;
    note->expected = need(bytes);
    note->expected_bytes = bytes;
    note->expected_dtype = dtype;
    memcpy(note->expected, want, bytes);
    return note;
}

void case_expect(struct suite *suite, const struct tensor *tensor, double tolerance)
{
    struct note *note =
        expect(suite, tensor->device, tensor->values, tensor->count * sizeof(float), "f32");

    note->atol = tolerance + half_least(tensor->dtype);
    note->rtol = tolerance + half_unit(tensor->dtype);
}

void case_expect_copy(struct suite *suite, struct tensor *copy, const struct tensor *of,
                      double tolerance)
{
    memcpy(copy->values, of->values, of->count * sizeof(float));
    case_expect(suite, copy, tolerance);
}

void case_expect_norm(struct suite *suite, const struct tensor *tensor, double norm, double most)
{
    struct note *note =
        expect(suite, tensor->device, tensor->values, tensor->count * sizeof(float), "f32");
    double sum = 0;

    for (size_t i = 0; i < tensor->count; i++)
        sum += (double)tensor->values[i] * tensor->values[i];
    note->atol = most * sqrt(sum / (double)tensor->count);
    note->norm = norm;
}

void case_expect_bytes(struct suite *suite, const void *device, const void *want, size_t bytes)
{
    expect(suite, device, want, bytes, "u8");
}

void case_expect_numbers(struct suite *suite, const void *device, const void *want, uint64_t count,
                         enum mics_dtype dtype)
{
    case_expect_bytes(suite, device, want, mics_wire_bytes(dtype, count));
}

void case_expect_doubles(struct suite *suite, const void *device, const double *want, size_t count,
                         double relative)
{
    struct note *note = expect(suite, device, want, count * sizeof *want, "f64");

    note->dtype = "f64";
    note->rtol = relative;
}

void case_expect_double(struct suite *suite, const void *device, double want, double relative)
{
    case_expect_doubles(suite, device, &want, 1, relative);
}

/* Write to the .bin, at a multiple of 16 bytes; where. */
static json_t *put(struct suite *suite, const void *bytes, size_t count)
{
    static const char zeros[16];
    const long at = ftell(suite->recording->bin);

    if (at < 0 || fwrite(bytes, 1, count, suite->recording->bin) != count ||
        fwrite(zeros, 1, (16 - count % 16) % 16, suite->recording->bin) != (16 - count % 16) % 16)
        gpu_die("%s: cannot be written", suite->recording->name);
    return json_integer(at);
}

static json_t *buffers_json(struct suite *suite)
{
    json_t *list = json_array();

    for (const struct gpu_buffer *b = gpu_buffers(); b; b = b->next) {
        const struct note *note = find_note(suite, (void *)(uintptr_t)b->address);

        json_array_append_new(
            list,
            json_pack("{ss sI sI so sb ss so ss? sf sf so}", "name", note->name, "address",
                      (json_int_t)b->address, "bytes", (json_int_t)b->bytes, "offset",
                      b->content ? put(suite, b->content, b->bytes) : json_null(), "written",
                      note->written, "dtype", note->dtype, "expected_offset",
                      note->expected ? put(suite, note->expected, note->expected_bytes)
                                     : json_null(),
                      "expected_dtype", note->expected_dtype, "atol", note->atol, "rtol",
                      note->rtol, "norm", note->norm > 0 ? json_real(note->norm) : json_null()));
    }
    return list;
}

static json_t *launch_json(const struct gpu_operation *launch)
{
    char *hex = need(2 * launch->parameter_bytes);
    json_t *out;

    for (size_t i = 0; i < launch->parameter_bytes; i++)
        sprintf(hex + 2 * i, "%02x", launch->parameters[i]);
    hex[2 * launch->parameter_bytes] = 0;
    out = json_pack("{ss ss s[iii] s[iii] sI ss}", "kind", "launch", "kernel", launch->kernel,
                    "grid", (int)launch->grid.x, (int)launch->grid.y, (int)launch->grid.z, "block",
                    (int)launch->block.x, (int)launch->block.y, (int)launch->block.z, "shared",
                    (json_int_t)launch->shared, "params", hex);
    free(hex);
    return out;
}

static json_t *operations_json(void)
{
    json_t *list = json_array();

    for (const struct gpu_operation *o = gpu_operations(); o; o = o->next)
        json_array_append_new(
            list, o->kind == GPU_LAUNCH ? launch_json(o)
                  : o->kind == GPU_COPY
                      ? json_pack("{ss sI sI sI}", "kind", "copy", "to", (json_int_t)o->to, "from",
                                  (json_int_t)o->from, "bytes", (json_int_t)o->bytes)
                      : json_pack("{ss sI si sI}", "kind", "memset", "address", (json_int_t)o->to,
                                  "value", o->value, "bytes", (json_int_t)o->bytes));
    return list;
}

void case_end(struct suite *suite)
{
    struct recording *recording = suite->recording;
    char path[4096];
    json_t *json;

    if (!gpu_operations())
        gpu_die("%s: nothing was enqueued", recording->name);
    snprintf(path, sizeof(path), "%s/%s.bin", suite->folder, recording->name);
    recording->bin = fopen(path, "wbx");
    if (!recording->bin)
        gpu_die("%s: cannot be made, or two cases have this name", path);
    json = json_pack("{ss ss so so}", "name", recording->name, "chip", suite->chip->name, "buffers",
                     buffers_json(suite), "operations", operations_json());
    snprintf(path, sizeof(path), "%s/%s.json", suite->folder, recording->name);
    if (!json || fclose(recording->bin) != 0 || json_dump_file(json, path, JSON_INDENT(1)) != 0)
        gpu_die("%s: cannot be written", path);
    json_decref(json);
    for (size_t i = 0; i < recording->count; i++) {
        free(recording->notes[i].values);
        free(recording->notes[i].expected);
    }
    free(recording);
    suite->recording = NULL;
}

int main(int argc, char **argv)
{
    struct suite suite = {0};

    if (argc != 4 || strncmp(argv[1], "--chip=", 7) != 0 ||
        !(suite.chip = gpu_chip_find(argv[1] + 7))) {
        fputs("usage: record --chip=sm_75|sm_80|sm_90 PTX_FOLDER OUT_FOLDER\n", stderr);
        return 2;
    }
    gpu_open(suite.chip, argv[2]);
    suite.folder = argv[3];
    suite.pool = mics_pool_new(1);
    if (!suite.pool)
        gpu_die("out of memory");
    record_operation_cases(&suite);
    record_epilogue_cases(&suite);
    record_attention_cases(&suite);
    record_expert_cases(&suite);
    mics_pool_free(suite.pool);
    gpu_reset();
    return 0;
}
