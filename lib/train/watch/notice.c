/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/notice.h"

#include "base/clock.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_S 0.05

extern char **environ;

struct mics_notice {
    struct mics_notice_options options;
    struct mics_background_task task;
    atomic_bool stopping;
};

/* One run of the command. */
struct answer {
    int status; /* as of waitpid(); meaningless if `late` */
    bool late;
    char text[200]; /* the first line of its standard output */
};

/* Start the command in a process group of its own, with the default signals. *output: where its
 * standard output is read. */
static int spawn(const char *command, pid_t *pid, int *output)
{
    char *const argv[] = {"sh", "-c", (char *)command, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int pipe_ends[2], code;

    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
        return errno;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    code = posix_spawnp(pid, "sh", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);
    *output = pipe_ends[0];
    if (code != 0)
        close(pipe_ends[0]);
    return code;
}

/* Read what there is, without waiting for more. */
static void read_output(int fd, struct answer *answer, size_t *length)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char rest[512] = "";

    while (poll(&ready, 1, 0) > 0) {
        const size_t room = sizeof answer->text - 1 - *length;
        const ssize_t got =
            read(fd, room ? answer->text + *length : rest, room ? room : sizeof rest);

        if (got <= 0)
            return;
        if (room)
            *length += (size_t)got;
    }
}

/* Wait for the process, at most limit_s. */
static void collect(pid_t pid, int output, double limit_s, struct answer *answer)
{
    const double until = mics_now_s() + limit_s;
    size_t length = 0;
    pid_t ended;

    while ((ended = waitpid(pid, &answer->status, WNOHANG)) == 0 && mics_now_s() < until) {
        read_output(output, answer, &length);
        mics_sleep_s(POLL_S);
    }
    answer->late = ended != pid;
    if (answer->late) {
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    read_output(output, answer, &length);
    answer->text[strcspn(answer->text, "\n")] = '\0';
}

/* Report the answer; true: it is a notice. *silent: a problem has been reported already. */
static bool report(const struct mics_notice_options *options, const struct answer *answer,
                   bool *silent)
{
    const bool exited = !answer->late && WIFEXITED(answer->status);
    const int code = exited ? WEXITSTATUS(answer->status) : -1;
    char text[300];

    if (code == 0) {
        options->on_notice(options->context, answer->text);
        return true;
    }
    if (code == 1) {
        *silent = false;
        return false;
    }
    if (answer->late)
        snprintf(text, sizeof text, "no answer within %g s", options->limit_s);
    else if (exited)
        snprintf(text, sizeof text, "exit status %d%s%s", code, answer->text[0] ? ": " : "",
                 answer->text);
    else
        snprintf(text, sizeof text, "killed by signal %d", WTERMSIG(answer->status));
    if (!*silent)
        options->on_problem(options->context, text);
    *silent = true;
    return false;
}

static enum mics_status ask(void *context, struct mics_err *err)
{
    struct mics_notice *notice = context;
    const struct mics_notice_options *options = &notice->options;
    bool silent = false, found = false;

    (void)err;
    while (!found && !notice->stopping) {
        const double next = mics_now_s() + options->every_s;
        struct answer answer = {0};
        pid_t pid;
        int output = -1;
        const int failure = spawn(options->command, &pid, &output);

        if (failure == 0) {
            collect(pid, output, options->limit_s, &answer);
            close(output);
            found = report(options, &answer, &silent);
        } else if (!silent) {
            options->on_problem(options->context, strerror(failure));
            silent = true;
        }
        while (!found && !notice->stopping && mics_now_s() < next)
            mics_sleep_s(POLL_S);
    }
    return MICS_OK;
}

enum mics_status mics_notice_start(const struct mics_notice_options *options,
                                   struct mics_notice **out, struct mics_err *err)
{
    struct mics_notice *notice = calloc(1, sizeof *notice);

    if (!notice)
        return mics_err_nomem(err);
    notice->options = *options;
    mics_background_task_start(&notice->task, ask, notice);
    *out = notice;
    return MICS_OK;
}

void mics_notice_stop(struct mics_notice *notice)
{
    if (!notice)
        return;
    notice->stopping = true;
    mics_background_task_wait(&notice->task, NULL);
    free(notice);
}
