/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/access_rules.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "net/tls/files.h"

#define NAME_BYTES 256
#define USER_PREFIX "user="
#define ENTRY_BYTES 65536 /* of a user or a group in the name service, at first */
#define ENTRY_MAX (16u << 20)

void access_rules_release(struct access_rules *r)
{
	for (size_t i = 0; i < r->nrules; i++) {
		free(r->rules[i].name);
		free(r->rules[i].user);
	}
	free(r->rules);
	free(r->members);
	*r = (struct access_rules){.group = ACCESS_NO_GROUP};
}

/* --- the file --- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The role of a line, its last word. False: it is none. */
static bool read_role(const char *word, size_t len, struct access_rule *out)
{
	const size_t prefix = strlen(USER_PREFIX);

	if (len == 8 && !memcmp(word, "operator", len))
		out->right = ACCESS_ALL;
	else if (len == 6 && !memcmp(word, "viewer", len))
		out->right = ACCESS_VIEW;
	else if (len > prefix && !memcmp(word, USER_PREFIX, prefix))
		out->right = ACCESS_OWN;
	else
		return false;
	if (out->right == ACCESS_OWN)
		out->user = xstrndup(word + prefix, len - prefix);
	return true;
}

static int add_rule(struct access_rules *r, const char *line, size_t len, unsigned number,
		    struct err *err)
{
	struct access_rule rule = {.line = number};
	size_t role = len, name;

	for (size_t i = 0; i < len; i++)
		if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
			return err_set(err, -EINVAL, "line %u has a control character", number);
	while (role && !is_blank(line[role - 1]))
		role--;
	for (name = role; name && is_blank(line[name - 1]);)
		name--;
	if (!name || name > NAME_BYTES)
		return err_set(err, -EINVAL,
			       "line %u: expected the name of a certificate, up to %d bytes, and "
			       "behind it operator, viewer or user=NAME",
			       number, NAME_BYTES);
	if (!read_role(line + role, len - role, &rule))
		return err_set(err, -EINVAL, "line %u: '%.*s' is not operator, viewer or user=NAME",
			       number, (int)(len - role < 80 ? len - role : 80), line + role);
	rule.name = xstrndup(line, name);
	const struct access_rule *same = access_rules_find(r, rule.name);
	if (same && !strcmp(same->name, rule.name)) {
		err_set(err, -EINVAL, "line %u: '%.80s' has line %u already", number, rule.name,
			same->line);
		free(rule.name);
		free(rule.user);
		return -EINVAL;
	}
	r->rules = xgrow(r->rules, &r->rules_cap, r->nrules + 1, sizeof(*r->rules));
	r->rules[r->nrules++] = rule;
	return 0;
}

int access_rules_parse(struct access_rules *r, const char *text, size_t len, struct err *err)
{
	unsigned number = 0;
	int status = 0;

	for (size_t at = 0; at < len && status == 0;) {
		const char *line = text + at;
		const char *newline = memchr(line, '\n', len - at);
		size_t n = newline ? (size_t)(newline - line) : len - at;

		at += n + 1;
		number++;
		while (n && is_blank(line[n - 1]))
			n--;
		while (n && is_blank(*line)) {
			line++;
			n--;
		}
		if (n && *line != '#')
			status = add_rule(r, line, n, number, err);
	}
	return status;
}

const struct access_rule *access_rules_find(const struct access_rules *r, const char *name)
{
	const struct access_rule *others = NULL;

	for (size_t i = 0; i < r->nrules; i++)
		if (!strcmp(r->rules[i].name, name))
			return &r->rules[i];
		else if (!strcmp(r->rules[i].name, "*"))
			others = &r->rules[i];
	return others;
}

/* --- users and groups --- */

/* Calls one of the functions of a name service again with more room until its entry fits. */
static int with_room(int (*look_up)(void *arg, char *room, size_t size), void *arg)
{
	int r = ERANGE;

	for (size_t size = ENTRY_BYTES; r == ERANGE && size <= ENTRY_MAX; size *= 4) {
		char *room = xmalloc(size);

		r = look_up(arg, room, size);
		free(room);
	}
	return r;
}

