/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_list.c - Slurm's expressions, also malformed ones. */
#include "tap.h"
#include "topology/host_list.h"

#include <stdlib.h>

/* The names of an expression, joined by blanks; or the error. */
static const char *expand(const char *text)
{
    static char joined[4096];
    struct mics_host_list list = {0};
    struct mics_err err = {{0}};
    size_t used = 0;

    joined[0] = '\0';
    if (mics_host_list_append(&list, text, strlen(text), &err) != MICS_OK)
        snprintf(joined, sizeof joined, "%s", err.text);
    else
        for (uint32_t i = 0; i < list.count && used < sizeof joined; i++)
            used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", i ? " " : "",
                                     list.names[i]);
    mics_host_list_fini(&list);
    return joined;
}

static void host_list_expands_ranges_with_their_padding(void)
{
    CHECK_STR(expand("login"), "login");
    CHECK_STR(expand("a,b.c-d_e"), "a b.c-d_e");
    CHECK_STR(expand("node[01-03,20]"), "node01 node02 node03 node20");
    CHECK_STR(expand("n[8-11]"), "n8 n9 n10 n11");
    CHECK_STR(expand("n[008-010]x,y"), "n008x n009x n010x y");
    CHECK_STR(expand("r[0-1]g[0-1]"), "r0g0 r0g1 r1g0 r1g1");
}

static void host_list_refuses_what_slurm_would(void)
{
    CHECK_STR(expand(""), "an empty name");
    CHECK_STR(expand("a,,b"), "an empty name");
    CHECK_STR(expand("a,"), "an empty name");
    CHECK_STR(expand("n[1-"), "'[' without ']'");
    CHECK_STR(expand("n]"), "']' in the name of a host");
    CHECK_STR(expand("a b"), "' ' in the name of a host");
    CHECK_STR(expand("a\033"), "byte 0x1b in the name of a host");
    CHECK(strstr(expand("n[]"), "expected numbers and ranges"));
    CHECK(strstr(expand("n[3-1]"), "expected numbers and ranges"));
    CHECK(strstr(expand("n[1,]"), "expected numbers and ranges"));
    CHECK(strstr(expand("n[-1]"), "expected numbers and ranges"));
    CHECK(strstr(expand("n[a-b]"), "expected numbers and ranges"));
    CHECK(strstr(expand("n[1-9999999999]"), "expected numbers and ranges"));
}

static void host_list_is_limited_in_names_and_hosts(void)
{
    char name[200];

    memset(name, 'a', 64);
    name[64] = '\0';
    CHECK_STR(expand(name), "a name is longer than 63 bytes");
    strcpy(name + 62, "[10-11]");
    CHECK_STR(expand(name), "a name is longer than 63 bytes");
    CHECK_STR(expand("n[0-999999999]"), "more than 65536 hosts");
    CHECK_STR(expand("a[0-999]b[0-999]c[0-999]"), "more than 65536 hosts");
}

int main(void)
{
    TAP_RUN(host_list_expands_ranges_with_their_padding);
    TAP_RUN(host_list_refuses_what_slurm_would);
    TAP_RUN(host_list_is_limited_in_names_and_hosts);
    return tap_done();
}
