/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_library.cu - where cuDNN is looked for, and its functions. */
#include "cuda/cudnn_library.cuh"

#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folder of the library whose headers this was built with. */
#ifndef MICS_CUDNN_FOLDER
#define MICS_CUDNN_FOLDER ""
#endif

#define LIBRARY "libcudnn.so.9"

#ifdef MICS_EMULATED

static void *open_file(const char *path)
{
    return emu_cudnn_open(path);
}

static void *find_function(void *handle, const char *name)
{
    return emu_cudnn_function(handle, name);
}

#else

static void *open_file(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *find_function(void *handle, const char *name)
{
    return dlsym(handle, name);
}

#endif

static void *open_in(const char *folder, const char *below)
{
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof(path), "%s%s/" LIBRARY, folder, below);

    return length > 0 && (size_t)length < sizeof(path) ? open_file(path) : NULL;
}

/* CUDA's own folder, or pip's nvidia/cu13/lib and nvidia/cublas/lib, beside which nvidia/cudnn/lib is. */
static void *open_beside_cublas(void)
{
    char folder[PATH_MAX];
    Dl_info info;
    char *slash;
    void *handle;

    if (!dladdr(reinterpret_cast<void *>(cublasLtCreate), &info) || !info.dli_fname)
        return NULL;
    snprintf(folder, sizeof(folder), "%s", info.dli_fname);
    slash = strrchr(folder, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    handle = open_in(folder, "");
    return handle ? handle : open_in(folder, "/../../cudnn/lib");
}

static void *open_somewhere(void)
{
    void *handle = open_file(LIBRARY);

    if (!handle && MICS_CUDNN_FOLDER[0])
        handle = open_in(MICS_CUDNN_FOLDER, "");
    return handle ? handle : open_beside_cublas();
}

struct function {
    const char *name;
    void *at; /* where its address goes: a pointer to a function */
};

static bool find_functions(struct mics_cudnn_library *to, void *handle,
                           char why[MICS_CUDNN_WHY_BYTES])
{
    const struct function functions[] = {
        {"cudnnGetVersion", &to->get_version},
        {"cudnnGetErrorString", &to->get_error_string},
        {"cudnnGetLastErrorString", &to->get_last_error_string},
        {"cudnnCreate", &to->create},
        {"cudnnDestroy", &to->destroy},
        {"cudnnSetStream", &to->set_stream},
        {"cudnnBackendCreateDescriptor", &to->create_descriptor},
        {"cudnnBackendDestroyDescriptor", &to->destroy_descriptor},
        {"cudnnBackendFinalize", &to->finalize},
        {"cudnnBackendSetAttribute", &to->set_attribute},
        {"cudnnBackendGetAttribute", &to->get_attribute},
        {"cudnnBackendExecute", &to->execute},
    };

    for (const struct function &one : functions) {
        void *const address = find_function(handle, one.name);

        if (!address) {
            snprintf(why, MICS_CUDNN_WHY_BYTES, "%s has no %s", LIBRARY, one.name);
            return false;
        }
        memcpy(one.at, &address, sizeof(address));
    }
    return true;
}

/* 9.10.0 and 9.10.1 have known bugs in attention; older ones want another mask and zeroed sums. */
static bool is_new_enough(size_t version, char why[MICS_CUDNN_WHY_BYTES])
{
    if (version >= MICS_CUDNN_VERSION_MIN)
        return true;
    snprintf(why, MICS_CUDNN_WHY_BYTES,
             "cuDNN %zu.%zu.%zu is too old: 9.10.2 is the first to be used", version / 10000,
             version / 100 % 100, version % 100);
    return false;
}

bool mics_cudnn_library_open(struct mics_cudnn_library *out, char why[MICS_CUDNN_WHY_BYTES])
{
    const char *named = getenv("MICS_CUDNN");
    const bool is_named = named && named[0];
    void *handle;

    if (is_named && strcmp(named, "0") == 0) {
        snprintf(why, MICS_CUDNN_WHY_BYTES, "MICS_CUDNN=0 leaves cuDNN out");
        return false;
    }
    handle = is_named ? open_file(named) : open_somewhere();
    if (!handle) {
        snprintf(why, MICS_CUDNN_WHY_BYTES, "there is no %s that can be opened",
                 is_named ? named : LIBRARY);
        return false;
    }
    if (!find_functions(out, handle, why))
        return false;
    out->version = out->get_version();
    return is_new_enough(out->version, why);
}

void mics_cudnn_explain(const struct mics_cudnn_library *library, cudnnStatus_t status,
                        char why[MICS_CUDNN_WHY_BYTES])
{
    char last[1024] = "";
    const char *reason;

    library->get_last_error_string(last, sizeof(last));
    last[sizeof(last) - 1] = 0;
    reason = strstr(last, "Reason: ");
    reason = reason ? reason + strlen("Reason: ") : last;
    snprintf(why, MICS_CUDNN_WHY_BYTES, "%s%s%.*s", library->get_error_string(status),
             reason[0] ? ": " : "", (int)strcspn(reason, "\n"), reason);
}
