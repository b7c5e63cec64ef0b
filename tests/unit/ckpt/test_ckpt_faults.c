/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ckpt_faults.c - a save that is killed, or fails by a disk error, at each of its system
 * calls.
 *
 * A child saves under ptrace(2), which stops it at the entry of each system call of each of its
 * threads. At the k-th, for k = 1, 2, ... until the save ends before, it is killed or the call
 * fails. Afterwards there must be a whole checkpoint, the old one or the new one, and the next run
 * must clean up.
 */
#include "tap.h"

#include "base/file.h"
#include "base/philox.h"
#include "ckpt/saver.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

enum { STATES = 3, MAX_UNITS = 8 };

static char folder[64];
static bool can_trace;
static struct mics_model *model;
static struct mics_plan_choice choice = {.shapes = MICS_SAME_SHAPE({1, 1, 1, 1, 1})};
static struct mics_layout layouts[MAX_UNITS];
static struct mics_ckpt_layout form;

/* The numbers of a step, and the count of those that were loaded wrong. */
struct state {
    uint64_t step, wrong, put;
};

static float value_of(const struct state *state, uint32_t unit, uint32_t kind, uint64_t i)
{
    return i < model->units[unit].count
               ? (float)mics_philox_uniform(state->step, unit * 4 + kind, i)
               : 0;
}

static enum mics_status take(void *context, uint32_t unit, uint32_t kind, uint64_t first,
                             uint64_t count, float *dst, struct mics_err *err)
{
    (void)err;
    for (uint64_t i = 0; i < count; i++)
        dst[i] = value_of(context, unit, kind, first + i);
    return MICS_OK;
}

static enum mics_status put(void *context, uint32_t unit, uint32_t kind, uint64_t first,
                            uint64_t count, const float *src, struct mics_err *err)
{
    struct state *state = context;

    (void)err;
    for (uint64_t i = 0; i < count; i++) {
        const float expected = value_of(state, unit, kind, first + i);

        state->wrong += memcmp(&src[i], &expected, sizeof expected) != 0;
    }
    state->put += count;
    return MICS_OK;
}

static struct mics_checkpoint checkpoint_of(struct mics_comm *comm, struct state *state)
{
    return (struct mics_checkpoint){
        .comm = comm, .form = &form, .source = {.take = take, .put = put, .context = state}};
}

/* Save a step, keeping only it; the status is the process's. */
static enum mics_status save(uint64_t step)
{
    struct mics_manifest manifest = {.step = step,
                                     .samples = step,
                                     .plan = json_pack("{s:s}", "kind", "mics.plan"),
                                     .training = json_object()};
    struct state state = {.step = step};
    struct mics_comm *comm = NULL;
    struct mics_saver *saver = NULL;
    struct mics_saved saved;
    bool done = false;
    struct mics_err err = {""};
    enum mics_status status = mics_comm_new_self(&comm, &err);

    if (status != MICS_OK)
        return status;
    const struct mics_checkpoint checkpoint = checkpoint_of(comm, &state);
    status = mics_saver_new(&checkpoint, folder, &(struct mics_keep){.last = 1}, &saver, &err);
    if (status == MICS_OK)
        status = mics_saver_begin(saver, &manifest, &err);
    while (status == MICS_OK && !done)
        status = mics_saver_advance(saver, &done, &saved, &err);
    mics_saver_free(saver);
    mics_manifest_free(&manifest);
    mics_comm_free(comm);
    return status;
}

/* The step of the checkpoint that the next run would resume from, after checking every number; 0:
 * none. */
static uint64_t resumable(void)
{
    char path[MICS_PATH_MAX];
    struct mics_manifest manifest = {0};
    struct mics_comm *comm = NULL;
    struct state state = {0};
    struct mics_err err = {""};
    json_t *doc = NULL;
    bool found = false;
    enum mics_status status = mics_checkpoint_find(folder, false, path, &found, &err);

    if (status == MICS_OK)
        status = mics_comm_new_self(&comm, &err);
    if (status == MICS_OK)
        status = mics_checkpoint_read_manifest(comm, path, &doc, &err);
    if (status == MICS_OK)
        status = mics_manifest_from_doc(doc, &manifest, &err);
    state.step = manifest.step;
    if (status == MICS_OK) {
        const struct mics_checkpoint checkpoint = checkpoint_of(comm, &state);

        status = mics_checkpoint_load(&checkpoint, path, doc, &err);
    }
    if (status != MICS_OK)
        printf("# %s\n", err.text);
    mics_manifest_free(&manifest);
    json_decref(doc);
    if (comm)
        mics_comm_free(comm);
    return status == MICS_OK && state.put > 0 && state.wrong == 0 ? state.step : 0;
}

