/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the recorder gets: windows, and where their files belong. A request goes to the recorder as
 * it came, with lines added behind it that count because the last line of a key does: paths that
 * were relative to the job's directory as absolute ones, and the address of the daemon that asked.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"
#include "guest/runtime/env.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define WINDOW_MUST_WAIT                                                                           \
	"nothing can be recorded now: something has killed the recorders of this process, again "  \
	"and again; send the request again in half a minute"

static uint64_t windows;
static struct {
	char json[REQUEST_MAX_BYTES];
	size_t len;
} groups;

static char no_session[768]; /* why there is none, for people */

static const char *errno_text(int code);

/*
 * NULL: it is there, and ours alone. A directory that somebody else could have prepared for us is
 * not used: /tmp is everybody's, and one that another user has made under our name could be a trap
 * for the files in it.
 */
static const char *reason_unusable(const char *dir)
{
	struct stat st;

	if (!dir[0])
		return "its name is too long";
	if (guest_mkdirs(dir) < 0 || lstat(dir, &st) < 0)
		return errno_text(-errno);
	if (!S_ISDIR(st.st_mode))
		return "it is a link or a file";
	if (st.st_uid != geteuid())
		return "another user has made it";
	return st.st_mode & 022 ? "other users can write to it" : NULL;
}

static void report_other_dir(const char *usual, const char *why, const char *other)
{
	static _Atomic bool done;
	char words[256];
	struct text t = {words, words + sizeof(words)};

	text_str(&t, "' is not used, because ");
	text_str(&t, why);
	text_str(&t, "; files of the monitor are in ");
	if (t.at && !atomic_exchange(&done, true))
		print_notice("'", usual, words, other);
}

static void explain_no_session(const char *why)
{
	struct text t = {no_session, no_session + sizeof(no_session)};

	if (!why && resident_is_wanted()) {
		text_str(
			&t,
			"the recording's directory has no room for a buffer; its disk may be full");
		return;
	}
	text_str(&t, "nothing can be recorded: no usable directory below '");
	text_str(&t, environment_work_dir(false));
	text_str(&t, why ? "', because " : "'");
	text_str(&t, why ? why : "");
	text_str(&t, " (SONDE_MONITOR_DIR=directory names another one)");
}

/* NULL: there is none, and no_session has words for it. */
static const char *find_work_dir(void)
{
	const char *dir = environment_work_dir(false), *other = environment_work_dir(true);
	const char *why = reason_unusable(dir);

	if (!why)
		return dir;
	if (other[0] && !reason_unusable(other)) {
		report_other_dir(dir, why, other);
		return other;
	}
	explain_no_session(why);
	return NULL;
}

static bool begin_session(void)
{
	const char *dir = find_work_dir();

	collect_on_move(&control_mover);
	if ((collect_has_joined() || dir) && collect_begin_monitor(dir))
		return true;
	if (dir)
		explain_no_session(NULL);
	return false;
}

int window_check_place(char *why, size_t cap)
{
	struct text t = {why, why + cap};

	if (collect_has_joined() || find_work_dir())
		return 0;
	text_str(&t, no_session);
	return -EIO;
}

static int make_absolute(const struct request_text *dir, char *out, size_t cap);

/*
 * A path that the recorder would look for elsewhere. The last line with a key counts.
 *
 * Behind the original text, so that it counts as the last line of its key.
 */
static void add_absolute(struct text *t, const char *text, size_t len, const char *key)
{
	char path[1024];
	struct request_text dir;

	if (!request_find(text, len, key, &dir) || !dir.len || dir.at[0] == '/' ||
	    make_absolute(&dir, path, sizeof(path)) < 0)
		return;
	text_str(t, "\n");
	text_str(t, key);
	text_str(t, "=");
	text_str(t, path);
}

/* The request as it came, and what the recorder cannot know: our directory, our daemon. */
static size_t add_paths(char *out, size_t cap, const char *text, size_t len)
{
	struct text t = {out, out + cap};

	text_add(&t, text, len);
	add_absolute(&t, text, len, "NPU_MONITOR_LOG_FILE");
	add_absolute(&t, text, len, "ACTIVITIES_LOG_FILE");
	text_str(&t, "\nSONDE_DAEMON=");
	text_str(&t, link_data_address());
	return t.at ? (size_t)(t.at - out) : 0;
}

static void emit_request(uint8_t kind, uint64_t window, uint64_t since_ns, const char *text,
			 size_t len)
{
	char all[REQUEST_MAX_BYTES + 2048];
	size_t n = add_paths(all, sizeof(all), text, len);

	collect_monitor(kind, window, since_ns, environment.rank, n ? all : text, n ? n : len);
}

