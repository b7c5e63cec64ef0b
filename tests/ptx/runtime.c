/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime.c - a CUDA runtime that executes nothing and records everything: memory, kernels,
 * launches.
 *
 * A launch has no sizes of its arguments. They come from the .param lines of the kernel's .entry in
 * the PTX, which also give the limit of threads in a block.
 */
#include "runtime.h"

#include <cuda.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BEGIN     0x7f0000000000u
#define MEMORY_ALIGNMENT 256
#define MEMORY_GAP       4096
#define PARAMETERS_MAX   32
#define SHARED_DEFAULT   (48 << 10) /* dynamic shared memory that need not be asked for */

/* A kernel's .entry in the PTX. */
struct entry {
    struct entry *next;
    char *name;
    size_t count, offset[PARAMETERS_MAX], size[PARAMETERS_MAX], bytes; /* of parameters */
    unsigned threads_max;                                              /* in a block */
};

/* A kernel that an object registered when the program started. */
struct kernel {
    struct kernel *next;
    const void *stub;          /* the host's function that represents it */
    const char *name;          /* of its .entry */
    const struct entry *entry; /* once it was launched */
    int shared_max;
};

static struct gpu {
    const struct gpu_chip *chip;
    struct entry *entries;
    struct kernel *kernels;
    struct gpu_buffer *buffers, **last_buffer;
    struct gpu_operation *operations, **last_operation;
    uint64_t memory_end;
    cudaError_t error; /* of the last call that failed, for cudaGetLastError() */
    struct {
        dim3 grid, block;
        size_t shared;
        cudaStream_t stream;
    } pushed; /* of the launch that is being made */
} gpu;

static const struct gpu_chip chips[] = {
    {"sm_75", {"sm_75", NULL, NULL}, 40, 75, 64 << 10},
    {"sm_80", {"sm_80", NULL, NULL}, 108, 80, 163 << 10},
    {"sm_90", {"sm_90", "sm_90a", NULL}, 132, 90, 227 << 10},
};

void gpu_die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("record: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void *need(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);

    if (!memory)
        gpu_die("out of memory");
    return memory;
}

/* Keep a failure for cudaGetLastError(), and print its cause. */
static cudaError_t fail(cudaError_t error, const char *what)
{
    fprintf(stderr, "record: %s: %s\n", what, cudaGetErrorString(error));
    gpu.error = error;
    return error;
}

const struct gpu_chip *gpu_chip_find(const char *name)
{
    for (size_t i = 0; i < sizeof(chips) / sizeof(chips[0]); i++)
        if (strcmp(chips[i].name, name) == 0)
            return &chips[i];
    return NULL;
}

/* One .param line: a scalar (".param .u64 name") or an array of bytes (".param .align 8 .b8
 * name[40]"). */
static void add_parameter(struct entry *entry, const char *line)
{
    const char *align = strstr(line, ".align"), *count = strchr(line, '['), *type;
    size_t size = 0, alignment;

    for (type = strchr(line + 1, '.'); type && size == 0; type = strchr(type + 1, '.'))
        if (strchr("bsuf", type[1]) && type[2] >= '0' && type[2] <= '9')
            size = (size_t)atoi(type + 2) / 8;
    if (size == 0 || entry->count == PARAMETERS_MAX)
        gpu_die("%s: cannot read the parameter \"%s\"", entry->name, line);
    alignment = count && align ? (size_t)atoi(align + 6) : size;
    entry->offset[entry->count] = (entry->bytes + alignment - 1) / alignment * alignment;
    entry->size[entry->count] = count ? size * (size_t)atoi(count + 1) : size;
    entry->bytes = entry->offset[entry->count] + entry->size[entry->count];
    entry->count++;
}

