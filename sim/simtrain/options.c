/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"Usage: simtrain [options]\n"
	"\n"
	"A training job on the simulated Ascend stack. It allocates, launches and frees like a "
	"small\n"
	"transformer: weights and optimizer state once, activations and gradients in every step. "
	"For one\n"
	"seed it prints the same lines every time, so a run under a tool can be compared with a "
	"plain one.\n"
	"\n"
	"Size:\n"
	"  --steps N        training steps [10]\n"
	"  --layers N       layers of the model [4]\n"
	"  --devices N      devices per process, one thread each [1]\n"
	"  --procs N        processes, forked before the device is touched; process P starts at\n"
	"                   device P*devices (wrapping around) [1]\n"
	"  --threads N      extra host threads per process that prepare batches [0]\n"
	"  --step-ms N      a step takes at least N milliseconds [0: as fast as it goes]\n"
	"  --seed N         sizes and values follow from it [1]\n"
	"\n"
	"Memory:\n"
	"  --pool NAME      pta (torch_npu) | mindspore | atb | hal (no pool, the driver alone) "
	"[pta]\n"
	"  --aten           announce every operator and its tensors as PyTorch would\n"
	"\n"
	"Faults, always in the first process's first device; may be repeated:\n"
	"  --fault leak[:BYTES]   one buffer per step is never freed [1048576]\n"
	"  --fault early          a buffer is allocated long before its first use\n"
	"  --fault late           a buffer is freed long after its last use\n"
	"  --fault idle           a buffer waits through 3200 operators between two uses\n"
	"  --fault oob            an operator writes 64 bytes past its output, into a neighbour\n"
	"  --fault oom            one step asks for more than the device has, then goes on\n"
	"  --fault crash[:HOW]    the job ends: segv | abort | kill | exit (status 3) [segv]\n"
	"  --fault-step K         first step with the fault (leak: and all later ones) [3]\n"
	"\n"
	"  --quiet          print only the result line\n"
	"  -h, --help\n"
	"\n"
	"Examples:\n"
	"  simtrain --steps 5 --layers 8 --devices 2\n"
	"  simtrain --fault leak:2097152 --steps 20\n"
	"  msmemscope --events=alloc,free,launch,access -- simtrain --aten --fault late\n";

static int parse_number(const char *name, const char *text, int min, int max, int *out)
{
	char *end;
	long v = strtol(text, &end, 10);
	if (!*text || *end || v < min || v > max) {
		fprintf(stderr, "simtrain: --%s '%s' is not a number from %d to %d\n", name, text,
			min, max);
		return -1;
	}
	*out = (int)v;
	return 0;
}

static int parse_pool(struct train_options *o, const char *text)
{
	static const char *const names[] = {
		[TRAIN_PTA] = "pta",
		[TRAIN_MINDSPORE] = "mindspore",
		[TRAIN_ATB] = "atb",
		[TRAIN_HAL] = "hal",
	};
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			o->pool = (enum train_pool)i;
			o->pool_name = names[i];
			return 0;
		}
	fprintf(stderr, "simtrain: --pool '%s' is none of pta, mindspore, atb, hal\n", text);
	return -1;
}

static int parse_crash(struct train_options *o, const char *how)
{
	static const char *const names[] = {"segv", "abort", "kill", "exit"};
	for (unsigned i = 0; how && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(how, names[i])) {
			o->crash = (enum train_crash)i;
			return 0;
		}
	if (!how)
		return 0;
	fprintf(stderr, "simtrain: --fault crash:'%s' is none of segv, abort, kill, exit\n", how);
	return -1;
}

static int parse_fault(struct train_options *o, const char *text)
{
	static const struct {
		const char *name;
		enum train_fault bit;
	} faults[] = {
		{"leak", FAULT_LEAK},	{"early", FAULT_EARLY}, {"late", FAULT_LATE},
		{"idle", FAULT_IDLE},	{"oob", FAULT_OOB},	{"oom", FAULT_OOM},
		{"crash", FAULT_CRASH},
	};
	size_t n = strcspn(text, ":");
	const char *arg = text[n] ? text + n + 1 : NULL;
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		if (strlen(faults[i].name) != n || strncmp(faults[i].name, text, n))
			continue;
		o->faults |= faults[i].bit;
		if (faults[i].bit == FAULT_CRASH)
			return parse_crash(o, arg);
		if (faults[i].bit == FAULT_LEAK && arg) {
			char *end;
			o->leak_bytes = strtoull(arg, &end, 10);
			if (*end || !o->leak_bytes)
				break;
			return 0;
		}
		if (!arg)
			return 0;
		break;
	}
	fprintf(stderr, "simtrain: --fault '%s' is not understood, see --help\n", text);
	return -1;
}

enum {
	O_STEPS,
	O_LAYERS,
	O_DEVICES,
	O_PROCS,
	O_THREADS,
	O_STEP_MS,
	O_FAULT_STEP,
	O_SEED,
	O_POOL,
	O_FAULT,
	O_ATEN,
	O_QUIET,
	O_HELP
};

static const struct option longs[] = {
	{"steps", 1, NULL, O_STEPS},
	{"layers", 1, NULL, O_LAYERS},
	{"devices", 1, NULL, O_DEVICES},
	{"procs", 1, NULL, O_PROCS},
	{"threads", 1, NULL, O_THREADS},
	{"step-ms", 1, NULL, O_STEP_MS},
	{"fault-step", 1, NULL, O_FAULT_STEP},
	{"seed", 1, NULL, O_SEED},
	{"pool", 1, NULL, O_POOL},
	{"fault", 1, NULL, O_FAULT},
	{"aten", 0, NULL, O_ATEN},
	{"quiet", 0, NULL, O_QUIET},
	{"help", 0, NULL, O_HELP},
	{NULL, 0, NULL, 0},
};

static int apply(struct train_options *o, int option, const char *arg)
{
	switch (option) {
	case O_STEPS:
		return parse_number("steps", arg, 0, 1000000000, &o->steps);
	case O_LAYERS:
		return parse_number("layers", arg, 1, 512, &o->layers);
	case O_DEVICES:
		return parse_number("devices", arg, 1, 16, &o->devices);
	case O_PROCS:
		return parse_number("procs", arg, 1, 64, &o->procs);
	case O_THREADS:
		return parse_number("threads", arg, 0, 256, &o->threads);
	case O_STEP_MS:
		return parse_number("step-ms", arg, 0, 3600000, &o->step_ms);
	case O_FAULT_STEP:
		return parse_number("fault-step", arg, 1, 1000000000, &o->fault_step);
	case O_SEED:
		o->seed = strtoull(arg, NULL, 0);
		return 0;
	case O_POOL:
		return parse_pool(o, arg);
	case O_FAULT:
		return parse_fault(o, arg);
	case O_ATEN:
		o->aten = 1;
		return 0;
	case O_QUIET:
		o->quiet = 1;
		return 0;
	case O_HELP:
	case 'h':
		fputs(help, stdout);
		return 1;
	default: /* getopt has said why */
		return -1;
	}
}

int options_parse(struct train_options *o, int argc, char **argv)
{
	*o = (struct train_options){.steps = 10,
				    .layers = 4,
				    .devices = 1,
				    .procs = 1,
				    .seed = 1,
				    .pool_name = "pta",
				    .leak_bytes = 1 << 20,
				    .fault_step = 3};
	int c;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		int r = apply(o, c, optarg);
		if (r)
			return r;
	}
	if (optind < argc) {
		fprintf(stderr, "simtrain: '%s' is not an option\n", argv[optind]);
		return -1;
	}
	return 0;
}