struct user_question {
	const char *name;
	uid_t uid;
	bool found;
};

static int look_up_user(void *arg, char *room, size_t size)
{
	struct user_question *q = arg;
	struct passwd entry, *found = NULL;
	int r = getpwnam_r(q->name, &entry, room, size, &found);

	q->found = r == 0 && found;
	if (q->found)
		q->uid = found->pw_uid;
	return r;
}

static bool find_user(const char *name, uid_t *out)
{
	struct user_question q = {.name = name};

	(void)with_room(look_up_user, &q);
	*out = q.uid;
	return q.found;
}

/* Digits alone are a number, whatever users are called. */
static bool read_user(const char *text, uid_t *out)
{
	int64_t number;

	if (text[strspn(text, "0123456789")])
		return find_user(text, out);
	if (!number_read(text, strlen(text), &number) || number >= UINT32_MAX)
		return false;
	*out = (uid_t)number;
	return true;
}

static int find_users(struct access_rules *r, struct err *err)
{
	for (size_t i = 0; i < r->nrules; i++) {
		struct access_rule *rule = &r->rules[i];

		if (rule->user && !read_user(rule->user, &rule->uid))
			return err_set(err, -ENOENT, "line %u: there is no user '%.80s'",
				       rule->line, rule->user);
	}
	return 0;
}

static void add_member(struct access_rules *r, uid_t uid)
{
	r->members = xgrow(r->members, &r->members_cap, r->nmembers + 1, sizeof(*r->members));
	r->members[r->nmembers++] = uid;
}

struct group_question {
	const char *name;
	struct access_rules *rules;
};

static int look_up_group(void *arg, char *room, size_t size)
{
	const struct group_question *q = arg;
	struct group entry, *found = NULL;
	int r = getgrnam_r(q->name, &entry, room, size, &found);
	uid_t uid;

	if (r || !found)
		return r;
	q->rules->group = found->gr_gid;
	for (char **member = found->gr_mem; *member; member++)
		if (find_user(*member, &uid))
			add_member(q->rules, uid);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uid_t x = *(const uid_t *)a, y = *(const uid_t *)b;

	return x < y ? -1 : x > y;
}

/* Those that the group lists, and those whose first group it is, as far as users can be listed. */
static int find_members(struct access_rules *r, const char *group, struct err *err)
{
	struct group_question q = {group, r};
	const struct passwd *user;

	(void)with_room(look_up_group, &q);
	if (r->group == ACCESS_NO_GROUP)
		return err_set(err, -ENOENT, "there is no group '%s'", group);
	setpwent();
	while ((user = getpwent())) /* nobody else calls this */
		if (user->pw_gid == r->group)
			add_member(r, user->pw_uid);
	endpwent();
	if (r->nmembers)
		qsort(r->members, r->nmembers, sizeof(*r->members), by_number);
	return 0;
}

bool access_rules_is_member(const struct access_rules *r, uid_t uid)
{
	return r->nmembers && bsearch(&uid, r->members, r->nmembers, sizeof(uid), by_number);
}

/* --- all of it --- */

static int load_file(const char *path, struct access_rules *r, struct err *err)
{
	struct buf text = {0};
	struct err why = {0};
	int status = tls_files_read(path, false, &text, err);

	if (status == 0) {
		r->has_file = true;
		status = access_rules_parse(r, text.data, text.len, &why);
		status = status ?: find_users(r, &why);
		if (status < 0)
			err_set(err, status, "'%s': %s", path, why.text);
	}
	buf_release(&text);
	return status;
}

int access_rules_load(const char *file, const char *group, struct access_rules *out,
		      struct err *err)
{
	struct access_rules r = {.group = ACCESS_NO_GROUP};
	int status = file ? load_file(file, &r, err) : 0;

	if (status == 0 && group)
		status = find_members(&r, group, err);
	if (status < 0)
		access_rules_release(&r);
	else
		*out = r;
	return status;
}
