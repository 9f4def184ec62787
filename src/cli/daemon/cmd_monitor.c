/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde monitor: runs a job so that it can be monitored while it runs. It becomes the job: exit
 * status and signals are the job's own. Nothing is recorded until somebody asks for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/mem/preload.h"
#include "wire/fabric.h"

#define LIBRARY "libsonde_monitor.so"
#define MSPTI "libmspti.so"
#ifdef __aarch64__
#	define DEBIAN_DIR "aarch64-linux-gnu"
#else
#	define DEBIAN_DIR "x86_64-linux-gnu"
#endif

struct monitor_options {
	const char *mspti;
	bool print_env, quiet;
};

/* One variable for the job. */
struct setting {
	const char *name;
	char *value;
};

struct monitor_run {
	const struct command *cmd;
	struct monitor_options o;
	struct setting settings[8];
	unsigned n;
	bool no_mspti; /* nor is one preloaded already */
};

static void add_setting(struct monitor_run *m, const char *name, char *value)
{
	m->settings[m->n++] = (struct setting){name, value};
}

/* What is set already is somebody's choice. */
static void set_unless(struct monitor_run *m, const char *name, const char *value)
{
	const char *now = getenv(name);

	if (!now || !*now)
		add_setting(m, name, xstrdup(value));
}

static void clear_settings(struct monitor_run *m)
{
	for (unsigned i = 0; i < m->n; i++)
		free(m->settings[i].value);
	m->n = 0;
}

/* --- what to preload --- */

static bool is_readable(const char *path)
{
	return access(path, R_OK) == 0;
}

/* The job may go elsewhere before it starts the next program; its loader cannot take names with
 * blanks or colons. */
static char *absolute(const char *path, struct err *err)
{
	struct buf whole = {0};

	if (fs_absolute(path, &whole, err) < 0)
		return NULL;
	if (!strpbrk(buf_str(&whole), ": \t\n"))
		return whole.data;
	err_set(err, -EINVAL, "'%s' cannot be preloaded: there is a blank or a colon in it",
		buf_str(&whole));
	buf_release(&whole);
	return NULL;
}

/* MSPTI reports some kinds only if it is there from the start. NULL: there is none. */
static char *find_mspti(const struct monitor_options *o, struct err *err)
{
	static const char *const homes[] = {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"};

	if (o->mspti && !strcmp(o->mspti, "none"))
		return NULL;
	if (o->mspti && !is_readable(o->mspti)) {
		err_sys(err, -errno, "cannot read '%s'", o->mspti);
		return NULL;
	}
	if (o->mspti)
		return absolute(o->mspti, err);
	for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++) {
		const char *home = getenv(homes[i]);
		char *path = home && *home ? xasprintf("%s/lib64/" MSPTI, home) : NULL;

		char *whole = path && is_readable(path) ? absolute(path, NULL) : NULL;

		free(path);
		if (whole)
			return whole;
	}
	return NULL;
}

/* Whether the list has a library of that name, from wherever. */
static bool has_library(const char *list, const char *name)
{
	size_t len = strlen(name);

	while (*list) {
		size_t n = strcspn(list, ": \t\n");

		if (n >= len && !strncmp(list + n - len, name, len) &&
		    (n == len || list[n - len - 1] == '/'))
			return true;
		list += n + (list[n] != '\0');
	}
	return false;
}

static void add_library(struct buf *list, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!has_library(buf_str(list), slash ? slash + 1 : path))
		buf_addf(list, "%s%s", list->len ? ":" : "", path);
}

