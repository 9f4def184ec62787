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
	"  --forever        no last step: until it is killed\n"
	"  --seed N         sizes and values follow from it [1]\n"
	"\n"
	"A job of ranks:\n"
	"  --ranks N        a launcher starts N programs with RANK, WORLD_SIZE in their "
	"environment,\n"
	"                   one device each, that reduce their gradients together (libhccl)\n"
	"  --slow-rank R:FACTOR   kernels of rank R take FACTOR times as long\n"
	"  --slower KERNEL:FACTOR[@STEP]   so does one kernel, on every rank, from step STEP on "
	"[1]\n"
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
	"  --bad-names      names of kernels and a mark are not UTF-8\n"
	"  --quiet          print only the result line\n"
	"  -h, --help\n"
	"\n"
	"Examples:\n"
	"  simtrain --steps 5 --layers 8 --devices 2\n"
	"  simtrain --fault leak:2097152 --steps 20\n"
	"  simtrain --ranks 8 --step-ms 100 --forever --quiet --slow-rank 3:2\n"
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

/* FACTOR behind the colon, up to @stop. */
static int parse_factor(const char *text, char stop, double *out, const char **end)
{
	char *at;
	*out = strtod(text, &at);
	*end = at;
	return at == text || (*at && *at != stop) || !(*out > 0 && *out <= 1000) ? -1 : 0;
}

static int parse_slow_rank(struct train_options *o, const char *text)
{
	char *colon;
	const char *end;
	long rank = strtol(text, &colon, 10);
	if (colon == text || *colon != ':' || rank < 0 || rank >= MAX_TRAIN_RANKS ||
	    parse_factor(colon + 1, 0, &o->slow_factor, &end)) {
		fprintf(stderr, "simtrain: --slow-rank '%s' is not RANK:FACTOR, as 3:2.5\n", text);
		return -1;
	}
	o->slow_rank = (int)rank;
	return 0;
}

static int parse_slower(struct train_options *o, const char *text)
{
	size_t n = strcspn(text, ":");
	const char *end = NULL;
	if (!n || n >= sizeof(o->slower_kernel) || !text[n] ||
	    parse_factor(text + n + 1, '@', &o->slower_factor, &end)) {
		fprintf(stderr,
			"simtrain: --slower '%s' is not KERNEL:FACTOR@STEP, as MatMulV2:1.5@20\n",
			text);
		return -1;
	}
	memcpy(o->slower_kernel, text, n);
	o->slower_kernel[n] = 0;
	return *end ? parse_number("slower ...@", end + 1, 1, 1000000000, &o->slower_step) : 0;
}

/* What a launcher tells its ranks: RANK:FD. */
static int parse_rank_of(struct train_options *o, const char *text)
{
	return sscanf(text, "%d:%d", &o->rank, &o->world_fd) == 2 && o->rank >= 0 ? 0 : -1;
}

static int check_ranks(const struct train_options *o)
{
	if (o->ranks && (o->devices > 1 || o->procs > 1)) {
		fprintf(stderr, "simtrain: --ranks makes the processes: leave out --devices and "
				"--procs\n");
		return -1;
	}
	int ranks = o->ranks ? o->ranks : o->devices * o->procs;
	if (o->slow_rank >= ranks || (o->rank >= 0 && o->rank >= ranks)) {
		fprintf(stderr, "simtrain: --slow-rank %d: the last rank is %d\n", o->slow_rank,
			ranks - 1);
		return -1;
	}
	return 0;
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
	O_FOREVER,
	O_BAD_NAMES,
	O_RANKS,
	O_SLOW_RANK,
	O_SLOWER,
	O_RANK_OF,
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
	{"forever", 0, NULL, O_FOREVER},
	{"bad-names", 0, NULL, O_BAD_NAMES},
	{"ranks", 1, NULL, O_RANKS},
	{"slow-rank", 1, NULL, O_SLOW_RANK},
	{"slower", 1, NULL, O_SLOWER},
	{"rank-of", 1, NULL, O_RANK_OF},
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
	case O_FOREVER:
		o->forever = 1;
		return 0;
	case O_BAD_NAMES:
		o->bad_names = 1;
		return 0;
	case O_RANKS:
		return parse_number("ranks", arg, 1, MAX_TRAIN_RANKS, &o->ranks);
	case O_SLOW_RANK:
		return parse_slow_rank(o, arg);
	case O_SLOWER:
		return parse_slower(o, arg);
	case O_RANK_OF:
		return parse_rank_of(o, arg);
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
				    .rank = -1,
				    .world_fd = -1,
				    .slow_rank = -1,
				    .slower_step = 1,
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
	return check_ranks(o);
}
