/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The kernel says EPERM and nothing else. What it checks, in its order (ptrace_may_access()):
 *
 *	same user and group, or CAP_SYS_PTRACE in the user namespace of the process
 *	the process is dumpable, or the same capability
 *	security modules: Yama's ptrace_scope, AppArmor, SELinux
 *	(capabilities that we have not: the same capability)
 *
 * and, before all of that, a filter on our own system calls. The facts are collected from /proc,
 * and the first check that they fail gives the words and the command that helps.
 */
#include "unwind/remote/find/eperm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "unwind/remote/find/find.h"
#include "unwind/remote/find/process.h"

#define STATUS_CAP 65536
#define CAP_SYS_PTRACE_BIT 19

/* --- words: the cause, and then the fix --- */

/* How to get CAP_SYS_PTRACE. */
static void add_capability(const struct eperm_facts *f, struct buf *b)
{
	static const char yaml[] = "securityContext: {capabilities: {add: [\"SYS_PTRACE\"]}}";

	if (f->kubernetes)
		buf_addf(b, "give the container the capability: %s", yaml);
	else if (f->container || f->our_uid == 0)
		buf_addf(b,
			 "start the container with 'docker run --cap-add SYS_PTRACE' (Kubernetes: "
			 "%s)",
			 yaml);
	else
		buf_addf(b, "use sudo, or once 'sudo setcap cap_sys_ptrace=ep %s'", f->program);
}

static void add_yama(const struct eperm_facts *f, struct buf *b)
{
	buf_addf(b, "kernel.yama.ptrace_scope is %d, which ", f->yama);
	if (f->yama >= 3) {
		buf_add_str(b, "forbids it to everyone: give it another value in /etc/sysctl.d and "
			       "start the machine again");
		return;
	}
	if (f->yama == 2)
		buf_add_str(b, "allows it only with CAP_SYS_PTRACE");
	else
		buf_add_str(b,
			    "allows only processes that were started from here ('sonde stack run "
			    "-- …')");
	buf_add_str(b, ": 'sudo sysctl kernel.yama.ptrace_scope=0', or ");
	add_capability(f, b);
}

static void add_user(const struct eperm_facts *f, struct buf *b)
{
	if (f->uid == f->our_uid)
		buf_addf(b, "its group is %u, ours is %u: ", f->gid, f->our_gid);
	else if (f->our_uid == 0)
		buf_addf(b,
			 "it belongs to user %u, and we are root without CAP_SYS_PTRACE: ", f->uid);
	else
		buf_addf(b,
			 "it belongs to user %u, we are user %u: run this as that user ('%s%u'), "
			 "or ",
			 f->uid, f->our_uid, f->container ? "docker exec -u " : "sudo -u \\#",
			 f->uid);
	add_capability(f, b);
}

/* We have the capability, and it was refused all the same. */
static void explain_capable(const struct eperm_facts *f, struct buf *b)
{
	if (f->yama >= 3)
		add_yama(f, b);
	else if (f->other_user_namespace)
		buf_add_str(b,
			    "it is in a user namespace where our CAP_SYS_PTRACE does not count: "
			    "run this outside of the container, or inside of that of the process");
	else if (f->confined)
		buf_add_str(b, "a security module (AppArmor, SELinux) forbids it: 'docker run "
			       "--security-opt apparmor=unconfined', or run this outside of the "
			       "container");
	else if (f->seccomp)
		buf_add_str(b, "our system calls are filtered: 'docker run --security-opt "
			       "seccomp=unconfined', or run this outside of the container");
	else
		buf_add_str(b,
			    "the system protects it, in spite of our CAP_SYS_PTRACE: it may be in "
			    "a user namespace above ours");
}

/* In the order of the kernel's checks: the first that fails is the cause. */
static void explain_incapable(const struct eperm_facts *f, struct buf *b)
{
	if (f->other_user_namespace)
		buf_add_str(b, "it is in another user namespace: ");
	else if (f->uid != f->our_uid || f->gid != f->our_gid)
		return add_user(f, b);
	else if (f->more_capabilities && !f->not_dumpable)
		buf_add_str(b, "it has capabilities that we have not: ");
	else if (f->yama > 0 && !f->not_dumpable)
		return add_yama(f, b);
	else if (f->seccomp && !f->not_dumpable)
		buf_add_str(b, "our system calls are filtered: ");
	else
		buf_add_str(
			b, "it has forbidden to be read (prctl(PR_SET_DUMPABLE), a setuid program, "
			   "or a program file that may be executed only): ");
	add_capability(f, b);
}

