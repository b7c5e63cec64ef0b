/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_room.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t room_bytes(int size)
{
    return sizeof(room) + (size_t)size * ROOM_SLOT;
}

room *room_enter(const char *name, int size)
{
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *memory = MAP_FAILED;

    if (fd < 0)
        return nullptr;
    if (ftruncate(fd, (off_t)room_bytes(size)) == 0)
        memory = mmap(nullptr, room_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<room *>(memory);
}

void room_leave(room *room, int size)
{
    munmap(room, room_bytes(size));
}

void room_forget_name(const char *name)
{
    shm_unlink(name);
}

bool room_has_died(const room *room, int size)
{
    for (int i = 0; i < size; i++) {
        const int32_t pid = room->seats[i].pid;

        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            return true;
    }
    return false;
}