static int set_libraries(struct monitor_run *m, struct err *err)
{
	struct buf dir = {0}, preload = {0};
	const char *before = getenv("LD_PRELOAD");
	int r = launch_lib_dir(&dir, err);

	if (r < 0)
		return r;
	char *library = xasprintf("%s/%s", buf_str(&dir), LIBRARY); /* absolute already */
	char *mspti = find_mspti(&m->o, err);
	buf_release(&dir);
	if (!is_readable(library))
		r = err_sys(err, -errno, "cannot find '%s'", library);
	else if (err->code)
		r = err->code;
	if (r == 0) {
		buf_add_str(&preload, before ? before : "");
		add_library(&preload, library);
		if (mspti)
			add_library(&preload, mspti);
		m->no_mspti = !m->o.mspti && !has_library(buf_str(&preload), MSPTI);
		add_setting(m, "LD_PRELOAD", xstrdup(buf_str(&preload)));
		char *asan = launch_asan_options();
		if (asan)
			add_setting(m, ASAN_ENV, asan);
		/* the driver of a GPU loads it by these */
		set_unless(m, "CUDA_INJECTION64_PATH", library);
		set_unless(m, "NVTX_INJECTION64_PATH", library);
	}
	free(library);
	free(mspti);
	buf_release(&preload);
	return r;
}

/* --- messages --- */

/* A value as a shell reads it back. */
static void add_quoted(struct buf *out, const char *value)
{
	buf_add_char(out, '\'');
	for (; *value; value++)
		if (*value == '\'')
			buf_add_str(out, "'\\''");
		else
			buf_add_char(out, *value);
	buf_add_char(out, '\'');
}

static int print_env(const struct monitor_run *m)
{
	struct buf text = {0};

	for (unsigned i = 0; i < m->n; i++) {
		buf_addf(&text, "export %s=", m->settings[i].name);
		add_quoted(&text, m->settings[i].value);
		buf_add_char(&text, '\n');
	}
	int status = command_print(m->cmd, &text);
	buf_release(&text);
	return status;
}

static bool answers(const struct sockaddr_un *address, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return true; /* not known: no advice */
	bool good = connect(fd, (const struct sockaddr *)address, len) == 0 || errno == EACCES;
	close(fd);
	return good;
}

/* Whether a daemon is there already; the job finds one that comes later, too. */
static bool has_daemon(void)
{
	const char *dir = getenv("KINETO_IPC_SOCKET_DIR"), *home = getenv("HOME");
	struct sockaddr_un address;
	bool found = false;
	socklen_t len;

	if (fabric_abstract_address(FABRIC_ABSTRACT_NAME, &address, &len) == 0)
		found = answers(&address, len);
	const char *const dirs[] = {dir, home}, *const files[] = {FABRIC_DIR_FILE,
								  FABRIC_HOME_FILE};
	for (int i = 0; i < 2 && !found; i++) {
		char *path = dirs[i] ? xasprintf("%s/%s", dirs[i], files[i]) : NULL;

		found = path && fabric_path_address(path, &address, &len) == 0 &&
			answers(&address, len);
		free(path);
	}
	return found;
}

/* Anything that speaks for an NVIDIA GPU: then nobody misses MSPTI. */
static bool has_cuda(void)
{
	static const char *const there[] = {
		"/dev/nvidiactl",
		"/proc/driver/nvidia",
		"/usr/lib64/libcuda.so.1",
		"/usr/lib/libcuda.so.1",
		"/usr/lib/" DEBIAN_DIR "/libcuda.so.1",
	};
	static const char *const set[] = {"CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
					  "CUDA_VERSION", "NVIDIA_VISIBLE_DEVICES"};
	const char *path = getenv("LD_LIBRARY_PATH");
	bool found = false;

	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
		found |= access(there[i], F_OK) == 0;
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		found |= getenv(set[i]) != NULL;
	while (path && *path && !found) {
		size_t n = strcspn(path, ":;");
		char *file = xasprintf("%.*s/libcuda.so.1", (int)n, path);

		found = access(file, F_OK) == 0;
		free(file);
		path += n + (path[n] != '\0');
	}
	return found;
}

static void print_advice(const struct monitor_run *m, const char *program)
{
	if (m->o.quiet)
		return;
	fprintf(stderr,
		"%s: '%s' can be monitored while it runs: %s'sonde top' shows where the "
		"time goes%s\n",
		m->cmd->spec.name, program,
		has_daemon() ? "" : "start 'sonde daemon --enable-ipc-monitor' on this node, then ",
		m->no_mspti && !has_cuda() ? ". " MSPTI
					     ", which NPUs need, was not found: name it with "
					     "--mspti PATH, or source set_env.sh of CANN"
					   : "");
}

/* --- running --- */