/* "[.visible|.weak] .entry name(", its .param lines, ")", and directives up to "{". */
static void read_entries(const char *path)
{
    FILE *file = fopen(path, "r");
    struct entry *entry = NULL;
    char *line = NULL, *at;
    size_t room = 0;

    if (!file)
        gpu_die("%s: cannot be opened", path);
    while (getline(&line, &room, file) > 0) {
        if ((line[0] == '.' || line[0] == '\t') && (at = strstr(line, ".entry ")) != NULL) {
            entry = need(1, sizeof(*entry));
            entry->name = strndup(at + 7, strcspn(at + 7, "(\n"));
            entry->threads_max = 1024;
            entry->next = gpu.entries;
            gpu.entries = entry;
        } else if (entry && line[0] == '{') {
            entry = NULL;
        } else if (entry && strncmp(line, ".maxntid", 8) == 0) {
            entry->threads_max = (unsigned)atoi(line + 8);
        } else if (entry && strncmp(line + strspn(line, " \t"), ".param", 6) == 0) {
            add_parameter(entry, line + strspn(line, " \t"));
        }
    }
    free(line);
    fclose(file);
}

void gpu_open(const struct gpu_chip *chip, const char *ptx)
{
    gpu.chip = chip;
    for (const char *const *folder = chip->ptx; *folder; folder++) {
        char path[4096];
        struct dirent *file;
        DIR *dir;

        snprintf(path, sizeof(path), "%s/%s", ptx, *folder);
        dir = opendir(path);
        while (dir && (file = readdir(dir)) != NULL) {
            const size_t length = strlen(file->d_name);

            if (length < 4 || strcmp(file->d_name + length - 4, ".ptx") != 0)
                continue;
            snprintf(path, sizeof(path), "%s/%s/%s", ptx, *folder, file->d_name);
            read_entries(path);
        }
        if (dir)
            closedir(dir);
    }
    if (!gpu.entries)
        gpu_die("%s: no PTX for %s", ptx, chip->name);
    gpu_reset();
}

void *gpu_alloc(size_t bytes, size_t shift)
{
    struct gpu_buffer *buffer = need(1, sizeof(*buffer));

    buffer->address = gpu.memory_end + shift;
    buffer->bytes = bytes;
    gpu.memory_end = (buffer->address + bytes + MEMORY_GAP + MEMORY_ALIGNMENT - 1) /
                     MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    *gpu.last_buffer = buffer;
    gpu.last_buffer = &buffer->next;
    return (void *)(uintptr_t)buffer->address;
}

const struct gpu_buffer *gpu_buffers(void)
{
    return gpu.buffers;
}

const struct gpu_operation *gpu_operations(void)
{
    return gpu.operations;
}

void gpu_reset(void)
{
    while (gpu.buffers) {
        struct gpu_buffer *buffer = gpu.buffers;

        gpu.buffers = buffer->next;
        free(buffer->content);
        free(buffer);
    }
    while (gpu.operations) {
        struct gpu_operation *operation = gpu.operations;

        gpu.operations = operation->next;
        free(operation->parameters);
        free(operation);
    }
    gpu.last_buffer = &gpu.buffers;
    gpu.last_operation = &gpu.operations;
    gpu.memory_end = MEMORY_BEGIN;
    gpu.error = cudaSuccess;
}

/* The allocation with [address, address + bytes), NULL if there is none. */
static struct gpu_buffer *find_buffer(uint64_t address, size_t bytes)
{
    for (struct gpu_buffer *buffer = gpu.buffers; buffer; buffer = buffer->next)
        if (address >= buffer->address && bytes <= buffer->bytes &&
            address - buffer->address <= buffer->bytes - bytes)
            return buffer;
    return NULL;
}

static struct gpu_operation *add_operation(enum gpu_operation_kind kind)
{
    struct gpu_operation *operation = need(1, sizeof(*operation));

    operation->kind = kind;
    *gpu.last_operation = operation;
    gpu.last_operation = &operation->next;
    return operation;
}

/*
 * What nvcc's code for the host calls when the program starts. Names and types are those of CUDA's
 * crt/host_runtime.h, which cannot be included in C.
 */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *function, const char *name,
                            int threads_max, void *tid, void *bid, void *block, void *grid,
                            int *warp);
