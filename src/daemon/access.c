/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "access"

#include "daemon/access.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/background.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "daemon/access_rules.h"
#include "net/address.h"
#include "net/socket_owner.h"
#include "net/tls/tls.h"

#define ALL_USERS 4294967295u /* that a namespace can know */

struct access {
	bool trusts_users; /* --trust-local-users */
	bool asks_certificates; /* of all who come by TCP */
	bool hides_processes; /* /proc is mounted so that users do not see those of others */
	uid_t nameless_uid; /* that users without a number here have; (uid_t)-1: there are none */
	int questions; /* of socket_owner.h; negative errno: there are no answers */
	struct access_rules rules;
	/* Between the loop and threads that load the rules anew. */
	pthread_mutex_t lock;
	struct access_rules *loaded; /* for the loop to take; NULL: nothing new */
	unsigned started, finished; /* loads: one that was overtaken by a later one is dropped */
	unsigned users; /* the loop and the threads; the last one frees it */
};

/* --- what the kernel says about users --- */

static bool read_line(const char *path, char *out, int size)
{
	FILE *f = fopen(path, "re");
	bool good = f && fgets(out, size, f);

	if (f)
		fclose(f);
	return good;
}

/*
 * In a user namespace that knows only some users, all others have the same number, that of
 * "nobody": two of them cannot be told apart, so that nothing can be theirs.
 */
static uid_t find_nameless_uid(void)
{
	unsigned inside, outside, n;
	char line[128];

	if (!read_line("/proc/self/uid_map", line, sizeof(line)) ||
	    sscanf(line, "%u %u %u", &inside, &outside, &n) != 3 || n == ALL_USERS)
		return (uid_t)-1;
	if (!read_line("/proc/sys/kernel/overflowuid", line, sizeof(line)))
		return 65534;
	return (uid_t)strtoul(line, NULL, 10);
}

/* --- life --- */

static void set_options(struct access *a, const struct daemon_config *config)
{
	a->trusts_users = config->trust_local_users;
	a->hides_processes = proc_hides_processes();
}

/* With the lock held, which is gone afterwards. */
static void release_user(struct access *a)
{
	bool last = --a->users == 0;

	pthread_mutex_unlock(&a->lock);
	if (!last)
		return;
	if (a->loaded)
		access_rules_release(a->loaded);
	free(a->loaded);
	access_rules_release(&a->rules);
	pthread_mutex_destroy(&a->lock);
	if (a->questions >= 0)
		close(a->questions);
	free(a);
}

int access_new(const struct daemon_config *config, struct access **out, struct err *err)
{
	struct access_rules rules = {.group = ACCESS_NO_GROUP};
	int r = access_rules_load(config->access_file, config->admin_group, &rules, err);

	if (r < 0)
		return r;
	struct access *a = xcalloc(1, sizeof(*a));
	a->rules = rules;
	a->users = 1;
	a->asks_certificates = config->certs_dir && strcmp(config->certs_dir, DAEMON_NO_CERTS);
	a->nameless_uid = find_nameless_uid();
	a->questions = socket_owner_open();
	pthread_mutex_init(&a->lock, NULL);
	set_options(a, config);
	if (a->questions < 0 && !a->asks_certificates && !a->trusts_users)
		log_warn("the kernel does not say whose connections are (%s): callers by TCP are "
			 "refused; use --control-socket, or --trust-local-users",
			 strerror(-a->questions));
	if (a->trusts_users)
		log_warn("every user of this machine may trace, monitor and list the processes of "
			 "all others (--trust-local-users)");
	*out = a;
	return 0;
}

void access_free(struct access *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	release_user(a);
}

/* --- loading the rules anew --- */

struct load {
	struct access *access;
	char *file, *group;
	unsigned number;
};

static void load_rules(void *arg)
{
	/* a name service has one list of users that is read at a time */
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	struct load *l = arg;
	struct access *a = l->access;
	struct access_rules *rules = xcalloc(1, sizeof(*rules));
	struct err err = {0};

	pthread_mutex_lock(&one_at_a_time);
	int r = access_rules_load(l->file, l->group, rules, &err);
	pthread_mutex_unlock(&one_at_a_time);
	if (r < 0)
		log_err("who may do what was not read again: %s; going on as before", err.text);
	pthread_mutex_lock(&a->lock);
	if (r == 0 && l->number > a->finished) {
		struct access_rules *before = a->loaded;

		a->finished = l->number;
		a->loaded = rules;
		rules = before;
	}
	if (rules)
		access_rules_release(rules);
	free(rules);
	free(l->file);
	free(l->group);
	free(l);
	release_user(a);
}

