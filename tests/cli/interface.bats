#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Conventions of every program: help, version, manual page and completion agree.

load helpers

# The long options that a program reports to its completion, without dashes.
options_of() # program
{
    "$1" --complete | sed -n 's/^--\([^\t]*\)\t.*/\1/p'
}

# Complete "WORD..." with the cursor at the end of the last, as bash would split it.
completion_of() # word...
{
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _mics "$1"
}

@test "every source in cmd is a program of the build" {
    [ "$(programs | wc -l)" -ge 1 ]
    for program in $(programs); do
        [ -x "$MICS_BUILD/$program" ]
    done
}

@test "--help exits 0, names the program, and prints nothing to standard error" {
    for program in $(programs); do
        run --separate-stderr "$program" --help
        [ "$status" = 0 ]
        [ "$stderr" = "" ]
        [[ ${lines[0]} == "Usage: $program "* ]]
    done
}

@test "--version is one line with the version of the source" {
    version=$(sed -n 's/^#define MICS_VERSION "\(.*\)"/\1/p' "$root/lib/base/version.h")
    for program in $(programs); do
        run --separate-stderr "$program" --version
        [ "$status" = 0 ]
        [ "$output" = "$program (mics) $version" ]
    done
}

@test "an unknown option exits 2 with one line and a hint" {
    for program in $(programs); do
        run --separate-stderr "$program" --no-such-option
        usage_mistake "$program"
        [ "$output" = "" ]
    done
}

@test "an empty file name counts as a missing value" {
    for program in $(programs); do
        while IFS=$'\x1f' read -r option meaning _; do
            if [[ $option != --* || ! $meaning =~ FILE|FOLDER|PATH ]]; then continue; fi
            run --separate-stderr "$program" "$option="
            usage_mistake "$program"
            [ "${stderr_lines[0]}" = "$program: $option: needs a value, $meaning" ]
            tried+=" $program$option"
        done < <("$program" --complete | tr '\t' '\037')
    done
    [[ $tried == *mics-plan--output* && $tried == *mics-train--out* && $tried == *mics-shard--base* ]]
}

@test "a full disk under standard output is an error" {
    for program in $(programs); do
        run --separate-stderr bash -c '"$1" --help >/dev/full' - "$program"
        one_line_and_code 1
        [[ $stderr == "$program: standard output: "* ]]
    done
}

@test "--help shows every option" {
    for program in $(programs); do
        help=$("$program" --help)
        for option in $(options_of "$program"); do
            grep -qE -- "--$option(=| |\[|$)" <<<"$help" || { echo "$program: $option"; return 1; }
        done
    done
}

@test "the manual page documents every option" {
    requires mandoc
    for program in $(programs); do
        page=$(mandoc -T utf8 -O width=120 "$root/man/$program.1" | sed 's/.\x08//g')
        for option in $(options_of "$program"); do
            grep -qE -- "--$option([^a-z0-9-]|$)" <<<"$page" || { echo "$program.1: --$option"; return 1; }
        done
    done
}

@test "the manual page documents no option that does not exist" {
    requires mandoc
    for program in $(programs); do
        mandoc -T utf8 -O width=120 "$root/man/$program.1" | sed 's/.\x08//g' >"$BATS_TEST_TMPDIR/page"
        options_of "$program" | sort >"$BATS_TEST_TMPDIR/options"
        documented=$(sed -nE 's/^ +(-[a-zA-Z], )?--([a-z0-9-]+).*/\2/p' "$BATS_TEST_TMPDIR/page" | sort -u)
        for option in $documented; do
            grep -qx -- "$option" "$BATS_TEST_TMPDIR/options" || { echo "$program.1: --$option"; return 1; }
        done
    done
}

@test "completion is registered for every program and offers every option" {
    source "$root/completions/mics.bash"
    for program in $(programs); do
        complete -p "$program"
        completion_of "$program" --
        for option in $(options_of "$program"); do
            printf '%s\n' "${COMPREPLY[@]}" | grep -qxE -- "--$option=?"
        done
    done
}

@test "completion offers the fixed words of a value" {
    source "$root/completions/mics.bash"
    tried=0
    for program in $(programs); do
        while IFS=$'\t' read -r option words; do
            word=${words%%|*}
            completion_of "$program" "$option" = "${word:0:1}"
            printf '%s\n' "${COMPREPLY[@]}" | grep -qx -- "$word"
            completion_of "$program" "$option" =
            [ "${#COMPREPLY[@]}" -ge 2 ]
            tried=$((tried + 1))
        done < <("$program" --complete | sed -nE 's/^(--[^\t]+)\t([a-z][^\t]*\|[^\t]*)\t.*/\1\t\2/p')
    done
    [ "$tried" -ge 1 ]
}

@test "completion offers files for a file and for an operand" {
    source "$root/completions/mics.bash"
    cd "$BATS_TEST_TMPDIR"
    touch topology.mp
    for program in $(programs); do
        completion_of "$program" topo
        [ "${COMPREPLY[*]}" = topology.mp ]
        "$program" --complete | grep -q '^--output' || continue
        completion_of "$program" --output = topo
        [ "${COMPREPLY[*]}" = topology.mp ]
        completion_of "$program" -o topo
        [ "${COMPREPLY[*]}" = topology.mp ]
    done
}
