/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/sandbox/sandbox_impl.h"

#define CAPABILITIES 64 /* that a mask has room for */
#define SECURE                                                                                     \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                           \
	 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |   \
	 SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

static bool read_number(const char *text, unsigned long *out)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*out = strtoul(text, &end, 10);
	return !errno && !*end && *out < UINT32_MAX;
}

int rights_find_user(const char *name, struct sandbox_user *out, struct err *err)
{
	unsigned long number = 0;
	bool is_number = read_number(name, &number);
	const struct passwd *p = is_number ? getpwuid((uid_t)number) : getpwnam(name);

	*out = (struct sandbox_user){(uid_t)number, (gid_t)number, ""};
	if (!p && !is_number)
		return err_set(err, -ENOENT, "there is no user '%s' for --user", name);
	if (p) {
		out->uid = p->pw_uid;
		out->gid = p->pw_gid;
		snprintf(out->name, sizeof(out->name), "%s", p->pw_name);
	}
	if (geteuid() != 0 && out->uid != geteuid())
		return err_set(err, -EPERM, "only root can go on as another user: --user %s", name);
	return 0;
}

uint64_t rights_now(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};

	if (syscall(SYS_capget, &head, data) < 0)
		return 0;
	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

static int set_capabilities(uint64_t mask)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{.effective = (uint32_t)mask, .permitted = (uint32_t)mask},
		{.effective = (uint32_t)(mask >> 32), .permitted = (uint32_t)(mask >> 32)}};

	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static bool is_user(const struct sandbox_user *u)
{
	return getuid() == u->uid && geteuid() == u->uid && getegid() == u->gid;
}

static int switch_user(const struct sandbox_user *u, bool saved_root, struct err *err)
{
	if (is_user(u))
		return 0;
	if ((u->name[0] ? initgroups(u->name, u->gid) : setgroups(0, NULL)) < 0 ||
	    setresgid(u->gid, u->gid, u->gid) < 0)
		return err_sys(err, -errno, "cannot take the groups of user %u", (unsigned)u->uid);
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
	    setresuid(u->uid, u->uid, saved_root ? 0 : u->uid) < 0)
		return err_sys(err, -errno, "cannot become user %u", (unsigned)u->uid);
	return 0;
}

int rights_become(const struct sandbox_user *user, uint64_t capabilities, bool saved_root,
		  struct err *err)
{
	uint64_t kept = rights_now() & capabilities;
	int r = switch_user(user, saved_root, err);

	if (r < 0)
		return r;
	/* Effective again for what needs CAP_SETPCAP; a process that never had it has nothing to
	 * give up here. */
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};
	if (syscall(SYS_capget, &head, data) == 0)
		(void)set_capabilities((uint64_t)data[1].permitted << 32 | data[0].permitted);
	for (int i = 0; i < CAPABILITIES; i++)
		(void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	(void)prctl(PR_SET_SECUREBITS, SECURE, 0, 0, 0);
	r = set_capabilities(kept);
	if (r < 0)
		return err_sys(err, r, "cannot give up capabilities");
	/* No core file with keys in it, and nobody of the same user looks inside. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot renounce new privileges");
	return 0;
}

int rights_forget_root(void)
{
	return setresuid((uid_t)-1, (uid_t)-1, geteuid()) < 0 ? -errno : 0;
}
