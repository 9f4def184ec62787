/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde bugreport: what one needs to know about a machine to understand a report from it. */
#include <errno.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zstd.h>

#include "base/fs.h"
#include "cli/command.h"
#include "launch/program.h"

struct bugreport_options {
	bool json;
};

static void set_text(json_t *o, const char *key, const char *text)
{
	json_t *v = text ? json_string(text) : json_null();

	json_object_set_new(o, key, v ? v : json_string("(not UTF-8)"));
}

/* The first line of a small file, null if it cannot be read. */
static void set_file(json_t *o, const char *key, const char *path)
{
	struct buf text = {0};
	bool ok = fs_read_file(path, 65536, &text, NULL) == 0;

	if (ok) {
		buf_str(&text);
		text.data[strcspn(text.data, "\n")] = '\0';
	}
	set_text(o, key, ok ? text.data : NULL);
	buf_release(&text);
}

static json_t *versions_json(void)
{
	json_t *o = json_object();

	set_text(o, "sonde", SONDE_VERSION);
#ifdef __VERSION__
	set_text(o, "compiler", __VERSION__);
#endif
	set_text(o, "libc", gnu_get_libc_version());
	set_text(o, "sqlite", sqlite3_libversion());
	set_text(o, "jansson", JANSSON_VERSION);
	set_text(o, "zstd", ZSTD_versionString());
	return o;
}

static json_t *machine_json(void)
{
	struct utsname u = {0};
	json_t *o = json_object();

	uname(&u);
	set_text(o, "kernel", u.release);
	set_text(o, "build", u.version);
	set_text(o, "architecture", u.machine);
	json_object_set_new(o, "processors", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
	json_object_set_new(
		o, "memory_mib",
		json_integer(sysconf(_SC_PHYS_PAGES) / 1024 * sysconf(_SC_PAGESIZE) / 1024));
	json_object_set_new(o, "page_bytes", json_integer(sysconf(_SC_PAGESIZE)));
	set_file(o, "ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope");
	set_file(o, "perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid");
	set_file(o, "overcommit_memory", "/proc/sys/vm/overcommit_memory");
	set_file(o, "max_map_count", "/proc/sys/vm/max_map_count");
	set_file(o, "cgroup_memory_max", "/sys/fs/cgroup/memory.max");
	set_file(o, "cgroup_cpu_max", "/sys/fs/cgroup/cpu.max");
	json_object_set_new(o, "container",
			    json_boolean(access("/.dockerenv", F_OK) == 0 ||
					 access("/run/.containerenv", F_OK) == 0));
	return o;
}

static json_t *file_system_json(const char *path)
{
	json_t *o = json_object();
	struct statfs s;

	if (statfs(path, &s) < 0) {
		set_text(o, "type", NULL);
		return o;
	}
	const char *name = fs_type_name((unsigned long)s.f_type);
	json_object_set_new(o, "type",
			    name ? json_string(name)
				 : json_sprintf("0x%lx", (unsigned long)s.f_type));
	json_object_set_new(o, "local", json_boolean(fs_type_is_local((unsigned long)s.f_type)));
	json_object_set_new(o, "free_mib",
			    json_integer((json_int_t)((unsigned long long)s.f_bavail *
							      (unsigned long long)s.f_bsize >>
						      20)));
	return o;
}

static json_t *file_systems_json(void)
{
	static const char *const paths[] = {".", "/tmp", "/dev/shm", NULL};
	json_t *o = json_object();

	for (int i = 0; paths[i]; i++)
		json_object_set_new(o, paths[i], file_system_json(paths[i]));
	return o;
}

static json_t *limits_json(void)
{
	static const struct {
		const char *name;
		int which;
	} rows[] = {{"open_files", RLIMIT_NOFILE},    {"processes", RLIMIT_NPROC},
		    {"locked_bytes", RLIMIT_MEMLOCK}, {"address_space", RLIMIT_AS},
		    {"file_bytes", RLIMIT_FSIZE},     {"core_bytes", RLIMIT_CORE},
		    {"stack_bytes", RLIMIT_STACK}};
	json_t *o = json_object();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rlimit l;

		if (getrlimit((__rlimit_resource_t)rows[i].which, &l) < 0)
			continue;
		json_object_set_new(o, rows[i].name,
				    l.rlim_cur == RLIM_INFINITY
					    ? json_string("unlimited")
					    : json_integer((json_int_t)l.rlim_cur));
	}
	return o;
}

static json_t *environment_json(void)
{
	static const char *const names[] = {"LD_PRELOAD",
					    "LD_LIBRARY_PATH",
					    "LD_PRELOAD_PATH",
					    "SONDE_SESSION",
					    "SONDE_COMPAT",
					    "SONDE_LOG",
					    "ASCEND_HOME_PATH",
					    "ASCEND_RT_VISIBLE_DEVICES",
					    "ATB_HOME_PATH",
					    "MSMEMSCOPE_CONFIG_PATH",
					    "TASK_QUEUE_ENABLE",
					    "ASCEND_LAUNCH_BLOCKING",
					    "PYTHONMALLOC",
					    "CUDA_VISIBLE_DEVICES",
					    NULL};
	json_t *o = json_object();
	struct buf dir = {0};
	struct err err = {0};

	for (int i = 0; names[i]; i++)
		set_text(o, names[i], getenv(names[i]));
	set_text(o, "libraries", launch_lib_dir(&dir, &err) == 0 ? buf_str(&dir) : err.text);
	buf_release(&dir);
	return o;
}

static void add_value(struct buf *out, json_t *v)
{
	if (json_is_string(v)) {
		buf_add_str(out, json_string_value(v));
	} else if (json_is_null(v)) {
		buf_add_char(out, '-');
	} else {
		char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

		buf_add_str(out, text ? text : "?");
		free(text);
	}
}

/* The same object in lines: sections, then `key  value`, inner objects as `key=value` pairs. */
static void add_text(json_t *root, struct buf *out)
{
	const char *section, *key, *inner;
	json_t *part, *v, *w;

	json_object_foreach(root, section, part)
	{
		buf_addf(out, "%s%s\n", out->len ? "\n" : "", section);
		json_object_foreach(part, key, v)
		{
			buf_addf(out, "  %-26s", key);
			if (!json_is_object(v))
				add_value(out, v);
			else
				json_object_foreach(v, inner, w)
				{
					buf_addf(out, " %s=", inner);
					add_value(out, w);
				}
			buf_add_char(out, '\n');
		}
	}
}

static int bugreport_run(const struct command *cmd, int argc, char **argv)
{
	struct bugreport_options o = {0};
	struct args a = {.target = &o};
	struct buf text = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:o}", "versions", versions_json(),
				 "machine", machine_json(), "file systems", file_systems_json(),
				 "limits", limits_json(), "environment", environment_json());
	if (o.json) {
		status = command_print_json(cmd, root);
		goto out;
	}
	add_text(root, &text);
	json_decref(root);
	status = command_print(cmd, &text);
out:
	buf_release(&text);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_FLAG("json", offsetof(struct bugreport_options, json),
		    "Print JSON instead of text."),
	OPT_END,
};

static const char *const usage[] = {"[--json]", NULL};

const struct command cmd_bugreport = {
	.name = "bugreport",
	.spec = {.name = "sonde bugreport",
		 .summary = "describe this machine for a bug report",
		 .description = "Prints versions, kernel settings, file systems, limits and the "
				"environment variables that matter here. Read it before you send "
				"it: paths may reveal more than you wish.",
		 .usage = usage,
		 .options = options},
	.run = bugreport_run,
};
