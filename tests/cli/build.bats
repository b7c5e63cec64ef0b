#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Behaviour of the Makefile that no other test covers.

load helpers

setup()
{
    cd "$root"
    unset MAKEFLAGS MFLAGS MAKELEVEL # of a make that runs this test
}

@test "install installs programs, manuals, completions and examples, and uninstall removes them" {
    into=$BATS_TEST_TMPDIR/into
    make install BUILD="$MICS_BUILD" DESTDIR="$into" PREFIX=/usr
    for program in $(programs); do
        [ -x "$into/usr/bin/$program" ]
        [ -s "$into/usr/share/man/man1/$program.1" ]
        grep -q complete "$into/usr/share/bash-completion/completions/$program"
    done
    [ -s "$into/usr/share/mics/instances.json" ]
    [ -x "$into/usr/share/mics/examples/demo.sh" ]
    make uninstall BUILD="$MICS_BUILD" DESTDIR="$into" PREFIX=/usr
    [ "$(find "$into" ! -type d | wc -l)" = 0 ]
}

@test "a changed setting causes a rebuild, an unchanged one does not" {
    folder=$BATS_TEST_TMPDIR/build
    object=$folder/lib/base/err.o
    make BUILD="$folder" "$object"
    run make BUILD="$folder" "$object"
    [[ $output != *CC* ]]
    run make BUILD="$folder" CFLAGS=-O0 "$object"
    [[ $output == *CC*err.o* ]]
    run make BUILD="$folder" CFLAGS=-O0 --what-if=lib/base/err.h "$object"
    [[ $output == *CC*err.o* ]]
}

@test "a changed header causes a rebuild however the build folder is spelled" {
    object=build-named/lib/base/err.o
    make BUILD=build-named "$object"
    same=$(make BUILD="$PWD/build-named" "$object")
    changed=$(make BUILD="$PWD/build-named" --what-if=lib/base/err.h "$object")
    rm -rf build-named
    [ "$same" = "" ]
    [[ $changed == *CC*err.o* ]]
}

@test "the clone may be in a folder with blanks in its path, the build folder may not" {
    mkdir -p "$BATS_TEST_TMPDIR/a clone"
    cd "$BATS_TEST_TMPDIR/a clone"
    ln -s "$root"/{Makefile,cmd,kernels,lib,man,share,tests} .
    make build/lib/base/err.o
    [ -s build/lib/base/err.o ]
    run make BUILD='a build' build/lib/base/err.o
    [ "$status" = 2 ]
    [[ $output == *"BUILD: 'a build': a path with blanks."* ]]
}

@test "a missing library is reported in one line" {
    run env PKG_CONFIG_LIBDIR="$BATS_TEST_TMPDIR/none" make BUILD="$BATS_TEST_TMPDIR/build" all
    [ "$status" = 2 ]
    [[ $output == *"not installed: jansson hwloc openblas libxxhash libpcre2-8 libutf8proc zlib libzstd msgpack (pkg-config names); try 'make deps'"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/build" ] # reported before anything is built
}

@test "MPI=1 fails without Open MPI, MPI=0 reports what it leaves out" {
    run env PKG_CONFIG_LIBDIR="$BATS_TEST_TMPDIR/none" make BUILD="$BATS_TEST_TMPDIR/build" MPI=1 all
    [[ $output == *"ompi-c (pkg-config names)"* ]]
    run make BUILD="$BATS_TEST_TMPDIR/build" MPI=0 -n all
    [[ $output == *"MPI (as asked)"* ]]
}

@test "ONEDNN=1 fails without oneDNN's headers, ONEDNN=0 reports what it leaves out" {
    run make BUILD="$BATS_TEST_TMPDIR/build" CC='gcc -nostdinc' ONEDNN=1 all
    [ "$status" = 2 ]
    [[ $output == *"not installed: dnnl.h (pkg-config names)"* ]]
    run make BUILD="$BATS_TEST_TMPDIR/build" CC='gcc -nostdinc' -n all
    [[ $output == *"oneDNN (no version 2.6 or newer is installed)"* ]]
    run make BUILD="$BATS_TEST_TMPDIR/build" ONEDNN=0 -n all
    [[ $output == *"oneDNN (as asked)"* ]]
}

@test "dist packs the last commit under the version's name" {
    requires git
    git rev-parse HEAD >/dev/null 2>&1 || skip "not a clone"
    make dist BUILD="$BATS_TEST_TMPDIR"
    tar -tzf "$BATS_TEST_TMPDIR"/mics-*.tar.gz >"$BATS_TEST_TMPDIR/list"
    grep -qx 'mics-[0-9.]*/Makefile' "$BATS_TEST_TMPDIR/list"
}

@test "the runner counts failures, crashes and missing tests, and prints the totals in its last line" {
    mkdir -p "$BATS_TEST_TMPDIR"/{tests,tree/tests/unit/base}
    cp tests/run tests/tap.bash "$BATS_TEST_TMPDIR/tests/"
    printf '#!/bin/sh\necho ok 1 - good\necho not ok 2 - bad\necho "ok 3 - absent # SKIP no reason"\necho 1..3\nexit 1\n' \
        >"$BATS_TEST_TMPDIR/tree/tests/unit/base/test_mixed"
    printf '#!/bin/sh\necho ok 1 - before\nkill -SEGV $$\n' >"$BATS_TEST_TMPDIR/tree/tests/unit/base/test_crash"
    chmod +x "$BATS_TEST_TMPDIR"/tree/tests/unit/base/*
    printf 'all tests-build:\n' >"$BATS_TEST_TMPDIR/Makefile"
    run env BUILD=tree "$BATS_TEST_TMPDIR/tests/run" unit
    echo "$output"
    [ "$status" = 1 ]
    [ "${lines[-1]}" = "4 passed, 2 failed" ]
    [ "${lines[-2]}" = "1 skipped" ]
    [[ $output == *"FAILED: test_mixed: bad"* ]]
    [[ $output == *"FAILED: test_crash: ended with status 139 after 1 of -1 tests"* ]]
    [[ $output == *"skipped: test_mixed: absent # SKIP no reason"* ]]
}
