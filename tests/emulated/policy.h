/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h - which of the operations that could run is the next: the orders of order.h. */
#ifndef MICS_TESTS_EMULATED_POLICY_H
#define MICS_TESTS_EMULATED_POLICY_H

#include <cstdint>
#include <vector>

/* An operation at the head of its stream that could run. */
struct emu_choice {
    struct emu_stream *stream;
    unsigned lane;   /* of its device, which stream it is */
    uint64_t number; /* in which the host enqueued it */
    bool wanted; /* somebody waits for it or for what follows from it, or has waited long enough */
};

class emu_policy
{
  public:
    /* As MICS_EMULATED_ORDER says. */
    emu_policy();

    /* Put the next one first, and so on; leave out what this order keeps back. */
    void order(std::vector<emu_choice> *choices);
    /* How many operations run when something has been enqueued, if so many can. */
    unsigned at_once();
    /* Does the GPU work on while the host does other things? Else only when it must. */
    bool eager() const;

  private:
    enum { LATE, EARLY, OTHERS, DRAWN } kind_;
    uint64_t seed_ = 0, draws_ = 0, favour_ = 0;

    uint64_t draw(uint64_t n); /* some number below n */
    void shuffle(std::vector<emu_choice> *choices);
};

#endif