void __cudaRegisterVar(void **handle, char *variable, char *address, const char *name, int ext,
                       size_t bytes, int constant, int global);
char __cudaInitModule(void **handle);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *stub);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream);

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;

    (void)binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

void __cudaRegisterFunction(void **handle, const char *stub, char *function, const char *name,
                            int threads_max, void *tid, void *bid, void *block, void *grid,
                            int *warp)
{
    struct kernel *kernel = need(1, sizeof(*kernel));

    (void)handle, (void)function, (void)threads_max, (void)tid, (void)bid, (void)block;
    (void)grid, (void)warp;
    kernel->stub = stub;
    kernel->name = name;
    kernel->shared_max = SHARED_DEFAULT;
    kernel->next = gpu.kernels;
    gpu.kernels = kernel;
}

/* No kernel has variables in global or constant memory, whose addresses a recording could not name.
 */
void __cudaRegisterVar(void **handle, char *variable, char *address, const char *name, int ext,
                       size_t bytes, int constant, int global)
{
    (void)handle, (void)variable, (void)address, (void)ext, (void)bytes, (void)constant;
    (void)global;
    gpu_die("the variable %s of a module cannot be recorded", name);
}

static struct kernel *find_kernel(const void *stub)
{
    for (struct kernel *kernel = gpu.kernels; kernel; kernel = kernel->next)
        if (kernel->stub == stub)
            return kernel;
    return NULL;
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *stub)
{
    *out = (cudaKernel_t)find_kernel(stub);
    return *out ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    gpu.pushed.grid = grid;
    gpu.pushed.block = block;
    gpu.pushed.shared = shared;
    gpu.pushed.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = gpu.pushed.grid;
    *block = gpu.pushed.block;
    *shared = gpu.pushed.shared;
    memcpy(stream, &gpu.pushed.stream, sizeof(gpu.pushed.stream));
    return cudaSuccess;
}

static const struct entry *find_entry(struct kernel *kernel)
{
    for (struct entry *entry = gpu.entries; entry && !kernel->entry; entry = entry->next)
        if (strcmp(entry->name, kernel->name) == 0)
            kernel->entry = entry;
    return kernel->entry;
}

/* The limits of every chip of compute capability 8.0 and later. */
static bool grid_fits(dim3 grid, dim3 block, unsigned threads_max)
{
    return grid.x > 0 && grid.x <= 0x7fffffff && grid.y > 0 && grid.y <= 65535 && grid.z > 0 &&
           grid.z <= 65535 && block.x > 0 && block.x <= 1024 && block.y > 0 && block.y <= 1024 &&
           block.z > 0 && block.z <= 64 && (uint64_t)block.x * block.y * block.z <= threads_max;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream)
{
    struct kernel *kernel = (struct kernel *)handle;
    const struct entry *entry = kernel ? find_entry(kernel) : NULL;
    struct gpu_operation *launch;

    (void)stream;
    if (!entry) /* no code for this chip, as on a GPU */
        return fail(cudaErrorNoKernelImageForDevice, kernel ? kernel->name : "a kernel");
    if (!grid_fits(grid, block, entry->threads_max))
        return fail(cudaErrorInvalidConfiguration, kernel->name);
    if (shared > (size_t)kernel->shared_max)
        return fail(cudaErrorInvalidValue, kernel->name);
    launch = add_operation(GPU_LAUNCH);
    launch->kernel = kernel->name;
    launch->grid = grid;
    launch->block = block;
    launch->shared = shared;
    launch->parameters = need(entry->bytes, 1);
    launch->parameter_bytes = entry->bytes;
    for (size_t i = 0; i < entry->count; i++)
        memcpy(launch->parameters + entry->offset[i], args[i], entry->size[i]);
    return cudaSuccess;
}

/* CUDA 12 launches by the stub's address. */
cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    return __cudaLaunchKernel((cudaKernel_t)find_kernel(stub), grid, block, args, shared, stream);
}