const char *window_why_not(void)
{
	return collect_must_wait() ? WINDOW_MUST_WAIT : no_session;
}

/* Groups come before the start, so that the recorder has them when it opens files. */
uint64_t window_open(const char *text, size_t len, uint64_t since_ns)
{
	if (!begin_session()) {
		/* `sonde record` tries it again and again, and says it once (control_start_resident()) */
		if (!resident_is_wanted())
			print_notice(window_why_not(), NULL, NULL, NULL);
		return 0;
	}
	windows++;
	if (groups.len)
		collect_monitor(MONITOR_GROUPS, windows, 0, environment.rank, groups.json,
				groups.len);
	emit_request(MONITOR_START, windows, since_ns, text, len);
	return windows;
}

void window_change(uint64_t window, const char *text, size_t len)
{
	emit_request(MONITOR_CHANGE, window, 0, text, len);
}

void window_step(uint64_t window, uint64_t step)
{
	collect_monitor(MONITOR_STEP, window, step, environment.rank, NULL, 0);
}

void window_end(uint64_t window)
{
	collect_monitor(MONITOR_END, window, 0, environment.rank, NULL, 0);
}

void window_note(uint64_t window, const char *key, const char *words)
{
	char line[512];
	struct text t = {line, line + sizeof(line)};

	text_str(&t, key);
	text_str(&t, " ");
	text_str(&t, words);
	if (t.at)
		collect_monitor(MONITOR_NOTE, window, 0, environment.rank, line,
				(size_t)(t.at - line));
}

void window_leave(uint64_t window, uint64_t lost)
{
	if (groups.len)
		collect_monitor(MONITOR_GROUPS, window, 0, environment.rank, groups.json,
				groups.len);
	if (lost)
		collect_monitor(MONITOR_LOST, window, lost, environment.rank, NULL, 0);
}

/* Groups come with the end, too: they may have become known while the window was open. */
bool window_close(uint64_t window, uint64_t lost, uint32_t wait_ms)
{
	window_leave(window, lost);
	collect_monitor(MONITOR_STOP, window, 0, environment.rank, NULL, 0);
	return collect_flush(wait_ms);
}

static const char *errno_text(int code)
{
	switch (-code) {
	case EACCES:
	case EPERM:
		return "permission denied";
	case ENOTDIR:
	case EEXIST:
		return "a part of this path is not a directory";
	case ENOENT:
		return "a directory of this path does not exist";
	case ELOOP:
		return "a part of this path is a link of another user";
	case EROFS:
		return "the file system is read-only";
	case ENOSPC:
		return "no space left";
	case ENAMETOOLONG:
		return "it is too long";
	default:
		return "it cannot be used";
	}
}

/* As the job sees it. */
static int make_absolute(const struct request_text *dir, char *out, size_t cap)
{
	struct text t = {out, out + cap};

	if (memchr(dir->at, '\0', dir->len))
		return -EINVAL;
	if (dir->at[0] != '/') {
		ssize_t n = readlink("/proc/self/cwd", out, cap - 1);
		if (n <= 0)
			return -ENOENT;
		t.at += n;
		text_str(&t, "/");
	}
	text_add(&t, dir->at, dir->len);
	return t.at ? 0 : -ENAMETOOLONG;
}

/* What the recorder would refuse later (base/fs.h) is refused at once. */
static bool others_replace_files(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 || !(st.st_mode & S_IWOTH))
		return false;
	return !(st.st_mode & S_ISVTX) || (st.st_uid != 0 && st.st_uid != geteuid());
}

static int make_dir(const char *path)
{
	if (guest_mkdirs(path) < 0)
		return -errno;
	return access(path, W_OK | X_OK) < 0 ? -errno : 0;
}

int window_check_dir(const struct request_text *dir, char *why, size_t cap)
{
	char path[1024] = "";
	struct text t = {why, why + cap};
	int r = make_absolute(dir, path, sizeof(path));

	if (r == 0)
		r = make_dir(path);
	bool unsafe = r == 0 && others_replace_files(path);
	if (r == 0 && !unsafe)
		return 0;
	text_str(&t, "no files can be written below '");
	text_str(&t, path);
	text_str(&t, "': ");
	text_str(&t, unsafe ? "every user can replace files there" : errno_text(r));
	return unsafe ? -EPERM : r;
}

void control_set_groups(const char *json, size_t len)
{
	groups.len = len < sizeof(groups.json) ? len : 0;
	memcpy(groups.json, json, groups.len);
}
