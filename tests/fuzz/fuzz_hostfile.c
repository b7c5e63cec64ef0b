/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hostfile.c - libFuzzer target for host files.
 *
 * What is accepted can be handed to ssh and to mpirun: no name begins with a dash, and the printed
 * file is read as the same hosts.
 *
 * sources: lib/base lib/topology/hostfile.c lib/topology/host_list.c
 */
#include "topology/hostfile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_hostfile file = {0}, again = {0};
    struct mics_err err = {.text = ""};
    char *text = NULL;
    size_t length = 0;
    FILE *out;

    if (mics_hostfile_parse((const char *)data, size, &file, &err) != MICS_OK) {
        must(file.hosts == NULL && err.text[0] != '\0');
        return 0;
    }
    out = open_memstream(&text, &length);
    mics_hostfile_print(out, &file);
    fclose(out);
    must(file.count > 0 && mics_hostfile_parse(text, length, &again, &err) == MICS_OK);
    must(again.count == file.count);
    for (uint32_t i = 0; i < file.count; i++) {
        const struct mics_hostfile_host *host = &file.hosts[i], *same = &again.hosts[i];

        must(strspn(host->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.:") == strlen(host->name));
        must(host->name[0] != '\0' && host->name[0] != '-' && host->user[0] != '-');
        must(strcmp(host->name, same->name) == 0 && strcmp(host->user, same->user) == 0);
        must(host->slots == same->slots && host->port == same->port);
    }
    mics_hostfile_fini(&file);
    mics_hostfile_fini(&again);
    free(text);
    return 0;
}
