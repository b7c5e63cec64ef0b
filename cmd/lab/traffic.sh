# SPDX-License-Identifier: Apache-2.0
# traffic.sh - what each node sends and receives: totals, when, and whether it was expected. Part of
# mics-lab.

# The bytes that each node has sent and received since its link was created: "node1 SENT RECEIVED".
count_traffic()
{
    local i name rest counted
    for ((i = 1; i <= nodes; i++)); do
        while read -r name rest; do
            read -r -a counted <<<"$rest"
            if [ "$name" = eth0: ]; then echo "node$i ${counted[8]} ${counted[0]}"; fi
        done < <(in_node "$i" cat /proc/net/dev)
    done
}

# The same since the lab became ready, as a table.
traffic_table()
{
    printf '%-8s %15s %15s\n' node sent received
    count_traffic | awk -v before="$lab/traffic" '
        BEGIN {
            while ((getline line <before) > 0) {
                split(line, f, " ")
                sent[f[1]] = f[2]
                received[f[1]] = f[3]
            }
        }
        { printf "%-8s %15.0f %15.0f\n", $1, $2 - sent[$1], $3 - received[$1] }'
}

# Samples of what each node has sent, about five in a second and one when the job has ended:
# microseconds, then bytes. The port of the bridge receives what the node sends.
sample_main()
{
    local device bytes rest i sent last=0
    while [ $last = 0 ]; do
        if [ -e "$lab/ended" ]; then last=1; fi
        sent=()
        while read -r device bytes rest; do
            if [[ $device == port*: ]]; then i=${device#port} && sent[${i%:}]=$bytes; fi
        done </proc/net/dev
        echo "${EPOCHREALTIME/[.,]/} ${sent[*]}"
        [ $last = 1 ] || sleep 0.2
    done
}

start_sampling()
{
    in_hub "$self" _sample "$lab" >"$lab/samples" </dev/null &
    sampler=$!
}

stop_sampling()
{
    : >"$lab/ended"
    wait "$sampler"
}

# The megabytes that each node sent in each of at most ten intervals of equal length: 1, 2 or 5
# times a power of ten in seconds, at least 0.5 s, in which there are two samples.
traffic_by_time()
{
    awk '
        { for (i = 1; i <= NF; i++) value[NR, i] = $i; fields = NF }
        function sent(node, at, k)
        {
            while (last < NR && value[last + 1, 1] <= at) last++
            k = last < NR ? last : NR - 1
            if (k < 1) return value[1, node]
            if (value[k + 1, 1] == value[k, 1]) return value[k, node]
            at = (at - value[k, 1]) / (value[k + 1, 1] - value[k, 1])
            if (at > 1) at = 1
            return value[k, node] + at * (value[k + 1, node] - value[k, node])
        }
        END {
            if (NR < 2) exit
            total = (value[NR, 1] - value[1, 1]) / 1e6
            split("2 2 2.5", factor, " ")
            for (length_s = 0.5; length_s * 10 < total; length_s *= factor[1 + n++ % 3]) ;
            count = int(total / length_s)
            if (count * length_s < total) count++
            printf "%-8s", "MB sent"
            for (c = 1; c <= count; c++)
                printf " %10s", sprintf("%g-%g s", (c - 1) * length_s, c * length_s)
            print ""
            for (node = 2; node <= fields; node++) {
                printf "node%-4d", node - 1
                last = 0
                before = sent(node, value[1, 1])
                for (c = 1; c <= count; c++) {
                    now = sent(node, value[1, 1] + c * length_s * 1e6)
                    printf " %10.3f", (now - before) / 1e6
                    before = now
                }
                print ""
            }
        }' "$lab/samples"
}

# Append what --expect-traffic says to expected=, as "NODE COLUMN RELATION BYTES": NODE is "node"
# for each of them; COLUMN is that of count_traffic.
take_expectation() # text
{
    local column=2 factor=1 form='^(node([1-9][0-9]{0,2})?): *(sent|received)'
    form+=' *(<=|>=) *([0-9]{1,12}(\.[0-9]{1,6})?) *([kKMGT]i?)?B$'
    [[ $1 =~ $form ]] ||
        usage "--expect-traffic: '$1': must be as 'node: sent <= 70MB' or 'node2: received >= 1GB'"
    if [ "${BASH_REMATCH[3]}" = received ]; then column=3; fi
    case ${BASH_REMATCH[7]} in
    k | K) factor=1e3 ;; M) factor=1e6 ;; G) factor=1e9 ;; T) factor=1e12 ;;
    ki | Ki) factor=1024 ;; Mi) factor=1048576 ;; Gi) factor=1073741824 ;;
    Ti) factor=1099511627776 ;;
    esac
    expected+=("${BASH_REMATCH[1]} $column ${BASH_REMATCH[4]} $(
        awk -v n="${BASH_REMATCH[5]}" -v f=$factor 'BEGIN { printf "%.0f", n * f }')")
}

# The nodes that expectations name must exist, before anything is started.
check_expected()
{
    local each
    for each in "${expected[@]}"; do
        each=${each%% *}
        each=${each#node}
        if [ -n "$each" ] && [ "$each" -gt "$nodes" ]; then
            usage "--expect-traffic: there is no node$each in a lab of $nodes nodes"
        fi
    done
}

# One line for each node that sent or received what was not expected; none if all is well.
unexpected_traffic()
{
    {
        printf '%s\n' "${expected[@]}"
        traffic_table
    } | awk -v count=${#expected[@]} '
        NR <= count { who[NR] = $1; column[NR] = $2; relation[NR] = $3; limit[NR] = $4; next }
        /^node[0-9]/ {
            for (i = 1; i <= count; i++) {
                if (who[i] != "node" && who[i] != $1) continue
                if (relation[i] == "<=" ? $column[i] <= limit[i] : $column[i] >= limit[i]) continue
                printf "%s %s %.0f bytes; expected %s %.0f\n", $1,
                    column[i] == 2 ? "sent" : "received", $column[i], relation[i], limit[i]
            }
        }'
}

# After the job: what was sent, if that was asked for or is not as expected; then code=4, unless the
# job has failed.
report_traffic()
{
    local each wrong=()
    stop_sampling
    if [ ${#expected[@]} -gt 0 ]; then mapfile -t wrong < <(unexpected_traffic); fi
    if [ $traffic = 1 ] || [ ${#wrong[@]} -gt 0 ]; then
        traffic_table >&2
        traffic_by_time >&2
    fi
    for each in "${wrong[@]}"; do printable "$program: $each" >&2; done
    if [ ${#wrong[@]} -gt 0 ] && [ "$code" = 0 ]; then code=4; fi
}
