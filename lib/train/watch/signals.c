/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/signals.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Lock-free, so a handler may touch them. */
static atomic_int want_save, want_stop, held, speaks;
static atomic_int grace_s = 60;
static char last_words[160];

static void on_save(int number)
{
    (void)number;
    want_save = 1;
}

static void on_stop(int number)
{
    if (want_stop) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    want_stop = 1;
    if (!held)
        alarm((unsigned)grace_s);
}

static void on_alarm(int number)
{
    (void)number;
    if (held)
        return;
    if (speaks && write(STDERR_FILENO, last_words, strlen(last_words)) < 0)
        _exit(1); /* nobody to tell */
    _exit(1);
}

enum mics_status mics_signals_install(const char *program, bool speaks_too, struct mics_err *err)
{
    static const struct {
        int number;
        void (*handler)(int);
    } table[] = {{SIGUSR1, on_save}, {SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGALRM, on_alarm}};

    want_save = want_stop = held = 0;
    speaks = speaks_too;
    snprintf(last_words, sizeof last_words,
             "%s: asked to stop, but the ranks could not agree in time: nothing saved\n", program);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sigaction action = {.sa_handler = table[i].handler, .sa_flags = SA_RESTART};

        sigfillset(&action.sa_mask);
        if (sigaction(table[i].number, &action, NULL) != 0)
            return mics_err_set_errno(err, "signal %d", table[i].number);
    }
    return MICS_OK;
}

unsigned mics_signals_wishes(void)
{
    return (want_save ? MICS_WISH_SAVE : 0) | (want_stop ? MICS_WISH_STOP : 0);
}

void mics_signals_saved(void)
{
    want_save = 0;
}

void mics_signals_set_grace(double seconds)
{
    grace_s = (int)fmax(1, fmin(ceil(seconds), 1e6));
}

void mics_signals_hold(void)
{
    held = 1;
    alarm(0);
}

void mics_signals_release(void)
{
    held = 0;
    if (want_stop)
        alarm((unsigned)grace_s);
}
