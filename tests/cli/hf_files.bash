# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# hf_files.bash - models in Hugging Face's files, as tests change them.

# Rewrite a safetensors file with its tensors changed by a perl program: $t{NAME} = [dtype, shape,
# bytes].
edited() # source file program
{
    perl -MJSON::PP -e '
        open F, "<:raw", $ARGV[0]; read F, $n, 8; read F, $h, unpack "Q<", $n;
        $d = do { local $/; <F> }; $j = decode_json $h; delete $j->{__metadata__};
        for (keys %$j) {
            ($a, $b) = @{$j->{$_}{data_offsets}};
            $t{$_} = [$j->{$_}{dtype}, $j->{$_}{shape}, substr $d, $a, $b - $a];
        }
        eval $ARGV[2]; die $@ if $@; $at = 0; %o = ();
        for (sort keys %t) {
            $e = $at + length $t{$_}[2];
            $o{$_} = {dtype => $t{$_}[0], shape => $t{$_}[1], data_offsets => [$at, $e]}; $at = $e;
        }
        $h = encode_json \%o; open O, ">:raw", $ARGV[1];
        print O pack("Q<", length $h), $h, map { $t{$_}[2] } sort keys %t; close O' "$@"
}

# Write an index from pairs of a tensor and its file.
index() # folder tensor file ...
{
    local folder=$1 comma=
    shift
    {
        printf '{"metadata": {"total_size": 1}, "weight_map": {'
        while [ $# -gt 0 ]; do
            printf '%s"%s": "%s"' "$comma" "$1" "$2"
            comma=', '
            shift 2
        done
        printf '}}\n'
    } >"$folder/model.safetensors.index.json"
}
