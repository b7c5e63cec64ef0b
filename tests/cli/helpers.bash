# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# helpers.bash - shared by the command line tests: the programs on PATH, settings for Open MPI,
# requirements.
#
# Each test has a folder of its own, $BATS_TEST_TMPDIR. Binary output goes through files: bats drops
# NULs.

bats_require_minimum_version 1.5.0

root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
MICS_BUILD=${MICS_BUILD:-$root/build}
PATH=$MICS_BUILD:$PATH
export MICS_BUILD PATH

# Caches that programs keep between runs are shared by the tests and removed afterwards.
export XDG_CACHE_HOME=$BATS_RUN_TMPDIR/cache

# Whoever runs the tests may have a catalogue.
export XDG_CONFIG_HOME=$BATS_RUN_TMPDIR/config

# Allow more ranks than cores, and root; waiting ranks yield their cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none

# Ranks that share cores with other tests are slow now and then; slow.bats names them.
export MICS_SLOW_RANKS=0

# The programs that this build has.
programs()
{
    local source
    for source in "$root"/cmd/mics-*.{c,sh}; do
        source=${source##*/}
        echo "${source%.*}"
    done
}

# Run PROGRAM on N ranks: mpi 4 mics-train -p plan.mp
mpi() # ranks command...
{
    local ranks=$1
    shift
    mpirun -n "$ranks" "$@"
}

# Skip with the reason unless all requirements are met: a command by name, or one of the words
# below.
requires() # mpi[:N] | root | tmpfs | netns | COMMAND ...
{
    local what
    for what in "$@"; do
        case $what in
        mpi) requires mpi:1 ;;
        mpi:*)
            requires mpirun
            mpi_works "${what#mpi:}" || skip "mpirun -n ${what#mpi:} does not work here"
            ;;
        root) [ "$(id -u)" = 0 ] || skip "not root" ;;
        tmpfs) tmpfs_works || skip "no tmpfs can be mounted here" ;;
        netns) netns_works || skip "no network namespaces here" ;;
        *) command -v "$what" >/dev/null || skip "$what is not installed" ;;
        esac
    done
}

# Tried once by each run of bats.
mpi_works() # ranks
{
    local known=$BATS_RUN_TMPDIR/mpi-$1-works
    if [ ! -e "$known" ]; then mpi "$1" true 2>/dev/null && : >"$known"; fi
}

netns_works()
{
    local user=()
    if [ "$(id -u)" != 0 ]; then user=(--user --map-root-user); fi
    unshare "${user[@]}" --net --uts --mount --pid --fork mount -t proc proc /proc 2>/dev/null &&
        command -v tc >/dev/null
}

tmpfs_works()
{
    local folder=$BATS_TEST_TMPDIR/tmpfs-try
    mkdir -p "$folder" && mount -t tmpfs -o size=64k none "$folder" 2>/dev/null && umount "$folder"
}

# Mount a small disk at $BATS_TEST_TMPDIR/small. Call unmount_small_disk in teardown.
small_disk() # size
{
    mkdir -p "$BATS_TEST_TMPDIR/small"
    mount -t tmpfs -o "size=$1" none "$BATS_TEST_TMPDIR/small"
}

unmount_small_disk()
{
    if mountpoint -q "$BATS_TEST_TMPDIR/small"; then umount "$BATS_TEST_TMPDIR/small"; fi
}

# The last run failed with this code and exactly one line that begins with the program's name. Use
# after "run --separate-stderr".
one_line_and_code() # code
{
    if [ "$status" != "$1" ] || [ "${#stderr_lines[@]}" != 1 ] || [[ $stderr != mics-* ]]; then
        printf 'exit %s, not %s, saying:\n%s\n' "$status" "$1" "$stderr"
        return 1
    fi
}

# A manifest that a test has changed, with its checksum made right; as JSON.
sealed()
{
    "$MICS_BUILD/tests/cli/seal_manifest"
}

# As a usage mistake: one line, then the hint; exit 2.
usage_mistake() # program
{
    if [ "$status" != 2 ] || [ "${#stderr_lines[@]}" != 2 ] ||
        [[ ${stderr_lines[0]} != "$1: "* ]] ||
        [ "${stderr_lines[1]}" != "Try '$1 --help'." ]; then
        printf 'exit %s, not 2, saying:\n%s\n' "$status" "$stderr"
        return 1
    fi
}

# Skip where a program has a sanitizer, which cannot do what the test needs.
not_sanitized() # program reason
{
    if nm "$(command -v "$1")" | grep -qE '__(asan|tsan)_init'; then skip "$2"; fi
}

# Make brake.so: a rank that loads it takes 30 times as long for its matrix products, whether
# OpenBLAS or mics multiplies, until it has used 10 s of its processor: by then its rate is known.
# Each product asks OpenBLAS for its number of threads first; the answer comes when the thread has
# used 29 times what it has used since the answer before. On a busy machine the rates of the other
# ranks can differ by a factor of four, which a slow one must exceed by far. Skips where the program
# cannot load it.
make_brake() # program
{
    not_sanitized "$1" "the sanitizer must be loaded first"
    cat >brake.c <<'END'
#define _GNU_SOURCE
#include <time.h>

static double thread_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int openblas_get_num_threads(void)
{
    static __thread double last;
    const double now = thread_s(), until = now + (last > 0 ? 29 * (now - last) : 0);

    while (now < 10 && thread_s() < until)
        continue;
    last = thread_s();
    return 1;
}
END
    gcc -shared -fPIC -o brake.so brake.c
}
