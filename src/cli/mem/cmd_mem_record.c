/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem record: msmemscope without dumps. */
#include "cli/mem/msmemscope.h"
#include "memory/options/options.h"

static const char *const usage[] = {"[options] -- <program> [arguments]", NULL};

static const struct args_example examples[] = {
	{"host memory of a script, with the Python lines that ask for it",
	 "sonde mem record --device=cpu -- python train.py"},
	{"a program in C or C++, with 20 frames of its own",
	 "sonde mem record --device=cpu --call-stack=c:20 -- ./train"},
	{"then ask: who held memory at the peak", "sonde mem peak memscopeDumpResults"},
	{"what leaks", "sonde mem leaks memscopeDumpResults"},
	{"a csv of it after all", "sonde mem export -o /tmp/csv memscopeDumpResults"},
	{NULL, NULL},
};

static const struct args_section sections[] = {
	{"OUTPUT",
	 "A directory recording_<pid>_<time> below the output path, which holds the recording "
	 "(events.sonde) and nothing that is made of it: a few bytes for each event. Unless "
	 "--call-stack says otherwise it has ten frames of Python for each block, so that "
	 "answers name lines; --call-stack=python:0 leaves them out. Analyses do "
	 "not run while the job does, unless --report asks for their findings. When the job has "
	 "ended, one line says how many events there are, what was lost and where the recording "
	 "is; --quiet and --report=off leave it out where stderr is no terminal."},
	MSMEMSCOPE_STATUS_SECTION(""),
	{"SEE ALSO", "msmemscope(1), sonde-mem(1)"},
	{NULL, NULL},
};

const struct command cmd_mem_record = {
	.name = "mem record",
	.spec = {.name = "sonde mem record",
		 .summary = "run a program and record its memory, without dumps",
		 .description =
			 "As msmemscope --format=none: runs a program and records every block of "
			 "memory that it and its children allocate and free, and writes the "
			 "recording alone. This is the fastest and smallest way to record; `sonde "
			 "mem leaks`, `peak`, `show` and all the others take it.",
		 .usage = usage,
		 .options = mem_option_table,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = msmemscope_run,
};
