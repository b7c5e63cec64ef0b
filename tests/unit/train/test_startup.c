/* SPDX-License-Identifier: Apache-2.0 */
/* test_startup.c - a start that hangs is ended with the name of its phase; one that progresses is
 * not. */
#include "base/clock.h"
#include "tap.h"
#include "train/watch/startup_watchdog.h"

#include <stdatomic.h>
#include <stdbool.h>

struct fixture {
    struct mics_startup_watchdog *startup;
    atomic_int faults;
    struct mics_err err;
};

static void on_fault(void *context, const struct mics_err *err)
{
    struct fixture *fixture = context;

    fixture->err = *err;
    fixture->faults++;
}

static void begin(struct fixture *fixture, double timeout_s)
{
    *fixture = (struct fixture){0};
    CHECK_INT(mics_startup_watchdog_start(timeout_s, "joining", on_fault, fixture,
                                          &fixture->startup, NULL),
              MICS_OK);
}

/* Wait until there was a fault, for some seconds at most. */
static bool faults_within(struct fixture *fixture, double seconds)
{
    const double until = mics_now_s() + seconds;

    while (fixture->faults == 0 && mics_now_s() < until)
        mics_sleep_s(0.01);
    return fixture->faults > 0;
}

static void a_start_that_hangs_is_ended_with_its_phase(void)
{
    struct fixture fixture;

    begin(&fixture, 0.15);
    const double since_s = mics_now_s();
    CHECK(faults_within(&fixture, 10));
    CHECK(mics_now_s() - since_s > 0.25);
    mics_startup_watchdog_stop(fixture.startup);
    CHECK_INT(fixture.faults, 1);
    CHECK_STR(fixture.err.text, "no progress for 0.3 s before the first step: still joining");
}

static void a_start_that_progresses_is_not_ended(void)
{
    struct fixture fixture;

    begin(&fixture, 0.5);
    for (int i = 0; i < 10; i++) {
        mics_sleep_s(0.1);
        mics_startup_watchdog_set_phase(fixture.startup, "progressing", 1);
    }
    CHECK(!faults_within(&fixture, 0.1));
    mics_startup_watchdog_stop(fixture.startup);
    CHECK_INT(fixture.faults, 0);
}

static void a_phase_may_have_a_longer_limit(void)
{
    struct fixture fixture;

    begin(&fixture, 0.1);
    mics_startup_watchdog_set_phase(fixture.startup, "reading", MICS_STARTUP_LIMIT_NONE);
    CHECK(!faults_within(&fixture, 0.5));
    mics_startup_watchdog_set_phase(fixture.startup, "loading", 7);
    CHECK(!faults_within(&fixture, 0.4));
    CHECK(faults_within(&fixture, 10));
    mics_startup_watchdog_stop(fixture.startup);
    CHECK_STR(fixture.err.text, "no progress for 0.7 s before the first step: still loading");
}

static void stopping_does_not_wait_for_the_time_out(void)
{
    struct fixture fixture;
    const double since_s = mics_now_s();

    begin(&fixture, 1000);
    mics_startup_watchdog_stop(fixture.startup);
    CHECK(mics_now_s() - since_s < 10);
    CHECK_INT(fixture.faults, 0);
    mics_startup_watchdog_set_phase(NULL, "nothing", 1);
    mics_startup_watchdog_stop(NULL);
}

int main(void)
{
    TAP_RUN(a_start_that_hangs_is_ended_with_its_phase);
    TAP_RUN(a_start_that_progresses_is_not_ended);
    TAP_RUN(a_phase_may_have_a_longer_limit);
    TAP_RUN(stopping_does_not_wait_for_the_time_out);
    return tap_done();
}
