# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# helpers.bash - shared by the tests in the lab, in addition to the helpers of the command line
# tests.

load ../cli/helpers

lab=l$$ # the lab of this test

lab_folder()
{
    if [ "$(id -u)" = 0 ]; then
        echo "/run/mics-lab/$lab"
    else
        echo "${XDG_RUNTIME_DIR:-/tmp}/mics-lab-$(id -u)/$lab"
    fi
}

# End the lab of this test, if it exists.
lab_gone()
{
    if [ -d "$(lab_folder)" ]; then mics-lab down -q "$lab"; fi
}

# Wait until a command succeeds, for some seconds.
eventually() # seconds command...
{
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || { echo "in vain: $*"; return 1; }
        sleep 0.1
    done
}

# End the ranks of a node and what has started them. pkill takes no name of more than 15 characters.
kill_ranks() # node
{
    mics-lab exec --name="$lab" "$1" -- pkill -KILL -x 'orted|mics-t.*' || true
}
