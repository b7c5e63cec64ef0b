/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_set.h - files and folders that are replaced together.
 *
 * A set has a name, a path such as "data/x". Its members, here x.bin, x.idx and the folder
 * x.tokenizer, are written to a folder of their own, x.tmp.PID, and take their places when all of
 * them are complete:
 *
 *     mics_file_set_begin("data/x", &set, err);       // refused while another process writes it
 *     mics_file_set_add(set, "x.bin", path, err);     // write the file to `path`
 *     mics_file_set_add(set, "x.idx", path, err);
 *     mics_file_set_commit(set, err);
 *     mics_file_set_free(set);                        // without commit: nothing has happened
 *
 * Whatever happens, one of the sets is whole. Until x.commit is written, which lists the members,
 * nothing of the old set has been touched. From then on the new set is on disk, under one name or
 * the other: an error puts the old set back, and after a crash mics_file_set_recover(), which
 * readers call before they open a member, and mics_file_set_begin() put the new one in place.
 * Meanwhile members are missing rather than mixed: those of the old set leave, the last one first,
 * before those of the new set come, the last one last. So the member that describes the others is
 * the last.
 *
 * x.lock is there while a process writes the set. What a killed process left is removed by the next
 * one. On a file system without locks nothing is removed or refused.
 */
#ifndef MICS_BASE_FILE_SET_H
#define MICS_BASE_FILE_SET_H

#include "base/err.h"
#include "base/file.h"

struct mics_file_set;

/* Begin to write the set. The folder that contains `name` must be there. MICS_ERR_IO: another
 * process writes it, or it is not possible. */
enum mics_status mics_file_set_begin(const char *name, struct mics_file_set **out,
                                     struct mics_err *err);

/* The folder in which members are written. */
const char *mics_file_set_folder(const struct mics_file_set *set);

/* Add a member, by its path from the folder that contains the set's name, without "..": *path is
 * where the caller writes the file, or makes the folder, and fsyncs it. If it is not there when the
 * set is committed, the new set has no such member, and that of the old one goes. A symbolic link
 * is replaced by the file. */
enum mics_status mics_file_set_add(struct mics_file_set *set, const char *member,
                                   char path[MICS_PATH_MAX], struct mics_err *err);

/* Replace the old set by the new one. After a failure the old one is there, unless *err says that
 * the new one waits to be recovered. */
enum mics_status mics_file_set_commit(struct mics_file_set *set, struct mics_err *err);

/* Remove what was not committed, and the lock. NULL is fine. */
void mics_file_set_free(struct mics_file_set *set);

/* Complete what a process that was killed in mics_file_set_commit() began; waits for one that is
 * still there. Costs a look for a file if there is nothing to do. */
enum mics_status mics_file_set_recover(const char *name, struct mics_err *err);

#endif