int eperm_words(const struct eperm_facts *f, struct err *err)
{
	struct buf b = {0};

	if (f->can_trace)
		explain_capable(f, &b);
	else
		explain_incapable(f, &b);
	err_set(err, -EPERM, "may not read process %d (%s): %s", (int)f->pid, f->name, buf_str(&b));
	buf_release(&b);
	return -EPERM;
}

/* --- facts --- */

/* The value behind "Key:\t" in /proc/PID/status; NULL if there is none. */
static const char *status_value(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ':')
			return line + n + 1;
	}
	return NULL;
}

static uint64_t status_hex(const char *text, const char *key)
{
	const char *value = status_value(text, key);

	return value ? strtoull(value, NULL, 16) : 0;
}

/* The effective user or group: the second of four numbers. */
static unsigned status_id(const char *text, const char *key)
{
	const char *value = status_value(text, key);
	unsigned id = 0;

	if (value)
		(void)sscanf(value, " %*u %u", &id);
	return id;
}

/* /proc/PID/status can be read by everybody, unless /proc is mounted with hidepid. */
static void read_their_facts(struct eperm_facts *f, const char *status)
{
	const char *name = status_value(status, "Name");
	char path[64];
	struct stat st;

	if (name)
		snprintf(f->name, sizeof(f->name), "%.*s", (int)strcspn(name + 1, "\n"), name + 1);
	remote_make_printable(f->name);
	f->uid = status_id(status, "Uid");
	f->gid = status_id(status, "Gid");
	/* Files in /proc of a process that is not dumpable belong to root. */
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)f->pid);
	f->not_dumpable = f->uid != 0 && stat(path, &st) == 0 && st.st_uid == 0;
}

/* Whether we are in a container is only asked to choose the right advice. */
static void read_our_facts(struct eperm_facts *f, const char *status)
{
	const char *seccomp = status_value(status, "Seccomp");

	f->can_trace = status_hex(status, "CapEff") >> CAP_SYS_PTRACE_BIT & 1;
	f->seccomp = seccomp && atoi(seccomp) != 0;
	f->our_uid = geteuid();
	f->our_gid = getegid();
	f->kubernetes = getenv("KUBERNETES_SERVICE_HOST") != NULL;
	f->container = f->kubernetes || access("/.dockerenv", F_OK) == 0 ||
		       access("/run/.containerenv", F_OK) == 0;
	ssize_t n = readlink("/proc/self/exe", f->program, sizeof(f->program) - 1);
	f->program[n > 0 ? n : 0] = 0;
}

/* Unknown counts as the same: no guess is better than a wrong one. */
static bool namespaces_differ(pid_t pid)
{
	char path[64], ours[64], theirs[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	ssize_t n = readlink("/proc/self/ns/user", ours, sizeof(ours));
	ssize_t m = readlink(path, theirs, sizeof(theirs));

	return n > 0 && m > 0 && (n != m || memcmp(ours, theirs, (size_t)n) != 0);
}

/* A small file's text, "" if it cannot be read. Valid until the buffer changes. */
static const char *text_of(const char *path, struct buf *b)
{
	buf_clear(b);
	if (fs_read_file(path, STATUS_CAP, b, NULL) < 0)
		buf_clear(b);
	return buf_str(b);
}

static bool is_confined(struct buf *b)
{
	const char *label = text_of("/proc/self/attr/current", b);

	return *label && strncmp(label, "unconfined", 10) != 0 && strncmp(label, "kernel", 6) != 0;
}

/* Facts first, then words: eperm_words() is a pure function of the facts, so that every case can
 * be tested. */
int remote_explain_eperm(pid_t pid, struct err *err)
{
	struct eperm_facts f = {.pid = pid, .name = "?", .yama = -1};
	struct buf b = {0};
	char path[64];

	const char *status = text_of("/proc/self/status", &b);
	uint64_t ours = status_hex(status, "CapPrm");
	read_our_facts(&f, status);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	status = text_of(path, &b);
	read_their_facts(&f, status);
	f.more_capabilities = (status_hex(status, "CapPrm") & ~ours) != 0;
	const char *yama = text_of("/proc/sys/kernel/yama/ptrace_scope", &b);
	if (*yama)
		f.yama = atoi(yama);
	f.confined = is_confined(&b);
	f.other_user_namespace = namespaces_differ(pid);
	buf_release(&b);
	return eperm_words(&f, err);
}
