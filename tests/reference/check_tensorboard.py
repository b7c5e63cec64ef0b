#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the event files of mics-train with its metrics, read by TensorBoard's own reader.

    check_tensorboard.py FOLDER METRICS

FOLDER: that of mics-train --tensorboard; METRICS: the metrics of the same run, which may have been
resumed. Every step of the metrics must be there once, with its loss, and no other step. Needs the
package tensorboard.
"""
import json
import math
import sys

from tensorboard.backend.event_processing import event_accumulator

TAGS = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/learning_rate": "lr",
        "perf/tokens_per_second": "tokens_per_s"}


def main():
    steps, vals = {}, {}
    with open(sys.argv[2], encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line["event"] == "run":
                for kept in steps, vals:
                    for step in [s for s in kept if s > line["after_step"]]:
                        del kept[step]
            elif line["event"] == "step":
                steps[line["step"]] = line
            elif line["event"] == "val":
                vals[line["step"]] = line
    reader = event_accumulator.EventAccumulator(
        sys.argv[1], size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    reader.Reload()
    expected = {tag: {s: line[key] for s, line in steps.items()} for tag, key in TAGS.items()}
    expected["val/loss"] = {s: line["loss"] for s, line in vals.items()}
    for tag, values in expected.items():
        found = {}
        if tag in reader.Tags()["scalars"]:
            found = {event.step: event.value for event in reader.Scalars(tag)}
        if sorted(found) != sorted(values):
            sys.exit(f"{tag}: steps {sorted(found)} instead of {sorted(values)}")
        for step, value in values.items():
            if not math.isclose(found[step], value, rel_tol=1e-6):
                sys.exit(f"{tag}: step {step}: {found[step]} instead of {value}")
    print(f"{len(steps)} steps and {len(vals)} validations agree; tags:",
          " ".join(reader.Tags()["scalars"]))


if __name__ == "__main__":
    main()
