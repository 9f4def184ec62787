/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The recorder: one process for a recording, from the first event of the job to its last. Reads
 * the rings of every process of the tree, writes the recording, and from it, live, the dumps.
 */
#ifndef SONDE_RECORDER_RECORDER_H
#define SONDE_RECORDER_RECORDER_H

/* Runs until the job and all its recorded descendants have ended. Returns 0 or a negative errno. */
int recorder_main(const char *session_dir);

#endif
