# SPDX-License-Identifier: Apache-2.0
"""Run all cases and mutants on all cores, and print TAP."""

import argparse
import glob
import multiprocessing
import os
import re
import sys
import time

from cases import FOLDERS, Case, Failure, Library, short
from hopper import hopper_mutants
from instructions import Instructions
from mutants import MUTANTS
from ptx import Kernel, PtxError

# Chips in the order in which they run: code of a later one that an earlier one has too is not
# executed again.
CHIPS = list(FOLDERS)


class Suite:
    """What there is to run. Each worker process has its own."""

    def __init__(self, folder, seed):
        self.folder, self.seed = folder, seed
        self.mutants = list(MUTANTS)
        if os.path.isdir(os.path.join(folder, "sm_90a")): # a build with HOPPER=1
            self.mutants += hopper_mutants.MUTANTS
        self.libraries = {chip: Library(folder, chip) for chip in CHIPS}
        self.cases = {}
        for chip in CHIPS:
            for path in sorted(glob.glob(os.path.join(folder, "cases", chip, "*.json"))):
                name = os.path.basename(path)[:-len(".json")]
                self.cases[chip, name] = path

    def chips(self):
        """Those that the plug-in was built for."""
        return {chip for chip, _ in self.cases}

    def case(self, chip, name):
        if (chip, name) not in self.cases:
            raise Failure(f"there is no case {name} of {chip}")
        return Case(self.cases[chip, name])

    def uncovered(self):
        """(cases that execute code which no earlier chip has, entries that no case launches)."""
        known, chosen, missing = {}, [], []
        for chip in CHIPS:
            library = self.libraries[chip]
            prints = {name: library.entry(name).fingerprint() for name in library.names()}
            fresh = set()
            for of, name in self.cases:
                if of == chip:
                    kernels = self.case(chip, name).kernels()
                    if any(prints.get(k) not in known for k in kernels):
                        chosen.append((chip, name))
                        fresh.update(prints[k] for k in kernels if k in prints)
            known.update(dict.fromkeys(fresh))
            missing += [(chip, name) for name in prints if prints[name] not in known]
        return chosen, missing

    def check(self, chip, name):
        """An entry is understood as a whole."""
        Instructions(Kernel(self.libraries[chip].entry(name))).check()

    def run_case(self, chip, name, prompt):
        case = self.case(chip, name)
        share = case.execute(self.libraries[chip], self.seed, prompt)
        kernels = len(case.kernels())
        return f"{kernels} kernel{'s' if kernels != 1 else ''}, error {share:.2f} of the tolerance"

    def run_mutant(self, mutant):
        """How the mutant was detected."""
        case = self.case(mutant.chip, mutant.case)
        changed = set()

        def change(entry):
            text = mutant.change(entry)
            if text is None:
                return entry
            changed.add(entry.name)
            return text

        for prompt in (False, True):
            try:
                case.execute(self.libraries[mutant.chip], self.seed, prompt, change)
            except (Failure, PtxError) as error:
                if changed and re.search(mutant.because, str(error)):
                    return str(error)
                raise Failure(f"for another reason than /{mutant.because}/: {error}") from error
            if not changed:
                raise Failure(f"'{mutant.pattern}' is in no kernel '{mutant.kernel}' of the case")
        raise Failure("nothing is wrong with the results")


SUITE = None


def start(folder, seed):
    global SUITE # pylint: disable=global-statement
    SUITE = Suite(folder, seed)


def perform(task):
    """(task, whether it is right, text, seconds)."""
    begun = time.perf_counter()
    what, *args = task
    try:
        if what == "check":
            for chip, name in args[0]:
                SUITE.check(chip, name)
            text = ""
        elif what == "case":
            text = SUITE.run_case(*args)
        else:
            text = SUITE.run_mutant(SUITE.mutants[args[0]])
        good = True
    except (Failure, PtxError) as error:
        good, text = False, str(error)
    return task, good, text, time.perf_counter() - begun


