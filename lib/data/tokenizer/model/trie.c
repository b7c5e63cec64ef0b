/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* In the order of bytes, of equal texts the highest id first. */
static int compare_texts(const void *a, const void *b)
{
    const struct mics_trie_text *x = a, *y = b;
    const uint32_t both = x->length < y->length ? x->length : y->length;
    const int order = memcmp(x->bytes, y->bytes, both);

    if (order != 0)
        return order;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->id > y->id ? -1 : x->id < y->id;
}

/* A node that has no children yet: the texts that go on from it, and where in them. */
struct open_node {
    size_t begin, end;
    uint32_t depth;
};

/* How many nodes texts that are sorted have, with the root. */
static size_t count_nodes(const struct mics_trie_text *texts, size_t count)
{
    size_t nodes = 1;

    for (size_t i = 0; i < count; i++) {
        uint32_t shared = 0;

        while (i > 0 && shared < texts[i].length && shared < texts[i - 1].length &&
               texts[i].bytes[shared] == texts[i - 1].bytes[shared])
            shared++;
        nodes += texts[i].length - shared;
    }
    return nodes;
}

/* Give a node its id and children, which are appended. Returns how many nodes there are now. */
static size_t expand(struct mics_trie *trie, const struct mics_trie_text *texts,
                     struct open_node *open, size_t at, size_t nodes)
{
    const uint32_t depth = open[at].depth;
    struct mics_trie_node *node = &trie->nodes[at];
    size_t i = open[at].begin;

    *node = (struct mics_trie_node){.children = (uint32_t)nodes, .id = MICS_NO_TOKEN};
    for (; i < open[at].end && texts[i].length == depth; i++)
        if (node->id == MICS_NO_TOKEN)
            node->id = texts[i].id;
    while (i < open[at].end) {
        const unsigned char byte = texts[i].bytes[depth];
        const size_t begin = i;

        while (i < open[at].end && texts[i].bytes[depth] == byte)
            i++;
        trie->bytes[nodes] = byte;
        open[nodes++] = (struct open_node){.begin = begin, .end = i, .depth = depth + 1};
        node->count++;
    }
    return nodes;
}

enum mics_status mics_trie_init(struct mics_trie *trie, struct mics_trie_text *texts, size_t count)
{
    struct open_node *open;
    size_t nodes, made = 1;

    if (count > 0)
        qsort(texts, count, sizeof *texts, compare_texts);
    nodes = count_nodes(texts, count);
    if (nodes >= UINT32_MAX)
        return MICS_ERR_NOMEM;
    trie->nodes = malloc(nodes * sizeof *trie->nodes);
    trie->bytes = malloc(nodes);
    open = malloc(nodes * sizeof *open);
    if (!trie->nodes || !trie->bytes || !open) {
        free(open);
        mics_trie_fini(trie);
        return MICS_ERR_NOMEM;
    }
    trie->bytes[0] = 0;
    open[0] = (struct open_node){.end = count};
    for (size_t at = 0; at < made; at++)
        made = expand(trie, texts, open, at, made);
    free(open);
    return MICS_OK;
}

void mics_trie_fini(struct mics_trie *trie)
{
    free(trie->nodes);
    free(trie->bytes);
    *trie = (struct mics_trie){.nodes = NULL};
}