cudaError_t cudaFuncSetAttribute(const void *stub, enum cudaFuncAttribute attribute, int value)
{
    struct kernel *kernel = find_kernel(stub);

    if (!kernel)
        return fail(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute");
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > gpu.chip->shared_bytes)
            return fail(cudaErrorInvalidValue, kernel->name);
        kernel->shared_max = value;
        return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        return value >= -1 && value <= 100 ? cudaSuccess
                                           : fail(cudaErrorInvalidValue, kernel->name);
    default:
        return fail(cudaErrorInvalidValue, "cudaFuncSetAttribute");
    }
}

/* The rest of the runtime that kernels/cuda and the recorder need. */
cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = gpu.error;

    gpu.error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration of a launch";
    case cudaErrorInvalidDeviceFunction:
        return "no such kernel";
    case cudaErrorNoKernelImageForDevice:
        return "no code of this kernel for this chip";
    case cudaErrorNotSupported:
        return "not supported";
    default:
        return "another error";
    }
}

cudaError_t cudaGetDevice(int *out)
{
    *out = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device)
{
    switch (device == 0 ? attribute : cudaDevAttrMax) {
    case cudaDevAttrComputeCapabilityMajor:
        *out = gpu.chip->capability / 10;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *out = gpu.chip->capability % 10;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *out = gpu.chip->multiprocessors;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *out = gpu.chip->shared_bytes;
        return cudaSuccess;
    default:
        return fail(cudaErrorInvalidValue, "cudaDeviceGetAttribute");
    }
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = gpu_alloc(bytes, 0);
    return cudaSuccess;
}

/* Memory lives until gpu_reset(), so that a recording shows all that an operation used. */
cudaError_t cudaFree(void *memory)
{
    return !memory || find_buffer((uintptr_t)memory, 0) ? cudaSuccess
                                                        : fail(cudaErrorInvalidValue, "cudaFree");
}

/* From the host before an operation; or on the device. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct gpu_buffer *buffer = find_buffer((uintptr_t)to, bytes);

    if (kind != cudaMemcpyHostToDevice)
        return cudaMemcpyAsync(to, from, bytes, kind, NULL);
    if (!buffer || gpu.operations) /* the recording has contents only before its first operation */
        return fail(cudaErrorInvalidValue, "cudaMemcpy");
    if (!buffer->content) {
        buffer->content = need(buffer->bytes, 1);
        memset(buffer->content, 0xff, buffer->bytes);
    }
    memcpy(buffer->content + ((uintptr_t)to - buffer->address), from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const uint64_t at[2] = {(uintptr_t)to, (uintptr_t)from};
    struct gpu_operation *copy;

    (void)stream;
    if ((kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) ||
        !find_buffer(at[0], bytes) || !find_buffer(at[1], bytes))
        return fail(cudaErrorInvalidValue, "cudaMemcpyAsync");
    copy = add_operation(GPU_COPY);
    copy->to = at[0];
    copy->from = at[1];
    copy->bytes = bytes;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    struct gpu_operation *set;

    (void)stream;
    if (!find_buffer((uintptr_t)to, bytes))
        return fail(cudaErrorInvalidValue, "cudaMemsetAsync");
    set = add_operation(GPU_MEMSET);
    set->to = (uintptr_t)to;
    set->value = value & 0xff;
    set->bytes = bytes;
    return cudaSuccess;
}

/*
 * cuTensorMapEncodeTiled of the driver. What the 128 bytes of a real map mean is not documented;
 * this one has, as little-endian numbers: 0 "mics"           4 u32 type (CUtensorMapDataType)    8
 * u32 rank, 1 to 5    12 u32 0 16 u64 address     24 u64 size[5], in elements         64 u64
 * stride[4], in bytes 96 u8 swizzle      97 u8 interleave    98 u8 fill      99 u8 0 100 u16 box[5]
 * 110 u16 step[5] (elementStrides)    120 u64 0 stride[i] is that of dimension i + 1; the first
 * dimension's elements are side by side. What lies beyond the rank is 0. The checks are those that
 * the driver's manual lists for this function.
 */
