/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "launch/monitor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "launch/program.h"
#include "wire/fabric.h"

#ifdef __aarch64__
#	define DEBIAN_DIR "aarch64-linux-gnu"
#else
#	define DEBIAN_DIR "x86_64-linux-gnu"
#endif

static void add_setting(struct monitor_environment *e, const char *name, char *value)
{
	e->settings[e->n++] = (struct monitor_setting){name, value};
}

/* What is set already is somebody's choice. */
static void set_unless(struct monitor_environment *e, const char *name, const char *value)
{
	const char *now = getenv(name);

	if (!now || !*now)
		add_setting(e, name, xstrdup(value));
}

void monitor_environment_release(struct monitor_environment *e)
{
	for (unsigned i = 0; i < e->n; i++)
		free(e->settings[i].value);
	e->n = 0;
}

/* --- what to preload --- */

static bool is_readable(const char *path)
{
	return access(path, R_OK) == 0;
}

/* The job may go elsewhere before it starts the next program; its loader cannot take names with
 * blanks or colons. */
static char *make_absolute(const char *path, struct err *err)
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
static char *find_mspti(const char *named, struct err *err)
{
	static const char *const homes[] = {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"};

	if (named && !strcmp(named, "none"))
		return NULL;
	if (named && !is_readable(named)) {
		err_sys(err, -errno, "cannot read '%s'", named);
		return NULL;
	}
	if (named)
		return make_absolute(named, err);
	for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++) {
		const char *home = getenv(homes[i]);
		char *path = home && *home ? xasprintf("%s/lib64/" MONITOR_MSPTI, home) : NULL;

		char *whole = path && is_readable(path) ? make_absolute(path, NULL) : NULL;

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

static int set_libraries(struct monitor_environment *e, const char *named, struct err *err)
{
	struct buf dir = {0}, preload = {0};
	const char *before = getenv("LD_PRELOAD");
	int r = launch_lib_dir(&dir, err);

	if (r < 0)
		return r;
	char *library = xasprintf("%s/%s", buf_str(&dir), MONITOR_LIBRARY); /* absolute already */
	char *mspti = find_mspti(named, err);
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
		e->no_mspti = !named && !has_library(buf_str(&preload), MONITOR_MSPTI);
		add_setting(e, "LD_PRELOAD", xstrdup(buf_str(&preload)));
		char *asan = launch_asan_options();
		if (asan)
			add_setting(e, ASAN_ENV, asan);
		/* the driver of a GPU loads it by these */
		set_unless(e, "CUDA_INJECTION64_PATH", library);
		set_unless(e, "NVTX_INJECTION64_PATH", library);
	}
	free(library);
	free(mspti);
	buf_release(&preload);
	return r;
}

int launch_monitor_environment(const char *mspti, bool daemon, struct monitor_environment *out,
			       struct err *err)
{
	if (daemon) {
		add_setting(out, "MSMONITOR_USE_DAEMON", xstrdup("1"));
		set_unless(out, "KINETO_USE_DAEMON", "1");
	}
	return set_libraries(out, mspti, err);
}

void launch_prepare_attribute(struct monitor_environment *out)
{
	add_setting(out, "SONDE_PREPARE_ATTRIBUTE", xstrdup("1"));
}

int monitor_environment_apply(const struct monitor_environment *e, struct err *err)
{
	for (unsigned i = 0; i < e->n; i++)
		if (setenv(e->settings[i].name, e->settings[i].value, 1) < 0)
			return err_sys(err, -errno, "cannot set the environment");
	return 0;
}

/* --- what there is on this machine --- */

static bool is_answered(const struct sockaddr_un *address, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return true; /* not known: no advice */
	bool good = connect(fd, (const struct sockaddr *)address, len) == 0 || errno == EACCES;
	close(fd);
	return good;
}

bool launch_has_daemon(void)
{
	const char *dir = getenv("KINETO_IPC_SOCKET_DIR"), *home = getenv("HOME");
	struct sockaddr_un address;
	bool found = false;
	socklen_t len;

	if (fabric_abstract_address(FABRIC_ABSTRACT_NAME, &address, &len) == 0)
		found = is_answered(&address, len);
	const char *const dirs[] = {dir, home}, *const files[] = {FABRIC_DIR_FILE,
								  FABRIC_HOME_FILE};
	for (int i = 0; i < 2 && !found; i++) {
		char *path = dirs[i] ? xasprintf("%s/%s", dirs[i], files[i]) : NULL;

		found = path && fabric_path_address(path, &address, &len) == 0 &&
			is_answered(&address, len);
		free(path);
	}
	return found;
}

bool launch_has_cuda(void)
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
