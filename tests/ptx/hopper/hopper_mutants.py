# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the kernels for compute capability 9.0 that the checks must detect."""

from mutants import ALL, LATE, VALUE, Mutant

_HOPPER_64 = "attention_hopper_bf16_1x77_heads_2_1_of_64_causal"
_HOPPER_GRAD_64 = "attention_grad_hopper_bf16_2x33_heads_1_1_of_64_full"

MUTANTS = [
    Mutant("a transposed factor of a warpgroup's product", "sm_90", _HOPPER_64, "hopper_attend",
           r"(\}, %rd\d+, p, 1, 1, )1;", r"\g<1>0;", f"{VALUE}|{LATE}", ALL),
    Mutant("a matrix descriptor that begins elsewhere", "sm_90", _HOPPER_64, "hopper_attend",
           r"(add\.s32 \t%r\d+, %r\d+, )24608;", r"\g<1>24640;", VALUE),
    Mutant("a matrix descriptor with a wrong stride", "sm_90", _HOPPER_64, "hopper_attend",
           str(1 << 62 | 64 << 32 | 1 << 16), str(1 << 62 | 32 << 32 | 1 << 16), VALUE),
    Mutant("a matrix descriptor with a wrong leading dimension", "sm_90",
           "attention_hopper_bf16_1x130_heads_1_1_of_128_full", "hopper_attend",
           str(1 << 62 | 64 << 32 | 1024 << 16), str(1 << 62 | 64 << 32 | 512 << 16), VALUE),
    Mutant("a dropped fence.proxy.async", "sm_90", _HOPPER_64, "hopper_attend",
           r"fence\.proxy\.async\.shared::cta;", "", "without fence.proxy.async"),
    Mutant("a wait for a bulk copy that is missing", "sm_90", _HOPPER_64, "hopper_attend",
           r"selp\.u32 (%r\d+), 1, 0, p;", r"selp.u32 \1, 1, 1, p;",
           f"{LATE}|without a barrier", ALL),
    Mutant("a place that is filled again while it is read", "sm_90",
           "attention_hopper_bf16_1x390_heads_1_1_of_64_causal", "hopper_attend",
           r"selp\.u32 (%r\d+), 1, 0, p;", r"selp.u32 \1, 1, 1, p;",
           "overwrites|more threads arrive", 2),
    Mutant("too few bytes announced to an mbarrier", "sm_90", _HOPPER_64, "hopper_attend",
           r"(mov\.u32 \t%r\d+, )24576;", r"\g<1>16384;", f"{LATE}|without a barrier"),
    Mutant("too many bytes announced to an mbarrier", "sm_90", _HOPPER_64, "hopper_attend",
           r"(mov\.u32 \t%r\d+, )24576;", r"\g<1>32768;", "waits for ever"),
    Mutant("a product that is not waited for", "sm_90", _HOPPER_64, "hopper_attend",
           r"wgmma\.wait_group\.sync\.aligned 0;", "", "was not waited for"),
    Mutant("a wgmma.fence that is missing", "sm_90", _HOPPER_64, "hopper_attend",
           r"wgmma\.fence\.sync\.aligned;", "", "wgmma.fence", ALL),
    Mutant("more registers than the block has", "sm_90", _HOPPER_64, "hopper_attend",
           r"(setmaxnreg\.inc\.sync\.aligned\.u32) 160;", r"\1 168;", "waits for ever"),
    Mutant("a named barrier at which too few arrive", "sm_90",
           "attention_hopper_bf16_1x200_heads_2_1_of_128_causal", "hopper_attend",
           r"bar\.arrive [^;]*;", "", "waits for ever"),
    # P and dS stay in registers: the only fence is the one behind the mbarriers' initialisation.
    Mutant("mbarriers of bulk copies without fence.proxy.async", "sm_90", _HOPPER_GRAD_64,
           "grad_rows_hopper", r"fence\.proxy\.async\.shared::cta;", "",
           "an mbarrier of a bulk copy .*without fence.proxy.async"),
    Mutant("a wait for a block's own tiles that is missing", "sm_90", _HOPPER_GRAD_64,
           "grad_rows_hopper", r"(setmaxnreg\.inc[\s\S]*?selp\.u32 %r\d+, 1, )0, p;",
           r"\g<1>1, p;", f"{LATE}|without a barrier"),
    Mutant("a matrix descriptor that begins 16 rows further", "sm_90", _HOPPER_GRAD_64,
           "grad_rows_hopper", r"(add\.s32 \t%r\d+, %r\d+, )43008;", r"\g<1>45056;", VALUE),
]