static int run_program(struct monitor_run *m, char **argv)
{
	struct buf found = {0};
	struct err err = {0};
	int r = launch_find_program(argv[0], &found, &err);

	buf_release(&found);
	for (unsigned i = 0; i < m->n && r == 0; i++)
		if (setenv(m->settings[i].name, m->settings[i].value, 1) < 0)
			r = err_sys(&err, -errno, "cannot set the environment");
	if (r == 0) {
		print_advice(m, argv[0]);
		execvp(argv[0], argv);
		r = err_sys(&err, -errno, "cannot run '%s'", argv[0]);
	}
	return command_fail(m->cmd, &err, r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static int monitor_run(const struct command *cmd, int argc, char **argv)
{
	struct monitor_run m = {.cmd = cmd};
	struct args a = {.target = &m.o};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	command_notices(cmd, &a);
	if (!a.nwords && !m.o.print_env) {
		err_set(&err, -EINVAL, "no program to run: write it after --, with its arguments");
		status = command_fail(cmd, &err, EXIT_USAGE);
		goto out;
	}
	add_setting(&m, "MSMONITOR_USE_DAEMON", xstrdup("1"));
	set_unless(&m, "KINETO_USE_DAEMON", "1");
	if (set_libraries(&m, &err) < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	else
		status = m.o.print_env ? print_env(&m) : run_program(&m, a.words);
out:
	clear_settings(&m);
	args_release(&a);
	return status;
}

#define AT(member) offsetof(struct monitor_options, member)
static const struct opt options[] = {
	OPTION_TEXT("mspti", "LIBRARY", AT(mspti),
		    "$ASCEND_HOME_PATH/lib64/" MSPTI ", if it is there",
		    "The CANN library that reports NPU activities. It is preloaded into the job as "
		    "well; 'none' preloads none.",
		    .group = "Monitor"),
	OPTION_FLAG("print-env", AT(print_env),
		    "Run nothing: print the environment that the job needs, as export lines for a "
		    "shell."),
	OPTION_FLAG("quiet", AT(quiet), "Do not say what to do next."),
	COMMAND_HELP_OPTION,
	OPT_END,
};

static const char *const usage[] = {"[options] -- <program> [arguments]", "--print-env", NULL};

static const struct args_section sections[] = {
	{"ENVIRONMENT",
	 "For the job MSMONITOR_USE_DAEMON=1 is set, " LIBRARY " (and " MSPTI ", where there is "
	 "one) is added to LD_PRELOAD, and KINETO_USE_DAEMON, CUDA_INJECTION64_PATH and "
	 "NVTX_INJECTION64_PATH are set unless they are. ASAN_OPTIONS is told that libraries may "
	 "be "
	 "preloaded (verify_asan_link_order=0); without AddressSanitizer it means nothing. "
	 "Launchers such as torchrun hand all that "
	 "on to their ranks; where ranks are started on other nodes, put the command in front of "
	 "theirs, or the lines of --print-env into their script."},
	{"EXIT STATUS",
	 "That of the program; 127 if it was not found, 126 if it could not be run, 2 when the "
	 "command line was wrong, 1 when the library is missing."},
	{"SEE ALSO", "sonde(1), sonde-top(1), sonde-ctl(1), dyno(1)"},
	{NULL, NULL},
};

static const struct args_example examples[] = {
	{"a job that can be monitored", "sonde monitor -- torchrun --nproc-per-node 8 train.py"},
	{"look at it", "sonde top"},
	{"in a script that starts ranks itself", "eval \"$(sonde monitor --print-env)\""},
	{NULL, NULL},
};

const struct command cmd_monitor = {
	.name = "monitor",
	.page = "sonde-monitor",
	.spec = {.name = "sonde monitor",
		 .summary = "run a job so that it can be monitored",
		 .description =
			 "Runs a program with sonde's monitor in it. The monitor does nothing "
			 "until "
			 "it is asked to: by 'sonde top', 'sonde ctl npu-monitor' or 'sonde ctl "
			 "nputrace', as often as you like and without stopping the job. On NPUs "
			 "and "
			 "on NVIDIA GPUs, in Python, C or C++; the program needs no change.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = monitor_run,
};
