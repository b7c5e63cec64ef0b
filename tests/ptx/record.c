/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - write recordings: record --chip=sm_80|sm_90 PTX_FOLDER OUT_FOLDER */
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

const char *record_dtype_name(enum mics_dtype dtype)
{
    return dtype == MICS_F32 ? "f32" : dtype == MICS_BF16 ? "bf16" : "f64";
}

static struct note *add_note(struct recorder *r, const char *name, const void *device,
                             const char *dtype)
{
    struct note *note = &r->recording->notes[r->recording->count];

    if (r->recording->count++ == BUFFERS_MAX)
        gpu_die("%s: more than %d buffers", r->recording->name, BUFFERS_MAX);
    *note = (struct note){.name = name, .device = device, .dtype = dtype};
    return note;
}

static struct note *find_note(struct recorder *r, const void *device)
{
    for (size_t i = 0; i < r->recording->count; i++)
        if (r->recording->notes[i].device == device)
            return &r->recording->notes[i];
    gpu_die("%s: no buffer at %p", r->recording->name, device);
}

void record_begin(struct recorder *r, int multiprocessors, const char *name, ...)
{
    va_list args;

    gpu_reset();
    r->recording = need(sizeof(*r->recording));
    memset(r->recording, 0, sizeof(*r->recording));
    va_start(args, name);
    vsnprintf(r->recording->name, sizeof(r->recording->name), name, args);
    va_end(args);
    r->at.multiprocessors = multiprocessors ? multiprocessors : r->chip->multiprocessors;
    r->at.workspace = record_bytes(r, "workspace", NULL, MICS_CUDA_WORKSPACE_BYTES);
    record_scratch(r, r->at.workspace);
}

static enum mics_storage_dtype number_of(enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32;
}

struct tensor record_output(struct recorder *r, const char *name, enum mics_dtype dtype,
                            size_t count, unsigned shift)
{
    const size_t each = mics_dtype_bytes(dtype);
    struct tensor tensor = {dtype, count, gpu_alloc(count * each, shift * each),
                            need(count * sizeof(float))};

    memset(tensor.values, 0xff, count * sizeof(float));
    add_note(r, name, tensor.device, record_dtype_name(dtype))->values = tensor.values;
    return tensor;
}

/* The values rounded to the type; the caller frees them. */
static void *rounded(const struct tensor *tensor)
{
    void *bytes = need(tensor->count * mics_dtype_bytes(tensor->dtype));

    mics_numbers_from_f32(number_of(tensor->dtype), tensor->values, bytes, tensor->count);
    mics_numbers_to_f32(number_of(tensor->dtype), bytes, tensor->values, tensor->count);
    return bytes;
}

void record_round(struct tensor *tensor)
{
    free(rounded(tensor));
}

void record_send(struct recorder *r, struct tensor *tensor)
{
    void *bytes = rounded(tensor);

    record_ran(r, cudaMemcpy(tensor->device, bytes, tensor->count * mics_dtype_bytes(tensor->dtype),
                             cudaMemcpyHostToDevice));
    free(bytes);
}

struct tensor record_random(struct recorder *r, const char *name, enum mics_dtype dtype,
                            size_t count, float scale, uint64_t seed, unsigned shift)
{
    struct tensor tensor = record_output(r, name, dtype, count, shift);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1; /* xorshift64: Marsaglia 2003 */

    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        tensor.values[i] = scale * (float)((double)(state >> 11) / 4503599627370496.0 - 1.0);
    }
    record_send(r, &tensor);
    return tensor;
}

void *record_bytes(struct recorder *r, const char *name, const void *from, size_t bytes)
{
    void *device = gpu_alloc(bytes, 0);

    if (from)
        record_ran(r, cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice));
    add_note(r, name, device, "u8");
    return device;
}

void record_scratch(struct recorder *r, const void *device)
{
    find_note(r, device)->written = true;
}

void record_ran(struct recorder *r, cudaError_t error)
{
    if (error != cudaSuccess)
        gpu_die("%s: %s", r->recording->name, cudaGetErrorString(error));
}

static struct note *expect(struct recorder *r, const void *device, const void *want, size_t bytes,
                           const char *dtype)
{
    struct note *note = find_note(r, device);

    note->written = true;
    note->expected = need(bytes);
    note->expected_bytes = bytes;
    note->expected_dtype = dtype;
    memcpy(note->expected, want, bytes);
    return note;
}