struct tensor_map {
    char magic[4];
    uint32_t type, rank, zero;
    uint64_t address, size[5], stride[4];
    uint8_t swizzle, interleave, fill, spare;
    uint16_t box[5], step[5];
    uint64_t end;
};
_Static_assert(sizeof(struct tensor_map) == sizeof(CUtensorMap), "a map has 128 bytes");

/* Bytes of an element; 0: not known here. */
static uint32_t element_bytes(CUtensorMapDataType type)
{
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
        return 4;
    default:
        return 0;
    }
}

/* Why a map is refused; NULL: it is not. */
static const char *wrong_map(const struct tensor_map *map, const cuuint64_t *stride,
                             const cuuint32_t *box, const cuuint32_t *step)
{
    static const unsigned span[] = {0, 32, 64, 128}; /* bytes of a row, by swizzle */
    const uint32_t bytes = element_bytes((CUtensorMapDataType)map->type);

    if (bytes == 0 || map->rank < 1 || map->rank > 5)
        return "type or rank";
    if (map->address % 16 != 0)
        return "address not aligned to 16 bytes";
    if (map->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || map->swizzle > 3)
        return "interleave or swizzle";
    for (uint32_t i = 0; i < map->rank; i++) {
        if (map->size[i] == 0 || map->size[i] > 1ull << 32)
            return "size";
        if (box[i] == 0 || box[i] > 256)
            return "box";
        if (step[i] == 0 || step[i] > 8)
            return "element strides";
        if (i > 0 && (stride[i - 1] % 16 != 0 || stride[i - 1] >= 1ull << 40))
            return "strides";
    }
    if (box[0] * bytes % 16 != 0)
        return "a box's rows are not of 16-byte pieces";
    if (map->swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && box[0] * bytes > span[map->swizzle])
        return "a box's rows are longer than the swizzle's";
    return find_buffer(map->address, bytes) ? NULL : "no such memory";
}

static CUresult encode_tiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank,
                             void *address, const cuuint64_t *size, const cuuint64_t *stride,
                             const cuuint32_t *box, const cuuint32_t *step,
                             CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    struct tensor_map map = {.magic = {'m', 'i', 'c', 's'},
                             .type = (uint32_t)type,
                             .rank = rank,
                             .address = (uintptr_t)address,
                             .swizzle = (uint8_t)swizzle,
                             .interleave = (uint8_t)interleave,
                             .fill = (uint8_t)fill};
    const char *wrong;

    (void)promotion;
    for (uint32_t i = 0; i < rank && i < 5; i++) {
        map.size[i] = size[i];
        map.box[i] = (uint16_t)box[i];
        map.step[i] = (uint16_t)step[i];
        if (i > 0)
            map.stride[i - 1] = stride[i - 1];
    }
    wrong = (uintptr_t)out % 64 != 0 ? "the map is not aligned to 64 bytes"
                                     : wrong_map(&map, stride, box, step);
    if (wrong) {
        fprintf(stderr, "record: cuTensorMapEncodeTiled: %s\n", wrong);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(out, &map, sizeof(map));
    return CUDA_SUCCESS;
}

static cudaError_t find_driver_function(const char *name, void **out,
                                        enum cudaDriverEntryPointQueryResult *result)
{
    CUresult (*function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                         const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                         CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                         CUtensorMapFloatOOBfill) = encode_tiled;

    if (strcmp(name, "cuTensorMapEncodeTiled") != 0) {
        *result = cudaDriverEntryPointSymbolNotFound;
        return fail(cudaErrorNotSupported, name);
    }
    memcpy(out, &function, sizeof(function));
    *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* CUDA 12.5 added the form with a version, and 13.0 removed the one without. */
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    (void)version, (void)flags;
    return find_driver_function(name, out, result);
}
#endif
#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result)
{
    (void)flags;
    return find_driver_function(name, out, result);
}
#endif
