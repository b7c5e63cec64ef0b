# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the checks must detect.

Each is a change of the PTX of one kernel, and the smallest case that shows it. A pattern that is
not in the kernel any more is a failure: the mutant has to follow the code.
"""

import re

from ptx import Entry

ALL = 0 # matches
VALUE = " instead of "
LATE = "nothing was written, or where a copy has not arrived"
_DOCUMENT_END, _NO_END = r"(setp\.eq\.s32 \t%p\d+, %r\d+, )-2;", r"\g<1>-3;"
_MMA_64 = "attention_mma_bf16_2x33_heads_2_2_of_64_full"


class Mutant:
    """kernel: a part of the entry's name. pattern, replacement: of a regular expression on its
    text, whose first `count` matches are changed; because: one that describes the failure."""

    def __init__(self, what, chip, case, kernel, pattern, replacement, because, count=1):
        self.what, self.chip, self.case, self.kernel = what, chip, case, kernel
        self.pattern, self.replacement, self.count = pattern, replacement, count
        self.because = because

    def change(self, entry):
        """The changed entry; None where there is nothing to change."""
        if self.kernel not in entry.name:
            return None
        text, changes = re.subn(self.pattern, self.replacement, entry.text, count=self.count)
        return Entry(entry.module, entry.name, text, entry.line) if changes else None


MUTANTS = [
    Mutant("a row guard that lets one row more through", "sm_80", "embedding_bf16_33",
           "embedding_kernel", r"setp\.ge\.u32 \t%p1,", "setp.gt.u32 \t%p1,", "an access of"),
    Mutant("an element guard that lets one element more through", "sm_80", "accumulate_f32_1031",
           "flat_kernel", r"setp\.ge\.u64 \t%p1,", "setp.gt.u64 \t%p1,", "an access of"),
    Mutant("a wrong leading dimension", "sm_80", "swiglu_f32_2x259", "swiglu_kernel",
           r"(mul\.wide\.u32 \t%rd\d+, %r\d+, %r\d+;\s*(?:\.loc[^\n]*\s*)?)shl\.b64 \t(%rd\d+), "
           r"(%rd\d+), 1;", r"\1shl.b64 \t\2, \3, 0;", VALUE),
    Mutant("an fma with the sign of a factor changed", "sm_80", "gelu_f32_1031", "gelu",
           r"fma\.rn\.f32 \t(%f\d+), (%f\d+), (%f\d+), (%f\d+);",
           r"{ .reg .f32 less; neg.f32 less, \2; fma.rn.f32 \1, less, \3, \4; }", VALUE, ALL),
    Mutant("a scale of one step more", "sm_80", "sum_blocks_3_f32_int8", "sum_blocks_kernel",
           "0f42FE0000", "0f43000000", VALUE),
    Mutant("steps that are rounded towards zero", "sm_80", "sum_blocks_3_int8_int4",
           "sum_blocks_kernel", r"cvt\.rni\.s32\.f32", "cvt.rzi.s32.f32", VALUE, ALL),
    Mutant("a largest number of half a block", "sm_80", "sum_blocks_3_int8_int8",
           "sum_blocks_kernel", r"(shfl\.sync\.bfly\.b32 [^;]*, )%r\d+, (%r\d+, %r\d+;)",
           r"\g<1>0, \2", VALUE),
    Mutant("an instruction that is not known", "sm_80", "gelu_f32_1031", "gelu",
           r"ex2\.approx\.ftz\.f32", "tanh.approx.f32", "instruction tanh.approx.f32 is not known",
           ALL),
    Mutant("a barrier between a block's sums that is missing", "sm_80", "layernorm_f32_3x1288",
           "norm_kernel", r"bar\.sync \t0;", "", "without a barrier|nothing was written"),
    Mutant("a shuffle from another lane", "sm_80",
           "attention_grad_mma_bf16_2x33_heads_2_2_of_64_full", "row_products",
           r"mov\.u32 \t(%r\d+), 4;", r"mov.u32 \t\1, 3;", VALUE),
    Mutant("matrices that are not transposed when they are loaded", "sm_80", _MMA_64, "attend",
           r"\.x4\.trans\.shared", ".x4.shared", VALUE, ALL),
    Mutant("matrices loaded to the wrong registers", "sm_80", _MMA_64, "attend",
           r"(ldmatrix[^{;]*\{%r\d+), (%r\d+), (%r\d+),", r"\1, \3, \2,", VALUE, ALL),
    Mutant("a wrong swizzle", "sm_80", _MMA_64, "attend", r"xor\.b32  \t(%r\d+), (%r\d+), 64;",
           r"xor.b32  \t\1, \2, 32;", VALUE, ALL),
    Mutant("a copy that is not waited for", "sm_80", _MMA_64, "attend",
           r"cp\.async\.wait_group \d;", "", LATE, ALL),
    Mutant("a barrier behind copies that is missing", "sm_80", _MMA_64, "attend",
           r"bar\.sync \t0;", "", f"without a barrier|{LATE}", ALL),
    Mutant("keys of other documents", "sm_80",
           "attention_mma_bf16_1x200_heads_1_1_of_64_causal_documents", "attend", _DOCUMENT_END,
           _NO_END, VALUE, ALL),
    Mutant("keys of other documents, without tensor cores", "sm_80",
           "attention_plain_f32_1x33_heads_1_1_of_9_causal_documents", "plain", _DOCUMENT_END,
           _NO_END, VALUE, ALL),
    Mutant("queries of other documents", "sm_80",
           "attention_grad_mma_bf16_1x77_heads_1_1_of_128_causal_documents", "", _DOCUMENT_END,
           _NO_END, VALUE, ALL),
    Mutant("an encoder's keys of other documents", "sm_80",
           "attention_mma_bf16_1x77_heads_1_1_of_128_full_documents", "attend", _DOCUMENT_END,
           _NO_END, VALUE, ALL),
    Mutant("an encoder's keys of other documents, without tensor cores", "sm_80",
           "attention_plain_f32_1x66_heads_1_1_of_9_full_documents", "plain", _DOCUMENT_END,
           _NO_END, VALUE, ALL),
    Mutant("an encoder's queries of other documents", "sm_80",
           "attention_grad_mma_bf16_1x77_heads_1_1_of_128_full_documents", "", _DOCUMENT_END,
           _NO_END, VALUE, ALL),
    Mutant("a part of an expert's rows that is not waited for", "sm_80", "grouped_nn_bf16_uneven",
           "grouped_mma", r"cp\.async\.wait_group \d;", "", LATE, ALL),
    Mutant("an expert's rows that are not transposed for its gradient", "sm_80",
           "grouped_grad_bf16_f32_uneven", "grouped_grad_mma", r"\.x4\.trans\.shared",
           ".x4.shared", VALUE, ALL),
    Mutant("another expert for each tile", "sm_80", "grouped_nt_bf16_uneven", "grouped_mma",
           r"brev\.b32 \t(%r\d+), (%r\d+);", r"mov.u32 \t\1, 1;", f"{VALUE}|an access of"),
]
