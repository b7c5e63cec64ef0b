/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/signals.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Lock-free, so that signal handlers may use them. */
static atomic_int save_requested, stop_requested, terminations, grace_held, reports_expiry;
static atomic_int grace_s = 60;
static char expiry_message[160];

static void on_save(int number)
{
    (void)number;
    save_requested = 1;
}

/* A launcher may pass on SIGTERM itself and be sent SIGUSR2 by another program, so SIGUSR2 never
 * counts as the second request. */
static void on_stop(int number)
{
    if (number != SIGUSR2 && terminations++ > 0) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    if (!grace_held && !stop_requested) /* the same request may come repeatedly */
        alarm((unsigned)grace_s);
    stop_requested = 1;
}

static void on_alarm(int number)
{
    (void)number;
    if (grace_held)
        return;
    if (reports_expiry && write(STDERR_FILENO, expiry_message, strlen(expiry_message)) < 0)
        _exit(1);
    _exit(1);
}

enum mics_status mics_signals_catch_save(struct mics_err *err)
{
    struct sigaction action = {.sa_handler = on_save, .sa_flags = SA_RESTART};

    sigfillset(&action.sa_mask);
    return sigaction(SIGUSR1, &action, NULL) == 0 ? MICS_OK
                                                  : mics_err_set_errno(err, "signal %d", SIGUSR1);
}

enum mics_status mics_signals_install(const char *program, bool reports, struct mics_err *err)
{
    static const struct {
        int number;
        void (*handler)(int);
    } table[] = {{SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGUSR2, on_stop}, {SIGALRM, on_alarm}};

    stop_requested = terminations = grace_held = 0;
    reports_expiry = reports;
    snprintf(expiry_message, sizeof expiry_message,
             "%s: asked to stop, but the ranks could not agree in time: nothing saved\n", program);
    if (mics_signals_catch_save(err) != MICS_OK)
        return MICS_ERR_IO;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sigaction action = {.sa_handler = table[i].handler, .sa_flags = SA_RESTART};

        sigfillset(&action.sa_mask);
        if (sigaction(table[i].number, &action, NULL) != 0)
            return mics_err_set_errno(err, "signal %d", table[i].number);
    }
    return MICS_OK;
}

bool mics_signals_terminated(void)
{
    return terminations > 0;
}

void mics_signals_request_stop(void)
{
    on_stop(SIGUSR2);
}

unsigned mics_signals_requests(void)
{
    return (save_requested ? MICS_REQUEST_SAVE : 0) | (stop_requested ? MICS_REQUEST_STOP : 0);
}

void mics_signals_clear_save(void)
{
    save_requested = 0;
}

void mics_signals_set_grace(double seconds)
{
    grace_s = (int)fmax(1, fmin(ceil(seconds), 1e6));
}

void mics_signals_hold_grace(void)
{
    grace_held = 1;
    alarm(0);
}

void mics_signals_resume_grace(void)
{
    grace_held = 0;
    if (stop_requested)
        alarm((unsigned)grace_s);
}
