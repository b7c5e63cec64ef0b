#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-probe measures the rates that a lab is configured with.

load helpers
: "${lab:?}" # by the helpers

setup()
{
    requires netns mpirun jq
    cd "$BATS_TEST_TMPDIR" || return
}

teardown()
{
    lab_gone
}

# Bits per second between nodes are those of the lab within 10 %; the bursts that its token buckets
# allow are left out.
@test "the probe finds the rate of shaped links within 10 %" {
    mics-lab up -q --name="$lab" --nodes=2 --slots=2 --net=200mbit >line
    # A busy machine makes a link seem slower, or faster where a token bucket fills up meanwhile.
    for _ in 1 2 3; do
        sh -c "$(cat line) mics-probe --json -o topology.json"
        rate=$(jq '.links.net.bandwidth_bytes_per_s * 8 / 1e6 | floor' topology.json)
        echo "$rate Mbit/s"
        if [ "$rate" -ge 180 ] && [ "$rate" -le 220 ]; then return; fi
    done
    false
}
