/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The file that maps names of certificates to rights. What is taken must be found under its own
 * name, and must be taken again when it is written out; what is not taken is refused with words.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "daemon/access_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_rules(const struct access_rules *r, struct buf *out)
{
	static const char *const roles[] = {[ACCESS_VIEW] = "viewer", [ACCESS_ALL] = "operator"};

	for (size_t i = 0; i < r->nrules; i++) {
		const struct access_rule *rule = &r->rules[i];

		BUG_ON(!*rule->name || !rule->line || (rule->right == ACCESS_OWN) != !!rule->user);
		BUG_ON(access_rules_find(r, rule->name) != rule);
		if (rule->user)
			buf_addf(out, "%s user=%s\n", rule->name, rule->user);
		else
			buf_addf(out, "%s %s\n", rule->name, roles[rule->right]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct access_rules r = {0}, again = {0};
	struct buf text = {0};
	struct err err = {0};

	if (access_rules_parse(&r, (const char *)data, size, &err) < 0) {
		BUG_ON(err.code >= 0 || !*err.text);
	} else {
		write_rules(&r, &text);
		BUG_ON(access_rules_parse(&again, text.data, text.len, &err) < 0);
		BUG_ON(again.nrules != r.nrules);
	}
	access_rules_release(&r);
	access_rules_release(&again);
	buf_release(&text);
	return 0;
}
