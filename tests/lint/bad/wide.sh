#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wide.sh - a line of 101 columns, which the check of widths must find.
echo "this line of a shell script is one column wider than what the check of widths is able to admit"
