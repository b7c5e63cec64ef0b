// SPDX-License-Identifier: Apache-2.0
// late_fence.c - preloaded into ranks that srun starts: those of the first node hear half a second
// late that their first PMIx fence has ended, as on a node that is busy.
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void ended_fn(int status, void *context);
typedef int fence_fn(const void *procs, size_t nprocs, const void *info, size_t ninfo,
                     ended_fn *ended, void *context);

fence_fn PMIx_Fence_nb;

static struct {
    ended_fn *ended;
    void *context;
    int status;
} first;

static void *end_first(void *unused)
{
    usleep(500000);
    first.ended(first.status, first.context);
    return unused;
}

static void end_later(int status, void *context)
{
    pthread_t thread;

    first.status = status;
    first.context = context;
    pthread_create(&thread, NULL, end_first, NULL);
    pthread_detach(thread);
}

int PMIx_Fence_nb(const void *procs, size_t nprocs, const void *info, size_t ninfo, ended_fn *ended,
                  void *context)
{
    fence_fn *real = (fence_fn *)dlsym(RTLD_NEXT, "PMIx_Fence_nb");
    const char *node = getenv("SLURM_NODEID");

    if (!first.ended && node && strcmp(node, "0") == 0) {
        first.ended = ended;
        ended = end_later;
    }
    return real(procs, nprocs, info, ninfo, ended, context);
}