void record_expect(struct recorder *r, const struct tensor *tensor, double tolerance)
{
    struct note *note =
        expect(r, tensor->device, tensor->values, tensor->count * sizeof(float), "f32");

    note->atol = tolerance;
    note->rtol = tolerance + (tensor->dtype == MICS_BF16 ? 0x1p-8 : 0);
}

void record_expect_norm(struct recorder *r, const struct tensor *tensor, double norm, double most)
{
    struct note *note =
        expect(r, tensor->device, tensor->values, tensor->count * sizeof(float), "f32");
    double sum = 0;

    for (size_t i = 0; i < tensor->count; i++)
        sum += (double)tensor->values[i] * tensor->values[i];
    note->atol = most * sqrt(sum / (double)tensor->count);
    note->norm = norm;
}

void record_expect_bytes(struct recorder *r, const void *device, const void *want, size_t bytes)
{
    expect(r, device, want, bytes, "u8");
}

void record_expect_doubles(struct recorder *r, const void *device, const double *want, size_t count,
                           double relative)
{
    struct note *note = expect(r, device, want, count * sizeof *want, "f64");

    note->dtype = "f64";
    note->rtol = relative;
}

void record_expect_double(struct recorder *r, const void *device, double want, double relative)
{
    record_expect_doubles(r, device, &want, 1, relative);
}

/* Write to the .bin, at a multiple of 16 bytes; where. */
static json_t *put(struct recorder *r, const void *bytes, size_t count)
{
    static const char zeros[16];
    const long at = ftell(r->recording->bin);

    if (at < 0 || fwrite(bytes, 1, count, r->recording->bin) != count ||
        fwrite(zeros, 1, (16 - count % 16) % 16, r->recording->bin) != (16 - count % 16) % 16)
        gpu_die("%s: cannot be written", r->recording->name);
    return json_integer(at);
}

static json_t *buffers_json(struct recorder *r)
{
    json_t *list = json_array();

    for (const struct gpu_buffer *b = gpu_buffers(); b; b = b->next) {
        const struct note *note = find_note(r, (void *)(uintptr_t)b->address);

        json_array_append_new(
            list,
            json_pack("{ss sI sI so sb ss so ss? sf sf so}", "name", note->name, "address",
                      (json_int_t)b->address, "bytes", (json_int_t)b->bytes, "offset",
                      b->content ? put(r, b->content, b->bytes) : json_null(), "written",
                      note->written, "dtype", note->dtype, "expected_offset",
                      note->expected ? put(r, note->expected, note->expected_bytes) : json_null(),
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

void record_end(struct recorder *r)
{
    struct recording *recording = r->recording;
    char path[4096];
    json_t *json;

    if (!gpu_operations())
        gpu_die("%s: nothing was enqueued", recording->name);
    snprintf(path, sizeof(path), "%s/%s.bin", r->folder, recording->name);
    recording->bin = fopen(path, "wbx");
    if (!recording->bin)
        gpu_die("%s: cannot be made, or two cases have this name", path);
    json = json_pack("{ss ss so so}", "name", recording->name, "chip", r->chip->name, "buffers",
                     buffers_json(r), "operations", operations_json());
    snprintf(path, sizeof(path), "%s/%s.json", r->folder, recording->name);
    if (!json || fclose(recording->bin) != 0 || json_dump_file(json, path, JSON_INDENT(1)) != 0)
        gpu_die("%s: cannot be written", path);
    json_decref(json);
    for (size_t i = 0; i < recording->count; i++) {
        free(recording->notes[i].values);
        free(recording->notes[i].expected);
    }
    free(recording);
    r->recording = NULL;
}

int main(int argc, char **argv)
{
    struct recorder r = {0};

    if (argc != 4 || strncmp(argv[1], "--chip=", 7) != 0 ||
        !(r.chip = gpu_chip_find(argv[1] + 7))) {
        fputs("usage: record --chip=sm_80|sm_90 PTX_FOLDER OUT_FOLDER\n", stderr);
        return 2;
    }
    gpu_open(r.chip, argv[2]);
    r.folder = argv[3];
    r.pool = mics_pool_new(1);
    if (!r.pool)
        gpu_die("out of memory");
    record_flat_cases(&r);
    record_block_cases(&r);
    record_row_cases(&r);
    record_table_cases(&r);
    record_update_cases(&r);
    record_attention_cases(&r);
    record_expert_cases(&r);
    mics_pool_free(r.pool);
    gpu_reset();
    return 0;
}
