/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/recover_places.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "recorder/start.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_GROUP 65534 /* for who is in no file of users */

/* For good: nothing that the recording names is opened with more rights than its owner has. */
static int become_user(uid_t uid)
{
	const struct passwd *pw = getpwuid(uid);
	gid_t gid = pw ? pw->pw_gid : NO_GROUP;

	if ((pw ? initgroups(pw->pw_name, gid) : setgroups(0, NULL)) < 0 ||
	    setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	return 0;
}

static int become_owner(const char *dir, struct buf *report, struct err *err)
{
	struct stat st;

	if (stat(dir, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", dir);
	if (geteuid() != 0 || st.st_uid == 0)
		return 0;
	int r = become_user(st.st_uid);
	if (r < 0)
		return err_sys(
			err, r,
			"'%s' belongs to user %u and is recovered with that user's rights alone, "
			"which this process cannot have: run it as that user",
			dir, (unsigned)st.st_uid);
	if (access(dir, R_OK | W_OK | X_OK) < 0)
		return err_sys(err, -errno,
			       "'%s' belongs to user %u and is recovered with that user's rights "
			       "alone; the user "
			       "cannot use it there: move it, or make it yours if you trust it "
			       "(chown -R)",
			       dir, (unsigned)st.st_uid);
	buf_addf(report,
		 "The recording belongs to user %u: it is recovered with that user's rights.\n",
		 (unsigned)st.st_uid);
	return 0;
}

/* Names can change between two looks: what was root's when rights were kept must be root's now. */
static int check_still_own(const char *dir, struct err *err)
{
	struct stat st;

	if (lstat(dir, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", dir);
	return geteuid() != 0 || st.st_uid == 0
		       ? 0
		       : err_set(err, -EPERM, "'%s' has become another user's meanwhile", dir);
}

static int resolve_dir(const char *path, struct buf *out, struct err *err)
{
	struct buf whole = {0};
	int r = fs_absolute(path, &whole, err);

	if (r == 0 && !strcmp(buf_str(&whole), "/"))
		buf_add_str(out, "/");
	else if (r == 0)
		r = fs_resolve(buf_str(&whole), out, err);
	buf_release(&whole);
	return r;
}

/* No link, and nothing that has another name elsewhere. */
static int check_file(const char *dir, const char *name, struct err *err)
{
	char *path = xasprintf("%s/%s", dir, name);
	struct stat st;
	int r = 0;

	if (lstat(path, &st) < 0)
		r = err_sys(err, -errno, "cannot open '%s'", path);
	else if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
		r = err_set(err, -EPERM,
			    "'%s' is a link or has another name elsewhere: copy the recording",
			    path);
	free(path);
	return r;
}

/* The directory that holds the recording, if it is called as a recording is. */
static int choose_output(struct recover_places *p, const char *option, struct err *err)
{
	const char *dir = buf_str(&p->dir), *name = strrchr(dir, '/') + 1;

	if (option) {
		int r = fs_mkdirs(option, err);

		return r < 0 ? r : resolve_dir(option, &p->output, err);
	}
	if (!strncmp(name, SESSION_PREFIX, strlen(SESSION_PREFIX)))
		buf_add(&p->output, dir, name - 1 > dir ? (size_t)(name - 1 - dir) : 1);
	else
		buf_add_str(&p->output, dir);
	return 0;
}

int places_open(struct recover_places *p, const char *dir, const struct recover_options *options,
		struct buf *report, struct err *err)
{
	int r = become_owner(dir, report, err);

	if (r == 0)
		r = resolve_dir(dir, &p->dir, err);
	if (r == 0)
		r = check_still_own(buf_str(&p->dir), err);
	if (r == 0)
		r = check_file(buf_str(&p->dir), SESSION_FILE, err);
	if (r == 0)
		r = check_file(buf_str(&p->dir), SESSION_RECORDING, err);
	if (r == 0)
		r = choose_output(p, options->output, err);
	return r;
}

/* Does the file in the directory of rings name this recording? */
static bool is_of_recording(const char *rings, const char *dir)
{
	char *path = xasprintf("%s/" RINGS_OWNER_FILE, rings);
	char *ours = xasprintf("%s/" SESSION_FILE, dir), *theirs = NULL;
	struct stat a, b;
	struct buf named = {0};
	bool yes = false;

	if (fs_read_file(path, PATH_MAX, &named, NULL) == 0) {
		theirs = xasprintf("%s/" SESSION_FILE, buf_str(&named));
		yes = stat(ours, &a) == 0 && stat(theirs, &b) == 0 && a.st_dev == b.st_dev &&
		      a.st_ino == b.st_ino;
	}
	buf_release(&named);
	free(path);
	free(ours);
	free(theirs);
	return yes;
}

/* Why they are not taken from there; NULL: they are. */
static const char *refuse_rings(const char *rings, const char *dir)
{
	const char *name = strrchr(rings, '/');
	struct stat st;

	if (!name || strncmp(name + 1, RINGS_PREFIX, strlen(RINGS_PREFIX)) != 0)
		return "which no launcher would choose";
	if (lstat(rings, &st) < 0)
		return errno == ENOENT ? "which is not on this machine" : "which cannot be read";
	if (!S_ISDIR(st.st_mode))
		return "which is no directory";
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return "where other users can write";
	return is_of_recording(rings, dir) ? NULL : "which does not belong to this recording";
}

int places_choose_rings(struct recover_places *p, const struct control_page *page,
			const struct recover_options *options, struct err *err)
{
	const char *dir = buf_str(&p->dir);
	struct buf shown = {0};
	int r = 0;

	if (options->rings)
		return resolve_dir(options->rings, &p->rings, err);
	char *named = xstrndup(page->ring_dir, strnlen(page->ring_dir, sizeof(page->ring_dir)));
	const char *why = *named ? refuse_rings(named, dir) : NULL;
	if (why) {
		text_add_printable(&shown, named, strlen(named));
		r = err_set(err, -EPERM,
			    "the recording says that the last events are in '%s', %s: name their "
			    "directory (--rings=DIR) if you trust it; --rings=%s goes on without "
			    "them",
			    buf_str(&shown), why, dir);
	} else {
		buf_add_str(&p->rings, *named ? named : dir);
		p->rings_elsewhere = *named;
	}
	free(named);
	buf_release(&shown);
	return r;
}

void places_release(struct recover_places *p)
{
	buf_release(&p->dir);
	buf_release(&p->output);
	buf_release(&p->rings);
}
