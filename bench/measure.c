/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - run a command; append "SECONDS PEAK-RESIDENT-BYTES" of it to a file.
 *
 * usage: measure FILE COMMAND [ARGUMENT...]      exits as the command does
 */
#include "base/clock.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage usage;
    int status = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: measure FILE COMMAND [ARGUMENT...]\n");
        return 2;
    }
    const double start = mics_now_s();
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child) {
        perror("measure");
        return 1;
    }
    FILE *out = fopen(argv[1], "ae");
    if (!out || fprintf(out, "%.3f %lld\n", mics_now_s() - start, usage.ru_maxrss * 1024LL) < 0 ||
        fclose(out) != 0) {
        perror(argv[1]);
        return 1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
