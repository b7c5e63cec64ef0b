/* SPDX-License-Identifier: Apache-2.0 */
#include "data/guard.h"

#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static const struct mics_corpus *guarded;
static const char *speaker;

static struct iovec text(const char *words)
{
    return (struct iovec){.iov_base = (void *)words, .iov_len = strlen(words)};
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const char *path = mics_corpus_at(guarded, info->si_addr);

    (void)context;
    if (path) {
        struct iovec line[] = {text(speaker), text(": data: '"), text(path),
                               text("' was cut short while it was in use\n")};
        if (writev(STDERR_FILENO, line, sizeof line / sizeof *line) < 0)
            _exit(1); /* nobody to tell */
        _exit(1);
    }
    signal(number, SIG_DFL); /* the access is made again, and ends the process */
}

enum mics_status mics_data_guard(const char *program, const struct mics_corpus *corpus,
                                 struct mics_err *err)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

    guarded = corpus;
    speaker = program;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) != 0)
        return mics_err_set_errno(err, "signal %d", SIGBUS);
    return MICS_OK;
}