static int stale_dirs(void)
{
    char command[256];
    FILE *pipe;
    int count = -1;

    snprintf(command, sizeof command, "ls -a %s | grep -c -- '\\.tmp\\.'", folder);
    pipe = popen(command, "r");
    if (fscanf(pipe, "%d", &count) != 1)
        count = -1;
    pclose(pipe);
    return count;
}

static pid_t begin_child(uint64_t step)
{
    const pid_t child = fork();

    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(99);
        raise(SIGSTOP);
        _exit(save(step) == MICS_OK ? 0 : 1);
    }
    return child;
}

/* Calls by which a save writes to the disk; a failure of any must be reported. */
static bool may_fail(long call)
{
    static const long calls[] = {SYS_openat,    SYS_write,   SYS_fsync,   SYS_mkdir, SYS_rename,
                                 SYS_renameat2, SYS_symlink, SYS_pread64, SYS_read,  SYS_unlinkat};

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i] == call)
            return true;
    return false;
}

#if defined(__x86_64__) && !defined(UNDER_TSAN)
enum { CAN_TRACE = 1 };

static long call_of(pid_t thread)
{
    struct user_regs_struct regs;

    return ptrace(PTRACE_GETREGS, thread, NULL, &regs) == 0 ? (long)regs.orig_rax : -1;
}

/* At its entry: the call does nothing, and its result is set where it ends. */
static void skip_call(pid_t thread)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, thread, NULL, &regs) != 0)
        return;
    regs.orig_rax = (unsigned long long)-1;
    ptrace(PTRACE_SETREGS, thread, NULL, &regs);
}

static void set_result(pid_t thread, int code)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, thread, NULL, &regs) != 0)
        return;
    regs.rax = (unsigned long long)-(long long)code;
    ptrace(PTRACE_SETREGS, thread, NULL, &regs);
}
#else
enum { CAN_TRACE = 0 };
static long call_of(pid_t thread)
{
    (void)thread;
    return -1;
}
static void skip_call(pid_t thread)
{
    (void)thread;
}
static void set_result(pid_t thread, int code)
{
    (void)thread;
    (void)code;
}
#endif

/* What is done to the child at its k-th call, or k-th call that may fail. */
struct fault {
    int at;    /* k */
    int error; /* 0: kill */
    int seen;  /* calls so far */
    bool done;
    bool no_exchange; /* renameat2() fails, as on NFS */
    pid_t failing;    /* thread whose call is being failed, by `code` */
    int code;
};

/* A thread is stopped at a system call: its entry or its end. */
static void at_call(struct fault *fault, pid_t child, pid_t thread, bool entry)
{
    if (!entry) {
        if (fault->failing == thread) {
            set_result(thread, fault->code);
            fault->failing = 0;
        }
        return;
    }
    if (fault->no_exchange && call_of(thread) == SYS_renameat2) {
        skip_call(thread);
        fault->failing = thread;
        fault->code = EINVAL;
    }
    if (fault->done || (fault->error && !may_fail(call_of(thread))) || ++fault->seen != fault->at)
        return;
    fault->done = true;
    if (fault->error) {
        skip_call(thread);
        fault->failing = thread;
        fault->code = fault->error;
    } else {
        kill(child, SIGKILL);
    }
}