void access_reload(struct access *a, const struct daemon_config *config)
{
	struct load *l = xcalloc(1, sizeof(*l));

	set_options(a, config);
	l->access = a;
	l->file = config->access_file ? xstrdup(config->access_file) : NULL;
	l->group = config->admin_group ? xstrdup(config->admin_group) : NULL;
	pthread_mutex_lock(&a->lock);
	l->number = ++a->started;
	a->users++;
	pthread_mutex_unlock(&a->lock);
	if (background_run("reading of users and groups", load_rules, l) < 0)
		load_rules(l); /* rather late than never */
}

static void take_loaded(struct access *a)
{
	pthread_mutex_lock(&a->lock);
	struct access_rules *loaded = a->loaded;
	a->loaded = NULL;
	pthread_mutex_unlock(&a->lock);
	if (!loaded)
		return;
	access_rules_release(&a->rules);
	a->rules = *loaded;
	free(loaded);
}

/* --- who --- */

static int find_owner(const struct access *a, int fd, int family, struct caller *out)
{
	int in_group = 0;

	if (family == AF_UNIX) {
		int r = socket_owner_unix(fd, a->rules.group, &out->uid, &in_group);

		out->in_group = in_group;
		return r;
	}
	return a->questions < 0 ? a->questions : socket_owner_tcp(a->questions, fd, &out->uid);
}

/* --- shares --- */

enum source_kind { SOURCE_UNKNOWN = 1, SOURCE_USER, SOURCE_V4, SOURCE_V6 };

static uint64_t make_source(enum source_kind kind, uint64_t what)
{
	return (uint64_t)kind << 60 ^ what;
}

static uint64_t source_of_address(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	uint64_t network;
	uint32_t v4;

	if (a->ss_family == AF_INET)
		return make_source(SOURCE_V4, ((const struct sockaddr_in *)a)->sin_addr.s_addr);
	if (a->ss_family != AF_INET6)
		return make_source(SOURCE_UNKNOWN, 0);
	if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(&v4, &in6->sin6_addr.s6_addr[12], sizeof(v4));
		return make_source(SOURCE_V4, v4);
	}
	memcpy(&network, in6->sin6_addr.s6_addr, sizeof(network));
	return make_source(SOURCE_V6, network);
}

static bool is_this_machine(const struct sockaddr_storage *peer, int fd)
{
	struct sockaddr_storage own = {0};
	socklen_t len = sizeof(own);

	return address_is_loopback((const struct sockaddr *)peer) ||
	       (getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
		address_is_same_host((const struct sockaddr *)peer, (struct sockaddr *)&own));
}

/* Whose share a connection uses that shows a certificate later: for all users of this machine the
 * address would be the same. */
static uint64_t find_source(const struct access *a, int fd, uid_t *out_uid)
{
	struct sockaddr_storage peer = {0};
	socklen_t len = sizeof(peer);
	uid_t uid;

	*out_uid = (uid_t)-1;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return make_source(SOURCE_UNKNOWN, 0);
	if (a->questions < 0 || !is_this_machine(&peer, fd))
		return source_of_address(&peer);
	if (socket_owner_tcp(a->questions, fd, &uid) < 0)
		return make_source(SOURCE_UNKNOWN, 0);
	*out_uid = uid == a->nameless_uid ? (uid_t)-1 : uid;
	return make_source(SOURCE_USER, uid);
}

uint64_t source_count(struct hmap *per_source, uint64_t source, int by)
{
	uint64_t before = hmap_get(per_source, source);
	uint64_t n = (before == HMAP_NONE ? 0 : before) + (uint64_t)(int64_t)by;

	if (n)
		hmap_put(per_source, source, n);
	else
		hmap_remove(per_source, source);
	return n;
}

