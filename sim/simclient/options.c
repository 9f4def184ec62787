/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

static const char help[] =
	"Usage: simclient [--npu | --old | --kineto] [options]\n"
	"\n"
	"Processes that talk to the node daemon as a framework does, and train nothing.\n"
	"\n"
	"Who it is:\n"
	"  --npu            torch_npu with its monitor: one process polls, ranks trace and "
	"monitor\n"
	"                   (the default)\n"
	"  --old            the same before November 2025: abstract sockets, short status "
	"messages\n"
	"  --kineto         PyTorch's libkineto: every rank polls by itself\n"
	"\n"
	"Where the daemon is (default: as the real client looks for it):\n"
	"  --socket PATH    this socket; of dynolog.sock, data goes to dynolog_data.sock beside "
	"it\n"
	"  --dir DIR        DIR/dynolog, as with KINETO_IPC_SOCKET_DIR\n"
	"  --home DIR       DIR/dynolog.sock instead of the one in your home directory\n"
	"  --abstract       the abstract name\n"
	"\n"
	"What it does:\n"
	"  --ranks N        a launcher with N ranks, each with RANK in its environment\n"
	"  --steps N        steps; 0: until it is stopped [100]\n"
	"  --step-ms N      length of a step [100]\n"
	"  --poll-ms N      how often it asks for a config [npu: 2000, after 11 steps the length "
	"of a\n"
	"                   step, 1 to 50 s; kineto: 5000]\n"
	"  --status-ms N    npu: the trace status is told at most that often [1000]\n"
	"  --warmup-ms N    kineto: wait before a trace by duration [5000]\n"
	"  --quiet          print nothing\n"
	"  -h, --help\n"
	"\n"
	"Examples:\n"
	"  simclient --ranks 2 --step-ms 200 --steps 0\n"
	"  KINETO_IPC_SOCKET_DIR=/tmp/fabric simclient --kineto --ranks 8\n";

enum {
	O_NPU = 1000,
	O_OLD,
	O_KINETO,
	O_SOCKET,
	O_DIR,
	O_HOME,
	O_ABSTRACT,
	O_RANKS,
	O_STEPS,
	O_STEP_MS,
	O_POLL_MS,
	O_STATUS_MS,
	O_WARMUP_MS,
	O_QUIET,
};

static const struct option longs[] = {
	{"npu", 0, NULL, O_NPU},
	{"old", 0, NULL, O_OLD},
	{"kineto", 0, NULL, O_KINETO},
	{"socket", 1, NULL, O_SOCKET},
	{"dir", 1, NULL, O_DIR},
	{"home", 1, NULL, O_HOME},
	{"abstract", 0, NULL, O_ABSTRACT},
	{"ranks", 1, NULL, O_RANKS},
	{"steps", 1, NULL, O_STEPS},
	{"step-ms", 1, NULL, O_STEP_MS},
	{"poll-ms", 1, NULL, O_POLL_MS},
	{"status-ms", 1, NULL, O_STATUS_MS},
	{"warmup-ms", 1, NULL, O_WARMUP_MS},
	{"quiet", 0, NULL, O_QUIET},
	{"help", 0, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static bool number(const char *text, int min, int max, int *out)
{
	char *end;
	long v = strtol(text, &end, 10);
	if (!*text || *end || v < min || v > max) {
		fprintf(stderr, "simclient: '%s' is not a number from %d to %d\n", text, min, max);
		return false;
	}
	*out = (int)v;
	return true;
}

static void set_place(struct client_options *o, int kind, const char *path)
{
	o->place.kind = kind;
	o->place.path = path;
}

/* Where the real one looks, if nobody says. */
static void default_place(struct client_options *o)
{
	const char *dir = getenv("KINETO_IPC_SOCKET_DIR");
	if (o->kind != CLIENT_NPU_OLD && dir && *dir)
		set_place(o, PLACE_DIR, dir);
	else
		set_place(o, o->kind == CLIENT_NPU ? PLACE_HOME : PLACE_ABSTRACT, NULL);
}

/* false: a bad value, told. */
static bool take(struct client_options *o, int option, const char *arg, bool *placed)
{
	switch (option) {
	case O_NPU:
	case O_OLD:
	case O_KINETO:
		o->kind = option == O_NPU   ? CLIENT_NPU
			  : option == O_OLD ? CLIENT_NPU_OLD
					    : CLIENT_KINETO;
		return true;
	case O_SOCKET:
	case O_DIR:
	case O_HOME:
	case O_ABSTRACT:
		*placed = true;
		set_place(o,
			  option == O_SOCKET ? PLACE_SOCKET
			  : option == O_DIR  ? PLACE_DIR
			  : option == O_HOME ? PLACE_HOME
					     : PLACE_ABSTRACT,
			  arg);
		return true;
	case O_RANKS:
		return number(arg, 1, 4096, &o->ranks);
	case O_STEPS:
		return number(arg, 0, INT_MAX, &o->steps);
	case O_STEP_MS:
		return number(arg, 1, 3600000, &o->step_ms);
	case O_POLL_MS:
		return number(arg, 1, 3600000, &o->poll_ms);
	case O_STATUS_MS:
		return number(arg, 0, 3600000, &o->status_ms);
	case O_WARMUP_MS:
		return number(arg, 0, 3600000, &o->warmup_ms);
	default:
		o->quiet = true;
		return true;
	}
}

int options_parse(int argc, char **argv, struct client_options *o)
{
	bool placed = false;
	*o = (struct client_options){
		.steps = 100, .step_ms = 100, .status_ms = 1000, .warmup_ms = 5000};
	for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
		if (c == 'h') {
			fputs(help, stdout);
			return 1;
		}
		if (c == '?' || !take(o, c, optarg, &placed))
			return 3;
	}
	if (optind < argc) {
		fprintf(stderr, "simclient: '%s' is not an option, see --help\n", argv[optind]);
		return 3;
	}
	if (!placed)
		default_place(o);
	return 0;
}
