/* SPDX-License-Identifier: Apache-2.0 */
/* wide.c - a line of 101 columns, for tests/lint/widths. */
int mics_wide_line_that_is_here_to_be_found(int first_argument, int second_argument, int arguments_3);
