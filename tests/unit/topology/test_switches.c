/* SPDX-License-Identifier: Apache-2.0 */
/* test_switches.c - topology.conf, and the order of hosts that it leads to. */
#include "tap.h"
#include "topology/switches.h"

#include <stdbool.h>
#include <stdlib.h>

static const char *chosen; /* topology of topology.yaml */

static struct mics_switches *parse(const char *text, struct mics_err *err)
{
    struct mics_switches *switches = NULL;

    *err = (struct mics_err){{0}};
    (void)mics_switches_parse(text, strlen(text), chosen, &switches, err);
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
    if (!switches)
        return "";
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

/* Leaves of 3, 3 and 2 nodes under a, one leaf of 4 under b: one group of 2 must span leaves, and
 * does so under a. */
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

/* Blocks are leaves; groups of neighbouring blocks are the switches above. */
static void blocks_are_leaves_of_a_tree_by_their_sizes(void)
{
    struct mics_switch_use use;
    const char *text = "BlockSizes=2,4\nBlockName=a Nodes=n[0-2]\nBlockName=b Nodes=n[3-4]\n"
                       "BlockName=c Nodes=n[5-7]\nBlockName=d Nodes=n[8-9]\n";

    CHECK_STR(order(text, "n[0-9]", 2, &use), "n0 n1 | n3 n4 | n5 n6 | n8 n9 | n2 n7");
    CHECK_INT(use.groups * 100 + use.one_leaf * 10 + use.most, 542);
    CHECK_STR(order(text, "n[0-4],n[8-9],n5", 4, &use), "n0 n1 n2 n3 | n8 n9 n5 n4");
    CHECK_STR(order("BlockName=a Nodes=n0\nBlockName=b Nodes=n1\nBlockName=c Nodes=n2\n"
                    "BlockName=d Nodes=n3\n",
                    "n[0-3]", 2, &use),
              "n0 n1 | n2 n3");
}

static void yaml_has_trees_and_blocks(void)
{
    static const struct {
        const char *text, *name, *hosts, *order;
    } cases[] = {
        {"---\n- topology: a\n  cluster_default: true\n  tree:\n    switches:\n"
         "      - switch: root\n        children: s[1-2]\n"
         "      - switch: s1\n        nodes: n[0,2]\n      - switch: s2\n        nodes: n[1,3]\n",
         NULL, "n[0-3]", "n0 n2 | n1 n3"},
        {"# sites\n[{topology: t, tree: {switches: [{switch: s, nodes: \"n[0-1]\"}]}}]", NULL,
         "n[0-1],m[0-1]", "n0 n1 | m0 m1"},
        {"- topology: flat1\n  flat: true\n- topology: b\n  cluster_default: Yes\n  block:\n"
         "    block_sizes: [2, 4]\n    blocks:\n    - {block: x, nodes: 'n[0,3]'}\n"
         "    - {block: y, nodes: 'n[1,2]'}\n    - block: spare\n      nodes:\n",
         NULL, "n[0-3]", "n0 n3 | n1 n2"},
        {"- topology: a\n  flat: {alpha_step_rank: true}\n- topology: b\n  flat: false\n  tree:\n"
         "    switches:\n    - switch: s\n      nodes: >\n        n3,\n        n2\n"
         "    - switch: u\n      nodes: n0 n1,\n        n[4-5]\n",
         "b", "n[0-3]", "n2 n3 | n0 n1"},
        {"- topology: r\n  ring:\n    rings: [{ring: a, nodes: n0}]\n- topology: t\n"
         "  cluster_default: on\n  tree: {switches: [{switch: s, nodes: 'n1,n0'}]}\n",
         NULL, "n[0-1]", "n0 n1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_switch_use use;

        chosen = cases[i].name;
        CHECK_STR(order(cases[i].text, cases[i].hosts, 2, &use), cases[i].order);
    }
    chosen = NULL;
}

static void yaml_is_refused_by_line(void)
{
#define TREE "- topology: t\n  tree:\n    switches:\n"
    static const struct {
        const char *text, *name, *message;
    } cases[] = {
        {"- topology: t\n  tree: [", NULL, "line 3: YAML: "},
        {"--- {topology: t}\n", NULL, "line 1: the file: expected a list, found a map"},
        {"---\n", NULL, "the file: expected a list"},
        {"--- []\n", NULL, "no topologies"},
        {TREE "    - switch: s\n      nodes: n0\n      speed: 1\n", NULL,
         "line 6: switch: unknown key 'speed'"},
        {TREE "    - switch: s\n      nodes: [n0, n1]\n", NULL,
         "line 5: nodes: expected a value, found a list"},
        {TREE "    - switch: s\n", NULL,
         "line 4: switch 's': expected either nodes or child switches"},
        {TREE "    - nodes: n0\n", NULL, "line 4: expected a switch's name of 1 to 63 bytes"},
        {TREE "    - switch: s\n      nodes: n[0\n", NULL, "line 4: switch 's': '[' without ']'"},
        {TREE "    - {switch: s, children: u}\n", NULL, "line 4: 's': nothing defines switch 'u'"},
        {TREE "    - {switch: s, nodes: a}\n    - {switch: s, nodes: b}\n", NULL,
         "line 5: 's': defined before: 's'"},
        {TREE "    - {switch: s, nodes: a, nodes: b}\n", NULL,
         "line 4: switch: 'nodes' is there twice"},
        {"- topology: t\n  tree: {}\n", NULL, "line 2: tree: 'switches' is missing"},
        {"- topology: t\n", NULL, "line 1: topology 't': expected one of tree, block, flat"},
        {"- tree: {switches: []}\n", NULL, "line 1: a topology without a name"},
        {"- topology: t\n  tree: {switches: []}\n", NULL, "no switches"},
        {"- topology: t\n  flat: true\n  block: {blocks: []}\n", NULL,
         "line 1: topology 't' is both block and flat"},
        {"- topology: t\n  flat: true\n", NULL, "line 1: topology 't' is flat, without switches"},
        {"- topology: t\n  torus3d: {toruses: []}\n", NULL, "topology 't' is torus3d"},
        {"- topology: t\n  flat: maybe\n", NULL,
         "line 2: flat: expected true or false, found 'maybe'"},
        {"- topology: t\n  flat: true\n", "u", "no topology 'u'"},
        {"- topology: t\n  block: {block_sizes: [4, 12], blocks: [{block: b, nodes: n}]}\n", NULL,
         "block size 12: expected a larger power of two times the first one"},
        {"- topology: t\n  block: {block_sizes: [x], blocks: []}\n", NULL,
         "line 2: block_sizes: expected up to 16 numbers of nodes"},
        {"- topology: t\n  flat: true\n--- []\n", NULL, "is flat"},
        {TREE "    - {switch: s, nodes: a}\n--- []\n", NULL, "line 5: a second document"},
        {"SwitchName=a Nodes=n\n", "b", "topology 'b' cannot be chosen"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_err err;

        chosen = cases[i].name;
        CHECK(parse(cases[i].text, &err) == NULL);
        CHECK(strstr(err.text, cases[i].message) != NULL);
        if (!strstr(err.text, cases[i].message))
            printf("# %zu: %s\n", i, err.text);
    }
    chosen = NULL;
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
        {"Nodes=n0\n", "line 1: expected SwitchName= or BlockName="},
        {"SwitchName=a\n", "line 1: switch 'a': expected either nodes or child switches"},
        {"SwitchName=a Nodes=n Switches=b\n", "expected either nodes or child switches"},
        {"SwitchName=a Nodes=n\nBlockName=b Nodes=m\n", "line 2: a block among switches"},
        {"BlockName=b Nodes=m\nSwitchName=a Nodes=n\n", "line 2: a switch among blocks"},
        {"BlockName=b Nodes=m\nBlockSizes=4,x\n", "line 2: BlockSizes: expected up to 16 numbers"},
        {"BlockName=b Nodes=m\nBlockSizes=4,6\n", "block size 6: expected a larger power of two"},
        {"SwitchName=a Nodes=n\nRingName=b Nodes=m\n", "line 2: 'RingName=b': expected SwitchName"},
        {"SwitchName=a Nodes=n\nSwitchName=a Nodes=m\n", "line 2: 'a': defined before: 'a'"},
        {"SwitchName=a Switches=b\n", "line 1: 'a': nothing defines switch 'b'"},
        {"SwitchName=a Nodes=n\nSwitchName=b Nodes=n\n", "line 2: 'b': listed before"},
        {"SwitchName=a Nodes=n,n\n", "listed before, here or under another switch: node 'n'"},
        {"SwitchName=a Switches=a\n", "line 1: 'a' contains itself"},
        {"SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "contains itself"},
        {"SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n",
         "line 3: 'c': another switch contains 'a'"},
        {"SwitchName=a Nodes=n[1\n", "line 1: switch 'a': '[' without ']'"},
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
    TAP_RUN(blocks_are_leaves_of_a_tree_by_their_sizes);
    struct mics_err err;
    if (!parse("- x", &err) && strstr(err.text, "without libyaml")) {
        printf("# without libyaml, YAML is not tested\n");
    } else {
        TAP_RUN(yaml_has_trees_and_blocks);
        TAP_RUN(yaml_is_refused_by_line);
    }
    TAP_RUN(switches_put_unknown_hosts_last);
    TAP_RUN(switches_accept_slurm_s_forms);
    TAP_RUN(switches_refuse_contradictions);
    return tap_done();
}
