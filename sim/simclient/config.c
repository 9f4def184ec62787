/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	size_t n = strlen(s);
	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* A line of exactly one "=" becomes a pair. */
static bool take_line(struct config *c, char *line)
{
	char *eq = strchr(line, '=');
	if (!eq || strchr(eq + 1, '='))
		return false;
	*eq = '\0';
	if (c->n < CONFIG_PAIRS) {
		c->pairs[c->n].key = trim(line);
		c->pairs[c->n++].value = trim(eq + 1);
	}
	return true;
}

static char *begin(struct config *c, const char *text, size_t len)
{
	if (len >= sizeof(c->text))
		len = sizeof(c->text) - 1;
	memcpy(c->text, text, len);
	c->text[len] = '\0';
	c->n = 0;
	return c->text;
}

void config_read_npu(struct config *c, const char *text, size_t len)
{
	char *rest = begin(c, text, len);
	for (char *line; (line = strsep(&rest, "\n"));)
		take_line(c, line);
}

const char *config_read_kineto(struct config *c, const char *text, size_t len)
{
	char *rest = begin(c, text, len);
	for (char *line; (line = strsep(&rest, "\n"));) {
		line[strcspn(line, "#")] = '\0';
		line = trim(line);
		if (*line && !take_line(c, line))
			return line;
	}
	return NULL;
}

const char *config_get(const struct config *c, const char *key)
{
	for (int i = 0; i < c->n; i++)
		if (!strcmp(c->pairs[i].key, key))
			return c->pairs[i].value;
	return NULL;
}

int config_number(const struct config *c, const char *key, int64_t min, int64_t max,
		  int64_t missing, int64_t *out)
{
	const char *text = config_get(c, key);
	if (!text) {
		*out = missing;
		return 0;
	}
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (end == text || *end || errno || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

int config_bool(const struct config *c, const char *key, bool *out)
{
	const char *text = config_get(c, key);
	if (!text || (strcasecmp(text, "true") && strcasecmp(text, "false")))
		return -EINVAL;
	*out = !strcasecmp(text, "true");
	return 0;
}

bool config_list_has(const char *list, const char *item)
{
	size_t n = strlen(item);
	for (; list && *list;
	     list += list[strcspn(list, ",")] ? strcspn(list, ",") + 1 : strcspn(list, ","))
		if (strcspn(list, ",") == n && !strncmp(list, item, n))
			return true;
	return false;
}