uint64_t source_with_most(const struct hmap *per_source)
{
	uint64_t source, n, most = 0, found = 0;

	for (size_t at = 0; hmap_next(per_source, &at, &source, &n);)
		if (n > most) {
			most = n;
			found = source;
		}
	return found;
}

struct caller access_identify(const struct access *a, int fd)
{
	struct caller c = {.kind = CALLER_UNKNOWN, .uid = (uid_t)-1};
	uid_t ignored;
	int family = AF_UNSPEC;
	socklen_t len = sizeof(family);

	(void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
	if (family != AF_UNIX && a->asks_certificates) {
		c.kind = CALLER_CERTIFIED;
		c.source = find_source(a, fd, &c.uid);
		return c;
	}
	c.error = find_owner(a, fd, family, &c);
	if (c.error == 0 && c.uid == a->nameless_uid)
		c.error = -EOVERFLOW;
	if (c.error == 0)
		c.kind = CALLER_USER;
	c.source = c.error == 0 ? make_source(SOURCE_USER, c.uid) : find_source(a, fd, &ignored);
	return c;
}

/* --- what a caller may do --- */

static const struct access_grant everything = {ACCESS_ALL, (uid_t)-1, true, NULL, (uid_t)-1};

static struct access_grant refuse_caller(const char *why)
{
	return (struct access_grant){ACCESS_NONE, (uid_t)-1, false, why, (uid_t)-1};
}

static struct access_grant find_by_name(const struct access *a, const SSL *ssl)
{
	struct buf name = {0};

	if (!a->rules.has_file)
		return everything;
	const struct access_rule *rule =
		tls_peer_name(ssl, &name) ? access_rules_find(&a->rules, buf_str(&name)) : NULL;
	buf_release(&name);
	if (!rule)
		return refuse_caller("the daemon's --access-file has no line for the name of this "
				     "certificate");
	if (rule->right == ACCESS_ALL)
		return everything;
	return (struct access_grant){rule->right, rule->right == ACCESS_OWN ? rule->uid : (uid_t)-1,
				     rule->right == ACCESS_VIEW && !a->hides_processes, NULL,
				     (uid_t)-1};
}

static const char *explain_unknown(const struct caller *c)
{
	if (c->error == -EOVERFLOW)
		return "the user of this connection has no number where the daemon runs: use a "
		       "certificate, or start the daemon with --trust-local-users";
	if (c->error == -ENOENT)
		return "it is not known which user this connection belongs to: it comes from "
		       "another "
		       "machine or container, or its program has ended; use a certificate "
		       "(--certs-dir), or start the daemon with --trust-local-users";
	return "the kernel does not say which user this connection belongs to: use the daemon's "
	       "--control-socket, a certificate (--certs-dir), or start the daemon with "
	       "--trust-local-users";
}

static struct access_grant find_grant(struct access *a, const struct caller *c, const SSL *ssl)
{
	bool is_user = c->kind == CALLER_USER;

	take_loaded(a);
	if (c->kind == CALLER_CERTIFIED)
		return ssl ? find_by_name(a, ssl)
			   : refuse_caller(
				     "this call needs a client certificate of the daemon's CA");
	if (is_user && (c->uid == 0 || c->uid == geteuid() || c->in_group ||
			access_rules_is_member(&a->rules, c->uid)))
		return everything;
	if (a->trusts_users)
		return (struct access_grant){ACCESS_ALL, is_user ? c->uid : (uid_t)-1,
					     !a->hides_processes, NULL, (uid_t)-1};
	return is_user ? (struct access_grant){ACCESS_OWN, c->uid, false, NULL, (uid_t)-1}
		       : refuse_caller(explain_unknown(c));
}

struct access_grant access_find(struct access *a, const struct caller *c, const SSL *ssl)
{
	struct access_grant g = find_grant(a, c, ssl);

	/* A certificate may come through a program that another user has left here: that is not the
	 * one who asks, unless the certificate could do as much anyway. */
	if (c->kind == CALLER_USER ||
	    (c->kind == CALLER_CERTIFIED &&
	     (g.right == ACCESS_ALL || (g.right == ACCESS_OWN && g.uid == c->uid))))
		g.self = c->uid;
	return g;
}
