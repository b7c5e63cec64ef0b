/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fiber.cc - switching stacks: a few instructions on x86-64, ucontext elsewhere (or with
 * EMU_UCONTEXT).
 *
 * A switch saves the registers that the calling convention requires a function to keep. Stacks are
 * mapped with a page below them that traps.
 */
#include "fiber.h"

#include <new>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMU_TSAN 1
#endif
#endif

#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
#else
#define __tsan_get_current_fiber()           nullptr
#define __tsan_create_fiber(flags)           nullptr
#define __tsan_destroy_fiber(fiber)          ((void)(fiber))
#define __tsan_switch_to_fiber(fiber, flags) ((void)(fiber))
#endif

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(save, bottom, size)  ((void)(save))
#define __sanitizer_finish_switch_fiber(save, bottom, size) ((void)(save))
#define __asan_unpoison_memory_region(memory, bytes)        ((void)(memory))
#endif

static const size_t stack_bytes = 256u << 10, guard_bytes = 4096;

struct emu_fiber {
    void (*run)(struct emu_fiber *fiber);
    unsigned char *map; /* NULL: the thread's own stack */
    const void *bottom; /* of the stack, as AddressSanitizer wants it */
    size_t bytes;
    void *fake_stack;
    void *tsan; /* ThreadSanitizer's handle of it */
    void *sp;   /* x86-64 */
    ucontext_t context;
};

static __thread struct emu_fiber *coming_from, *going_to;

/* What every fiber does first, and after each switch to it. */
static void arrive(struct emu_fiber *fiber)
{
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(fiber->fake_stack, &bottom, &bytes);
#ifdef EMU_ASAN
    coming_from->bottom = bottom;
    coming_from->bytes = bytes;
#else
    (void)bottom;
    (void)bytes;
#endif
}

extern "C" void emu_fiber_entry(void)
{
    struct emu_fiber *fiber = going_to;

    arrive(fiber);
    fiber->run(fiber);
    __builtin_trap();
}

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)

extern "C" void emu_stack_switch(void **save_sp, void *sp);
__asm__(".text\n"
        ".hidden emu_stack_switch\n"
        ".globl emu_stack_switch\n"
        ".type emu_stack_switch, @function\n"
        "emu_stack_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_stack_switch, . - emu_stack_switch\n");

/* Where the stack of a new fiber begins. Stacks that began at the same place of a page would all
 * share a few sets of the cache. */
static unsigned char *top_of(const struct emu_fiber *fiber)
{
    static const size_t step = 5 * 64, page = 4096;
    static __thread size_t count;

    return fiber->map + guard_bytes + stack_bytes - step * count++ % page;
}

/* Six registers, where to return, and a word that keeps the stack aligned as after a call. */
static void prepare(struct emu_fiber *fiber)
{
    void **top = reinterpret_cast<void **>(top_of(fiber));

    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void *>(emu_fiber_entry);
    for (int i = 3; i <= 8; i++)
        top[-i] = nullptr;
    fiber->sp = top - 8;
}

static void leap(struct emu_fiber *from, struct emu_fiber *to)
{
    emu_stack_switch(&from->sp, to->sp);
}

#else

static void prepare(struct emu_fiber *fiber)
{
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->map + guard_bytes;
    fiber->context.uc_stack.ss_size = stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, emu_fiber_entry, 0);
}

static void leap(struct emu_fiber *from, struct emu_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#endif

struct emu_fiber *emu_fiber_new(void (*run)(struct emu_fiber *fiber))
{
    struct emu_fiber *fiber = new (std::nothrow) emu_fiber();
    void *map;

    if (!fiber)
        return nullptr;
    map = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) {
        delete fiber;
        return nullptr;
    }
    mprotect(map, guard_bytes, PROT_NONE);
    fiber->run = run;
    fiber->map = static_cast<unsigned char *>(map);
    fiber->bottom = fiber->map + guard_bytes;
    fiber->bytes = stack_bytes;
    fiber->tsan = __tsan_create_fiber(0);
    prepare(fiber);
    return fiber;
}

struct emu_fiber *emu_fiber_main(void)
{
    struct emu_fiber *fiber = new (std::nothrow) emu_fiber();

    if (fiber)
        fiber->tsan = __tsan_get_current_fiber();
    return fiber;
}

void emu_fiber_free(struct emu_fiber *fiber)
{
    if (!fiber)
        return;
    if (fiber->map) {
        __asan_unpoison_memory_region(fiber->map + guard_bytes, stack_bytes);
        munmap(fiber->map, guard_bytes + stack_bytes);
        __tsan_destroy_fiber(fiber->tsan);
    }
    delete fiber;
}

void emu_fiber_switch(struct emu_fiber *from, struct emu_fiber *to)
{
    coming_from = from;
    going_to = to;
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
    __tsan_switch_to_fiber(to->tsan, 0);
    leap(from, to);
    arrive(from);
}
