/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c - how fast several processes copy memory at once.
 *
 * usage: copies PROCESSES BYTES      prints the seconds of one memcpy of BYTES in each process: the
 *                                    median over rounds of the slowest
 */
#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 15, PROCESSES_MAX = 64 };

struct shared {
    pthread_barrier_t barrier;
    double seconds[ROUNDS][PROCESSES_MAX];
};

/* Ends the process if there is no memory for it: the parent ends the others. */
static void copy(struct shared *shared, int self, size_t bytes)
{
    char *from = malloc(bytes), *to = malloc(bytes);

    if (!from || !to)
        _exit(1);
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&shared->barrier);
        const double begin = mics_now_s();
        memcpy(to, from, bytes);
        shared->seconds[round][self] = mics_now_s() - begin;
        from[round] = to[bytes - 1]; /* so that no copy is left out */
    }
    free(from);
    free(to);
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median_of_slowest(const struct shared *shared, int processes)
{
    double slowest[ROUNDS] = {0};

    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < processes; i++)
            if (shared->seconds[round][i] > slowest[round])
                slowest[round] = shared->seconds[round][i];
    qsort(slowest, ROUNDS, sizeof *slowest, compare);
    return slowest[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    const int processes = argc == 3 ? atoi(argv[1]) : 0;
    const size_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    pthread_barrierattr_t across;

    if (processes < 1 || processes > PROCESSES_MAX || bytes < ROUNDS) {
        fprintf(stderr, "usage: copies PROCESSES BYTES\n");
        return 2;
    }
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("copies");
        return 1;
    }
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &across, (unsigned)processes);

    pid_t children[PROCESSES_MAX];
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            copy(shared, i, bytes);
            _exit(0);
        }
    }
    for (int i = 0; i < processes; i++) {
        int status = 0;

        if (children[i] < 0 || waitpid(-1, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "copies: a process failed\n");
            for (int j = 0; j < processes; j++)
                if (children[j] > 0)
                    kill(children[j], SIGTERM);
            return 1;
        }
    }
    printf("%.9f\n", median_of_slowest(shared, processes));
    return 0;
}
