/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The steps by which a launcher turns itself into the recorded program: choose our libraries, make
 * the recording and start its recorder, set the environment. No step changes anything that the
 * program could notice besides its environment: not the pid, files, signals or limits.
 */
#ifndef SONDE_LAUNCH_RECORDING_H
#define SONDE_LAUNCH_RECORDING_H

#include "base/text/args.h"
#include "memory/options/config.h"

/* What of a program prevents us from preloading; MEM_PROGRAM_ANY: nothing that can be seen in its file. */
enum mem_program launch_program_kind(const char *path);

/* What of GPUs and NPUs there is below `dev` (/dev), and whether the loader finds CUDA's driver: in
 * one of the folders of `paths` ($LD_LIBRARY_PATH), or because `cache` (/etc/ld.so.cache) has it. */
struct mem_machine launch_inspect_machine(const char *dev, const char *paths, const char *cache);

/* The value of LD_PRELOAD: ours, in their order, then what was there. Libraries that are missing
 * are left out with a notice, as the loader would complain in every process of the job. */
int launch_preload(const char *lib_dir, bool host_memory, struct args *a, struct buf *out,
		   struct err *err);

/* Makes the recording's directory with its config.json, adds its path to out_dir, and starts the
 * recorder. Leaves nothing on failure. record: of `sonde record`, else NULL. */
struct session_record;
int launch_recording(const struct mem_config *c, const struct session_record *record,
		     struct buf *out_dir, struct err *err);

/* Sets what the libraries and their users look for. preload: "" for none of ours. */
int launch_set_environment(const char *dir, const char *preload, struct err *err);

#endif
