/* SPDX-License-Identifier: Apache-2.0 */
/*
 * temporaries.c - a list that a signal handler may walk at any moment.
 *
 * Entries are pushed at the front and never leave, only their paths come and go, so a walk is always over
 * a whole list. Whoever exchanges a path for NULL owns it: the handler, which removes the file and lets
 * the string go with the process, or mics_temporary_drop(), which frees it. The process-wide
 * list is the one global that the task needs.
 */
#include "base/temporaries.h"

#include "base/file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mics_temporary {
    _Atomic(char *) path; /* NULL: the entry is free */
    struct mics_temporary *next;
};

static _Atomic(struct mics_temporary *) list;
static pthread_mutex_t list_lock =
    PTHREAD_MUTEX_INITIALIZER; /* of add, drop, known; not of the handler */

static struct mics_temporary *find_free(void)
{
    struct mics_temporary *entry = atomic_load(&list);

    while (entry && atomic_load(&entry->path))
        entry = entry->next;
    return entry;
}

static struct mics_temporary *push(char *path)
{
    struct mics_temporary *entry = malloc(sizeof *entry);

    if (!entry)
        return NULL;
    atomic_init(&entry->path, path);
    entry->next = atomic_load(&list);
    atomic_store(&list, entry);
    return entry;
}

struct mics_temporary *mics_temporary_add(char *path)
{
    pthread_mutex_lock(&list_lock);
    struct mics_temporary *entry = find_free();
    if (entry)
        atomic_store(&entry->path, path);
    else
        entry = push(path);
    pthread_mutex_unlock(&list_lock);
    return entry;
}

void mics_temporary_drop(struct mics_temporary *temporary)
{
    pthread_mutex_lock(&list_lock);
    free(atomic_exchange(&temporary->path, NULL));
    pthread_mutex_unlock(&list_lock);
}

bool mics_temporary_known(const char *path)
{
    bool known = false;

    pthread_mutex_lock(&list_lock);
    for (struct mics_temporary *entry = atomic_load(&list); entry && !known; entry = entry->next) {
        const char *other = atomic_load(&entry->path);
        known = other && strcmp(other, path) == 0;
    }
    pthread_mutex_unlock(&list_lock);
    return known;
}

void mics_file_discard_all(void)
{
    for (struct mics_temporary *entry = atomic_load(&list); entry; entry = entry->next) {
        char *path = atomic_exchange(&entry->path, NULL);
        if (path && unlink(path) != 0)
            rmdir(path); /* a folder goes after the files in it, which were added later */
    }
}
