/* SPDX-License-Identifier: Apache-2.0 */
#include "policy.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

emu_policy::emu_policy()
{
    const char *text = getenv("MICS_EMULATED_ORDER");
    char *end;

    kind_ = LATE;
    if (!text || !*text || strcmp(text, "late") == 0)
        return;
    if (strcmp(text, "early") == 0)
        kind_ = EARLY;
    else if (strcmp(text, "others") == 0)
        kind_ = OTHERS;
    else
        kind_ = DRAWN;
    seed_ = strtoull(text, &end, 10);
    if (kind_ == DRAWN && *end) {
        fprintf(stderr,
                "emulator: MICS_EMULATED_ORDER=%s: expected early, late, others or a number\n",
                text);
        abort();
    }
}

/* Splitmix (Steele et al. 2014). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t emu_policy::draw(uint64_t n)
{
    return mix(seed_ + ++draws_ * 0x9e3779b97f4a7c15u) % n;
}

/* The same stream is preferred for a while, so that it gets far ahead of others. */
void emu_policy::shuffle(std::vector<emu_choice> *choices)
{
    auto preference = [this](const emu_choice &c) {
        return mix(favour_ ^ (c.lane + 1) * 0x9e3779b97f4a7c15u);
    };

    if (draw(24) == 0)
        favour_ = draw(~0ull);
    std::sort(choices->begin(), choices->end(), [&](const emu_choice &a, const emu_choice &b) {
        return preference(a) < preference(b);
    });
    if (choices->size() > 1 && draw(6) == 0)
        std::swap(choices->front(), (*choices)[draw(choices->size())]);
}

void emu_policy::order(std::vector<emu_choice> *choices)
{
    auto newest_first = [](const emu_choice &a, const emu_choice &b) {
        return a.number > b.number;
    };

    std::sort(choices->begin(), choices->end(), newest_first);
    if (kind_ == EARLY)
        std::reverse(choices->begin(), choices->end());
    if (kind_ == OTHERS)
        std::stable_partition(choices->begin(), choices->end(),
                              [](const emu_choice &c) { return !c.wanted; });
    if (kind_ == DRAWN)
        shuffle(choices);
    if (kind_ == LATE || (kind_ == DRAWN && draw(2) == 0))
        choices->erase(std::remove_if(choices->begin(), choices->end(),
                                      [](const emu_choice &c) { return !c.wanted; }),
                       choices->end());
}

unsigned emu_policy::at_once()
{
    if (kind_ == EARLY)
        return ~0u;
    return kind_ == DRAWN && draw(8) == 0 ? (unsigned)draw(6) : 0;
}

bool emu_policy::eager() const
{
    return kind_ == EARLY;
}
