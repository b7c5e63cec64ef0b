/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tap.h - minimal support for unit tests that print the Test Anything Protocol.
 *
 * Each test is a function named as a sentence; TAP_RUN calls it and prints its line. A failed check
 * prints the value that it found, and the test continues.
 */
#ifndef MICS_TESTS_TAP_H
#define MICS_TESTS_TAP_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__
/* oneDNN is not compiled for ThreadSanitizer, which sees how its cache of primitives compares keys
 * but not what it waits for before. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libdnnl.so\n";
}
#endif

/* In builds with a sanitizer, which take ten times as long, tests may run fewer cases: other builds
 * check the numbers, all sizes and orders, and that mistakes made on purpose are detected. */
#if defined(__SANITIZE_THREAD__)
enum { TAP_TSAN = 1, TAP_ASAN = 0 };
#elif defined(__SANITIZE_ADDRESS__)
enum { TAP_TSAN = 0, TAP_ASAN = 1 };
#else
enum { TAP_TSAN = 0, TAP_ASAN = 0 };
#endif
enum { TAP_SANITIZED = TAP_TSAN + TAP_ASAN };

static int tap_count, tap_failed, tap_bad;
static unsigned tap_visits;
static const char *tap_skip_reason;

/* Whether a case of many whose code is the same is left out: with a sanitizer all but one of
 * `every`. Where that does not divide the cases of an inner loop, each case of the outer loop is
 * run in its turn, with another one of the inner loop. */
static inline int tap_leaves_out(unsigned every)
{
    return TAP_SANITIZED && tap_visits++ % every != 0;
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            tap_bad++;                                                                             \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond);                                    \
        }                                                                                          \
    } while (0)

#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long tap_got = (long long)(got), tap_want = (long long)(want);                        \
        if (tap_got != tap_want) {                                                                 \
            tap_bad++;                                                                             \
            printf("# %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, tap_got,           \
                   tap_want);                                                                      \
        }                                                                                          \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *tap_got = (got), *tap_want = (want);                                           \
        if (strcmp(tap_got, tap_want) != 0) {                                                      \
            tap_bad++;                                                                             \
            printf("# %s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #got, tap_got,       \
                   tap_want);                                                                      \
        }                                                                                          \
    } while (0)

#define CHECK_NEAR(got, want, tolerance)                                                           \
    do {                                                                                           \
        double tap_got = (got), tap_want = (want);                                                 \
        if (!(fabs(tap_got - tap_want) <= (tolerance))) {                                          \
            tap_bad++;                                                                             \
            printf("# %s:%d: %s is %.9g, not %.9g\n", __FILE__, __LINE__, #got, tap_got,           \
                   tap_want);                                                                      \
        }                                                                                          \
    } while (0)

/* Skip the rest of the test that is running, with a reason. */
#define TAP_SKIP(reason)                                                                           \
    do {                                                                                           \
        tap_skip_reason = (reason);                                                                \
        return;                                                                                    \
    } while (0)

/* In builds with a sanitizer, skip a test that mistakes made on purpose are detected. */
#define TAP_SKIP_MISTAKES()                                                                        \
    do {                                                                                           \
        if (TAP_SANITIZED)                                                                         \
            TAP_SKIP("other builds detect mistakes made on purpose");                              \
    } while (0)

static inline void tap_run(void (*test)(void), const char *name)
{
    tap_bad = 0;
    tap_skip_reason = NULL;
    test();
    tap_count++;
    tap_failed += tap_bad != 0;
    printf("%s %d - ", tap_bad ? "not ok" : "ok", tap_count);
    for (; *name; name++)
        putchar(*name == '_' ? ' ' : *name);
    if (tap_skip_reason)
        printf(" # SKIP %s", tap_skip_reason);
    putchar('\n');
    fflush(stdout);
}

#define TAP_RUN(test) tap_run(test, #test)

static inline int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

#endif
