/* SPDX-License-Identifier: Apache-2.0 */
/* test_switches.c - topology.conf, and the order of hosts that it leads to. */
#include "tap.h"
#include "topology/switches.h"

#include <stdbool.h>
#include <stdlib.h>

static struct mics_switches *parse(const char *text, struct mics_err *err)
{
    struct mics_switches *switches = NULL;

    *err = (struct mics_err){{0}};
    (void)mics_switches_parse(text, strlen(text), &switches, err);
    return switches;
}

/* The hosts in groups of q: "a b | c d". */
static const char *order(const char *text, const char *hosts, uint32_t q,
                         struct mics_switch_use *use)
{
    static char joined[1000];
    struct mics_err err;
    struct mics_switches *switches = parse(text, &err);
    struct mics_host_list list = {0};
    uint32_t indices[64];
    size_t used = 0;

    CHECK_STR(err.text, "");
    CHECK_INT(mics_host_list_append(&list, hosts, strlen(hosts), NULL), MICS_OK);
    CHECK_INT(mics_switches_order(switches, &list, q, indices, use, NULL), MICS_OK);
    for (uint32_t i = 0; i < list.count; i++)
        used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s",
                                 i == 0       ? ""
                                 : i % q == 0 ? " | "
                                              : " ",
                                 list.names[indices[i]]);
    mics_host_list_fini(&list);
    mics_switches_free(switches);
    return joined;
}

static void switches_keep_each_group_under_one_leaf(void)
{
    struct mics_switch_use use;
    const char *text = "SwitchName=s0 Nodes=n[0,2,4,6]\nSwitchName=s1 Nodes=n[1,3,5,7]\n"
                       "SwitchName=top Switches=s[0-1]\n";

    CHECK_STR(order(text, "n[0-7]", 4, &use), "n0 n2 n4 n6 | n1 n3 n5 n7");
    CHECK_INT(use.groups * 100 + use.one_leaf * 10 + use.most, 221);
    CHECK_STR(order(text, "n[0-7]", 2, &use), "n0 n2 | n4 n6 | n1 n3 | n5 n7");
    CHECK_STR(order(text, "n[0-7]", 1, &use), "n0 | n2 | n4 | n6 | n1 | n3 | n5 | n7");
    CHECK_STR(order(text, "n[0-7]", 8, &use), "n0 n2 n4 n6 n1 n3 n5 n7");
    CHECK_INT(use.groups * 100 + use.one_leaf * 10 + use.most, 102);
}

/* Leaves of 3, 3 and 2 nodes under a, leaves of 4 under b: one group of 2 must span leaves, and does
 * so under a. */
static void switches_combine_rests_under_the_lowest_switch(void)
{
    struct mics_switch_use use;
    const char *text = "SwitchName=top Switches=a,b\nSwitchName=a Switches=a[0-2]\n"
                       "SwitchName=b Switches=b0\nSwitchName=a0 Nodes=n[0-2]\n"
                       "SwitchName=a1 Nodes=n[3-5]\nSwitchName=a2 Nodes=n[6-7]\n"
                       "SwitchName=b0 Nodes=m[0-3]\n";

    CHECK_STR(order(text, "n[0-7],m[0-3]", 2, &use),
              "n0 n1 | n3 n4 | n6 n7 | m0 m1 | m2 m3 | n2 n5");
    CHECK_INT(use.groups * 100 + use.one_leaf * 10 + use.most, 652);
    CHECK_INT(use.unknown, 0);
    CHECK_STR(order(text, "n[0-7],m[0-3]", 4, &use), "m0 m1 m2 m3 | n0 n1 n2 n3 | n4 n5 n6 n7");
    CHECK_INT(use.most, 2);
}

static void switches_put_unknown_hosts_last(void)
{
    struct mics_switch_use use;

    CHECK_STR(order("SwitchName=s Nodes=n[0-1]\n", "x,n1,y,n0", 2, &use), "n1 n0 | x y");
    CHECK_INT(use.unknown, 2);
    CHECK_INT(use.one_leaf, 1);
}

static void switches_accept_slurm_s_forms(void)
{
    struct mics_switch_use use;

    CHECK_STR(order("# comment\n\n  switchname=s0 NODES=n1,n0 LinkSpeed=100 # end\r\n"
                    "SwitchName=s1 \\\n Nodes=n2\n",
                    "n[0-2]", 1, &use),
              "n0 | n1 | n2");
}

static void switches_refuse_contradictions(void)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "no switches"},
        {"Nodes=n0\n", "line 1: expected SwitchName="},
        {"SwitchName=a\n", "line 1: switch 'a': expected either Nodes or Switches"},
        {"SwitchName=a Nodes=n Switches=b\n", "expected either Nodes or Switches"},
        {"SwitchName=a Nodes=n\nBlockName=b Nodes=m\n",
         "line 2: 'BlockName=b': expected SwitchName"},
        {"SwitchName=a Nodes=n\nSwitchName=a Nodes=m\n",
         "line 2: switch 'a': a line before defines"},
        {"SwitchName=a Switches=b\n", "line 1: switch 'a': no line defines switch 'b'"},
        {"SwitchName=a Nodes=n\nSwitchName=b Nodes=n\n", "line 2: switch 'b': listed before"},
        {"SwitchName=a Nodes=n,n\n", "listed before, here or under another switch: node 'n'"},
        {"SwitchName=a Switches=a\n", "line 1: switch 'a' contains itself"},
        {"SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "contains itself"},
        {"SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n",
         "line 3: switch 'c': another switch contains 'a'"},
        {"SwitchName=a Nodes=n[1\n", "line 1: '[' without ']'"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_err err;

        CHECK(parse(cases[i].text, &err) == NULL);
        CHECK(strstr(err.text, cases[i].message) != NULL);
        if (!strstr(err.text, cases[i].message))
            printf("# %s\n", err.text);
    }
}

int main(void)
{
    TAP_RUN(switches_keep_each_group_under_one_leaf);
    TAP_RUN(switches_combine_rests_under_the_lowest_switch);
    TAP_RUN(switches_put_unknown_hosts_last);
    TAP_RUN(switches_accept_slurm_s_forms);
    TAP_RUN(switches_refuse_contradictions);
    return tap_done();
}
