/* SPDX-License-Identifier: Apache-2.0 */
/* test_startup.c - a start that does not get on is ended with what it is at; one that does is left alone. */
#include "base/clock.h"
#include "tap.h"
#include "train/watch/watchdog.h"

#include <stdatomic.h>
#include <stdbool.h>

struct scene {
    struct mics_startup *startup;
    atomic_int faults;
    struct mics_err err;
};

static void on_fault(void *context, const struct mics_err *err)
{
    struct scene *scene = context;

    scene->err = *err;
    scene->faults++;
}

static void begin(struct scene *scene, double timeout_s)
{
    *scene = (struct scene){0};
    CHECK_INT(mics_startup_begin(timeout_s, "joining", on_fault, scene, &scene->startup, NULL),
              MICS_OK);
}

/* Wait until there was a fault, for some seconds at most. */
static bool faults_within(struct scene *scene, double seconds)
{
    const double until = mics_now_s() + seconds;

    while (scene->faults == 0 && mics_now_s() < until)
        mics_sleep_s(0.01);
    return scene->faults > 0;
}

static void a_start_that_hangs_is_ended_with_what_it_is_at(void)
{
    struct scene scene;

    begin(&scene, 0.15);
    const double since_s = mics_now_s();
    CHECK(faults_within(&scene, 10));
    CHECK(mics_now_s() - since_s > 0.25);
    mics_startup_end(scene.startup);
    CHECK_INT(scene.faults, 1);
    CHECK_STR(scene.err.text, "no progress for 0.3 s before the first step: still joining");
}

static void a_start_that_gets_on_is_left_alone(void)
{
    struct scene scene;

    begin(&scene, 0.5);
    for (int i = 0; i < 10; i++) {
        mics_sleep_s(0.1);
        mics_startup_at(scene.startup, "getting on", 1);
    }
    CHECK(!faults_within(&scene, 0.1));
    mics_startup_end(scene.startup);
    CHECK_INT(scene.faults, 0);
}

static void what_may_take_long_is_waited_for_longer(void)
{
    struct scene scene;

    begin(&scene, 0.1);
    mics_startup_at(scene.startup, "reading", MICS_STARTUP_FOREVER);
    CHECK(!faults_within(&scene, 0.5));
    mics_startup_at(scene.startup, "loading", 7);
    CHECK(!faults_within(&scene, 0.4));
    CHECK(faults_within(&scene, 10));
    mics_startup_end(scene.startup);
    CHECK_STR(scene.err.text, "no progress for 0.7 s before the first step: still loading");
}

static void an_end_does_not_wait_for_the_time_out(void)
{
    struct scene scene;
    const double since_s = mics_now_s();

    begin(&scene, 1000);
    mics_startup_end(scene.startup);
    CHECK(mics_now_s() - since_s < 10);
    CHECK_INT(scene.faults, 0);
    mics_startup_at(NULL, "nothing", 1);
    mics_startup_end(NULL);
}

int main(void)
{
    TAP_RUN(a_start_that_hangs_is_ended_with_what_it_is_at);
    TAP_RUN(a_start_that_gets_on_is_left_alone);
    TAP_RUN(what_may_take_long_is_waited_for_longer);
    TAP_RUN(an_end_does_not_wait_for_the_time_out);
    return tap_done();
}