def describe(suite, task, text):
    what, *args = task
    if what == "check":
        return f"every instruction is known: {os.path.basename(args[1])}", text
    if what == "case":
        chip, name, prompt = args
        return f"{name} ({chip}{', copies and products at once' if prompt else ''})", text
    return f"mutant detected: {suite.mutants[args[0]].what}", text


def is_wanted(name, patterns):
    return not patterns or any(p in name for p in patterns)


def tasks_of(suite, patterns):
    """All that is to be done, what takes long first."""
    chosen, missing = suite.uncovered()
    if patterns: # a case that is asked for runs on every chip
        chosen = list(suite.cases)
    tasks = []
    for chip, name in chosen:
        if is_wanted(name, patterns):
            size = os.path.getsize(suite.cases[chip, name][:-len("json")] + "bin")
            slow = name.startswith("attention")
            tasks.append(((slow, size), ("case", chip, name, False)))
            if slow and is_asynchronous(suite, chip, name):
                tasks.append(((slow, size), ("case", chip, name, True)))
    tasks.sort(key=lambda task: task[0], reverse=True)
    tasks = [task for _, task in tasks]
    built = suite.chips()
    tasks += [("mutant", i) for i, m in enumerate(suite.mutants)
              if is_wanted("mutant " + m.what, patterns) and m.chip in built]
    if not patterns:
        files = {}
        for chip in CHIPS:
            library = suite.libraries[chip]
            for name in library.names():
                files.setdefault(library.path(name), []).append((chip, name))
        tasks += [("check", entries, os.path.relpath(path, suite.folder))
                  for path, entries in files.items()]
    return tasks, missing if not patterns else []


def skips_of(suite, patterns):
    """(what, chip) of what cannot run because the plug-in was not built for the chip. Without
    recordings the names of its cases are not known, so one line stands for all, with patterns
    too."""
    absent = [chip for chip in CHIPS if chip not in suite.chips()]
    return ([(f"all cases of {chip}", chip) for chip in absent] +
            [(f"mutant detected: {m.what}", m.chip) for m in suite.mutants
             if is_wanted("mutant " + m.what, patterns) and m.chip in absent])


def is_asynchronous(suite, chip, name):
    """Whether it matters when copies arrive."""
    library = suite.libraries[chip]
    texts = (library.entry(k).text for k in suite.case(chip, name).kernels())
    return any("cp.async" in text or "wgmma" in text for text in texts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("pattern", nargs="*")
    args = parser.parse_args()
    suite = Suite(args.folder, args.seed)
    tasks, missing = tasks_of(suite, args.pattern)
    skips = skips_of(suite, args.pattern)
    if not tasks and not any(what.startswith("mutant") for what, _ in skips):
        absent = "".join(f"; the plug-in was not built for {chip}" for _, chip in skips)
        sys.exit(f"tests/ptx/run: no case and no mutant has such a name{absent}")
    print(f"1..{len(skips) + len(tasks) + bool(not args.pattern)}", flush=True)
    number, failed = 0, 0
    for what, chip in skips:
        number += 1
        print(f"ok {number} - {what} # SKIP not built for {chip}", flush=True)
    if not args.pattern:
        number += 1
        failed += bool(missing)
        print(f"{'not ' if missing else ''}ok {number} - every kernel that ships has a case")
        for chip, name in missing:
            print(f"# no case launches {name} ({chip}): {short(name)}", flush=True)
    with multiprocessing.Pool(len(os.sched_getaffinity(0)), start,
                              (args.folder, args.seed)) as pool:
        for task, good, text, seconds in pool.imap(perform, tasks):
            number += 1
            failed += not good
            what, text = describe(suite, task, text)
            note = f": {text}" if text else ""
            print(f"{'' if good else 'not '}ok {number} - {what}{note}, {seconds:.1f} s",
                  flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
