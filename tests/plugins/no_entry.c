/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library, but no plug-in. */
extern int mics_something_else;
int mics_something_else = 1;
