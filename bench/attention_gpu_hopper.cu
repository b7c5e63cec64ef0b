/* SPDX-License-Identifier: Apache-2.0 */
/* attention_gpu_hopper.cu - the attention forward on compute capability 9.0 with several tile
 * shapes. */
#include "attention_gpu.h"
#include "cuda/hopper/attention_hopper.cuh"

template <int D, int groups, int keys, int stages, int registers, bool turns>
static cudaError_t run(const struct mics_args_attention *args)
{
    typedef hopper_policy<D, true, groups, keys, stages, registers, turns> policy;
    struct hopper_forward f = hopper_forward_of(args);
    CUtensorMap map;
    cudaError_t error = hopper_map_of(&map, args);

    return error == cudaSuccess ? hopper_launch<policy>(map, &f, args->B * args->H, nullptr)
                                : error;
}

static const struct attention_gpu_hopper shapes[] = {
    {64, " 64  3 x wg 128 2 stages", run<64, 3, 128, 2, 160, true>},
    {64, " 64  3 x wg 128 no turns", run<64, 3, 128, 2, 160, false>},
    {64, " 64  3 x wg 128 4 stages", run<64, 3, 128, 4, 160, true>},
    {64, " 64  3 x wg  64 4 stages", run<64, 3, 64, 4, 160, true>},
    {64, " 64  2 x wg 128 2 stages", run<64, 2, 128, 2, 240, true>},
    {128, "128  2 x wg 128 2 stages", run<128, 2, 128, 2, 240, true>},
    {128, "128  2 x wg 128 no turns", run<128, 2, 128, 2, 240, false>},
    {128, "128  2 x wg  64 4 stages", run<128, 2, 64, 4, 240, true>},
    {128, "128  3 x wg  64 4 stages", run<128, 3, 64, 4, 160, true>},
};

const struct attention_gpu_hopper *attention_gpu_hopper_at(unsigned i)
{
    return i < sizeof(shapes) / sizeof(shapes[0]) ? &shapes[i] : nullptr;
}
