#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The README's examples, run: each block after a line "<!-- run ... -->", in order, in one folder.
# Only the number of steps is reduced, and that of the ranks that calibrate.

load helpers

# A script of all marked blocks.
examples()
{
    awk '/^<!-- run/ { marked = 1; next }
        /^```sh$/ && marked { inside = 1; next }
        /^```$/ { inside = marked = 0 }
        inside' "$root/README.md" | sed 's/--steps=600/--steps=4/; /--calibrate/s/-n 4/-n 2/g'
}

@test "README: there are marked examples" {
    [ "$(examples | grep -c 'mics-')" -ge 6 ]
}

@test "README: every marked example runs unchanged, in order" {
    requires mpi:4
    cd "$BATS_TEST_TMPDIR"
    ln -s "$root/lib" "$root/man" .
    examples >examples.sh
    # Readers have none of the variables of these tests.
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_mpi_yield_when_idle
    unset OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy
    run bash -euo pipefail -x examples.sh
    echo "$output"
    [ "$status" = 0 ]
    [ -s plan.mp ] && [ -d run ]
}

@test "README: the table names every program, and only programs" {
    sed -n 's/^| `\(mics-[a-z]*\)` |.*/\1/p' "$root/README.md" | sort >"$BATS_TEST_TMPDIR/documented"
    programs | sort | diff - "$BATS_TEST_TMPDIR/documented"
}
