/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/access_rules.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "test.h"
#include "tmpdir.h"

static const char *parse_fault(const char *text)
{
	static struct err err;
	struct access_rules r = {0};

	err = (struct err){0};
	CHECK(access_rules_parse(&r, text, strlen(text), &err) == -EINVAL);
	access_rules_release(&r);
	return err.text;
}

TEST(access_rules, has_names_with_blanks_and_a_line_for_the_others)
{
	static const char text[] = "# who\n\n alice \t user=1000 \r\nnight watch viewer\n"
				   "ops operator\n*  user=nobody";
	struct access_rules r = {0};

	CHECK_INT(access_rules_parse(&r, text, strlen(text), NULL), 0);
	CHECK_INT(r.nrules, 4);
	CHECK_INT(access_rules_find(&r, "alice")->right, ACCESS_OWN);
	CHECK_STR(access_rules_find(&r, "alice")->user, "1000");
	CHECK_INT(access_rules_find(&r, "night watch")->right, ACCESS_VIEW);
	CHECK_INT(access_rules_find(&r, "ops")->right, ACCESS_ALL);
	CHECK_STR(access_rules_find(&r, "night")->user, "nobody");
	CHECK_STR(access_rules_find(&r, "Ops")->name, "*");
	access_rules_release(&r);
	CHECK(!access_rules_find(&r, "ops"));
}

TEST(access_rules, refuses_what_it_does_not_know)
{
	char nul[] = "a\0b operator", longest[400];
	struct access_rules r = {0};
	struct err err = {0};

	CHECK(strstr(parse_fault("alice\n"), "line 1: expected the name"));
	CHECK(strstr(parse_fault("\n# x\noperator"), "line 3: expected the name"));
	CHECK(strstr(parse_fault("alice root\n"), "line 1: 'root' is not operator"));
	CHECK(strstr(parse_fault("alice Operator\n"), "is not operator"));
	CHECK(strstr(parse_fault("alice user=\n"), "'user=' is not"));
	CHECK(strstr(parse_fault("a viewer\nb viewer\na operator"), "'a' has line 1 already"));
	CHECK(strstr(parse_fault("a\x01 viewer"), "control character"));
	CHECK(access_rules_parse(&r, nul, sizeof(nul) - 1, &err) == -EINVAL);
	memset(longest, 'x', sizeof(longest));
	strcpy(longest + 300, " viewer");
	CHECK(strstr(parse_fault(longest), "up to 256 bytes"));
	access_rules_release(&r);
}

static int load(const char *text, mode_t mode, struct access_rules *r, struct err *err)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/access", tmpdir());
	FILE *f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && fchmod(fileno(f), mode) == 0 && fclose(f) == 0);
	return access_rules_load(path, NULL, r, err);
}

TEST(access_rules, look_users_up)
{
	struct access_rules r = {0};
	struct err err = {0};

	CHECK_INT(load("a user=root\nb user=4242\n", 0644, &r, &err), 0);
	CHECK(r.has_file && r.group == ACCESS_NO_GROUP);
	CHECK_INT(access_rules_find(&r, "a")->uid, 0);
	CHECK_INT(access_rules_find(&r, "b")->uid, 4242);
	access_rules_release(&r);
	CHECK(load("a viewer\nb user=no-such-user\n", 0644, &r, &err) < 0);
	CHECK(strstr(err.text, "line 2: there is no user 'no-such-user'"));
	CHECK(load("a user=99999999999\n", 0644, &r, &err) < 0);
	CHECK(load("a user=4294967295\n", 0644, &r, &err) < 0);
	/* who can write it can give himself every right */
	CHECK(load("a viewer\n", 0666, &r, &err) == -EACCES);
	CHECK(strstr(err.text, "can be written by others"));
	CHECK(access_rules_load("/no/such/file", NULL, &r, &err) == -ENOENT);
}

TEST(access_rules, have_the_members_of_a_group)
{
	struct access_rules r = {0};
	struct err err = {0};

	CHECK_INT(access_rules_load(NULL, "root", &r, &err), 0);
	CHECK_INT(r.group, 0);
	CHECK(!r.has_file && access_rules_is_member(&r, 0)); /* whose first group it is */
	CHECK(!access_rules_is_member(&r, 61001));
	access_rules_release(&r);
	CHECK(access_rules_load(NULL, "no-such-group", &r, &err) < 0);
	CHECK(strstr(err.text, "there is no group 'no-such-group'"));
}