/* Let the child run, from call to call, to its end. Its status as of waitpid(). */
static int drive(pid_t child, struct fault *fault)
{
    enum { MAX_THREADS = 64 };
    pid_t inside[MAX_THREADS] = {0}; /* threads between a call's entry and its end */
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    int status = 0;

    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return status;
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options);
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    for (;;) {
        const pid_t thread = waitpid(-1, &status, __WALL);
        int sig = 0, slot = 0;

        if (thread < 0 || (thread == child && !WIFSTOPPED(status)))
            return status;
        if (!WIFSTOPPED(status))
            continue;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            while (slot < MAX_THREADS - 1 && inside[slot] != thread)
                slot++;
            const bool entry = inside[slot] != thread;
            for (slot = entry ? 0 : slot; entry && inside[slot] && slot < MAX_THREADS - 1;)
                slot++;
            inside[slot] = entry ? thread : 0;
            at_call(fault, child, thread, entry);
        } else if (WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP) {
            sig = WSTOPSIG(status);
        }
        ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)sig);
    }
}

/* After each fault: a whole checkpoint, nothing left over, and a save that works. `replaces`: each
 * save replaces the checkpoint of its step, on a file system that cannot exchange folders. */
static void step_through(int error, int least, bool replaces)
{
    const uint64_t stride = replaces ? 0 : 1;

    if (!can_trace)
        TAP_SKIP("no process can be traced here");
    uint64_t step = 1;
    int k = 1, lost = 0, litter = 0, silent = 0, stuck = 0;

    CHECK_INT(save(step), MICS_OK);
    for (bool more = true; more && k < 2000; k++) {
        struct fault fault = {.at = k, .error = error, .no_exchange = replaces};
        const int status = drive(begin_child(step + stride), &fault);
        const uint64_t found = resumable();
        struct mics_lock lock = MICS_LOCK_NONE;

        more = fault.done;
        lost += found != step && found != step + stride;
        silent += more && error && status == 0 && found != step + stride;
        stuck += !more && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK_INT(mics_run_folder_open(folder, &lock, NULL), MICS_OK);
        mics_unlock(&lock);
        litter += stale_dirs() != 0;
        lost += resumable() != found;
        step = found ? found : step;
    }
    printf("# %d system calls, each of them tried\n", k - 2);
    CHECK(k - 2 >= least);
    CHECK_INT(lost, 0);
    CHECK_INT(litter, 0);
    CHECK_INT(silent, 0);
    CHECK_INT(stuck, 0);
}

/* May this process trace its children? */
static bool traceable(void)
{
    struct fault fault = {.at = -1};

    return CAN_TRACE && drive(begin_child(1), &fault) == 0;
}

static void killed_at_any_call_a_whole_checkpoint_stays(void)
{
    step_through(0, 30, false);
}

static void killed_at_any_call_of_a_replacement_without_exchange_a_whole_checkpoint_stays(void)
{
    step_through(0, 30, true);
}

static void a_disk_full_at_any_call_leaves_a_whole_checkpoint(void)
{
    step_through(ENOSPC, 15, false);
}

static void a_disk_that_breaks_at_any_call_leaves_a_whole_checkpoint(void)
{
    step_through(EIO, 15, false);
}

int main(void)
{
    const struct mics_model_config config = {.family = "gpt2",
                                             .name = "tiny",
                                             .n_layer = 1,
                                             .n_embd = 8,
                                             .n_head = 2,
                                             .n_positions = 8,
                                             .vocab_size = 33,
                                             .n_inner = 32,
                                             .layer_norm_epsilon = 1e-5};
    struct mics_err err = {""};

    strcpy(folder, "/tmp/mics-faults-XXXXXX");
    if (!mkdtemp(folder) || mics_model_new(&config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    for (uint32_t u = 0; u < model->unit_count; u++)
        layouts[u] = mics_layout_make(&choice.shapes[MICS_UNIT_DENSE], model->units[u].count, 1,
                                      MICS_TENSOR_ALIGN);
    form = (struct mics_ckpt_layout){
        .model = model, .choice = &choice, .layouts = layouts, .states = STATES, .parts = 1};
    can_trace = traceable();
    TAP_RUN(killed_at_any_call_a_whole_checkpoint_stays);
    TAP_RUN(killed_at_any_call_of_a_replacement_without_exchange_a_whole_checkpoint_stays);
    TAP_RUN(a_disk_full_at_any_call_leaves_a_whole_checkpoint);
    TAP_RUN(a_disk_that_breaks_at_any_call_leaves_a_whole_checkpoint);
    mics_file_remove_tree(folder, NULL);
    mics_model_free(model);
    return tap_done();
}
