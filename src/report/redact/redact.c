/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/redact/redact.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "report/redact/redact_words.h"

/* What stands for a name; NULL: the name itself. */
struct known {
	char *instead;
};

struct redact {
	bool keep_own;
	struct known *list;
	size_t n, cap;
	struct hmap by_text; /* hash to its number */
	unsigned count[REDACT_KINDS];
	struct spaced { /* names with blanks or signs in them, as templates of C++ have */
		char *text;
		size_t len;
		size_t known;
	} * spaced;
	size_t nspaced, cap_spaced;
};

static const char *const nouns[REDACT_KINDS] = {
	[REDACT_OWN_FUNCTION] = "function",
	[REDACT_OWN_FILE] = "file",
	[REDACT_MODULE] = "module",
	[REDACT_OWNER] = "label",
	[REDACT_COMMAND] = "command",
	[REDACT_HOST] = "name",
	[REDACT_PATH] = "path",
	[REDACT_KERNEL] = "kernel",
};

struct redact *redact_new(bool keep_own)
{
	struct redact *r = xcalloc(1, sizeof(*r));

	r->keep_own = keep_own;
	return r;
}

void redact_free(struct redact *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		free(r->list[i].instead);
	for (size_t i = 0; i < r->nspaced; i++)
		free(r->spaced[i].text);
	free(r->spaced);
	free(r->list);
	hmap_release(&r->by_text);
	free(r);
}

static const struct known *find_known(const struct redact *r, const char *text, size_t len)
{
	uint64_t at = hmap_get(&r->by_text, XXH3_64bits(text, len));

	return at == HMAP_NONE ? NULL : &r->list[at];
}

static const struct known *add_known(struct redact *r, const char *text, size_t len, char *instead)
{
	hmap_put(&r->by_text, XXH3_64bits(text, len), r->n);
	*XPUSH(r->list, r->n, r->cap) = (struct known){instead};
	return &r->list[r->n - 1];
}

static bool is_own(enum redact_kind kind)
{
	return kind == REDACT_OWN_FUNCTION || kind == REDACT_OWN_FILE || kind == REDACT_MODULE ||
	       kind == REDACT_OWNER || kind == REDACT_KERNEL;
}

/* ".py" of a file, if it is one that says no more than the language. */
static const char *suffix_of(const char *text, size_t len)
{
	static const char *const suffixes[] = {".py",  ".c",  ".cc", ".cpp", ".cu",   ".h",
					       ".hpp", ".so", ".rs", ".pyx", ".ipynb"};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		size_t n = strlen(suffixes[i]);

		if (len > n && !memcmp(text + len - n, suffixes[i], n))
			return suffixes[i];
	}
	return "";
}

static bool ends_token(char c)
{
	return strchr(" \t\n\"'(),;[]{}`=", c) != NULL;
}

static void note_spaced(struct redact *r, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (!ends_token(text[i]))
			continue;
		*XPUSH(r->spaced, r->nspaced, r->cap_spaced) =
			(struct spaced){xstrndup(text, len), len, r->n};
		return;
	}
}

static const struct known *replace(struct redact *r, enum redact_kind kind, const char *text,
				   size_t len)
{
	const struct known *known = find_known(r, text, len);

	if (known)
		return known;
	if (r->keep_own && is_own(kind))
		return add_known(r, text, len, NULL);
	note_spaced(r, text, len);
	return add_known(r, text, len,
			 xasprintf("%s_%u%s", nouns[kind], ++r->count[kind],
				   kind == REDACT_OWN_FILE ? suffix_of(text, len) : ""));
}

static void add_replaced(struct redact *r, enum redact_kind kind, const char *text, size_t len,
			 struct buf *out)
{
	const struct known *known = replace(r, kind, text, len);

	if (known->instead)
		buf_add_str(out, known->instead);
	else
		buf_add(out, text, len);
}

static void last_part(const char **text, size_t *len)
{
	for (size_t i = *len; i > 0; i--) {
		if ((*text)[i - 1] != '/')
			continue;
		*text += i;
		*len -= i;
		return;
	}
}

/* --- paths of modules, and owners --- */

static bool is_number(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isdigit((unsigned char)text[i]) && text[i] != '*')
			return false;
	return len != 0;
}

typedef bool (*stays_fn)(const char *part, size_t len);

static void add_parts(struct redact *r, enum redact_kind kind, const char *text, size_t len,
		      const char *between, stays_fn stays, struct buf *out)
{
	for (size_t at = 0; at <= len;) {
		size_t n = 0;

		while (at + n < len && !strchr(between, text[at + n]))
			n++;
		if (is_number(text + at, n) || stays(text + at, n))
			buf_add(out, text + at, n);
		else if (n)
			add_replaced(r, kind, text + at, n, out);
		at += n;
		if (at < len)
			buf_add_char(out, text[at]);
		at++;
	}
}

/* --- sentences --- */

/* "train.py:18": the line behind it. */
static size_t without_line(const char *text, size_t len)
{
	size_t n = len;

	while (n && isdigit((unsigned char)text[n - 1]))
		n--;
	return n && n < len && text[n - 1] == ':' ? n - 1 : len;
}

static bool is_path(const char *text, size_t len)
{
	const char *slash = memchr(text, '/', len);

	if (!slash || redact_is_unit(text, len))
		return false;
	return len < 5 || memcmp(text, "docs/", 5) != 0;
}

/* A file stays if a framework's stack has named it. */
static void add_file(struct redact *r, const char *text, size_t len, struct buf *out)
{
	last_part(&text, &len);
	add_replaced(r, REDACT_OWN_FILE, text, len, out);
}

/* A part of a qualified name is the user's: then all of it is. */
static bool has_own_part(const struct redact *r, const char *text, size_t len)
{
	for (size_t at = 0; at < len; at++) {
		size_t n = 0;

		while (at + n < len && text[at + n] != '.' && text[at + n] != '@')
			n++;
		const struct known *known = find_known(r, text + at, n);
		if (known && known->instead && !redact_is_word(text + at, n))
			return true;
		at += n;
	}
	return false;
}

/* place: followed by " (", as a function that is named with its file. */
static void add_token(struct redact *r, const char *text, size_t len, bool place, struct buf *out)
{
	size_t end = len;

	while (end && strchr(".:!?", text[end - 1])) /* of the sentence */
		end--;
	size_t n = without_line(text, end);
	const struct known *known = find_known(r, text, n);

	if (redact_is_word(text, n) && !(place && known))
		buf_add(out, text, n);
	else if (known && known->instead)
		buf_add_str(out, known->instead);
	else if (known)
		buf_add(out, text, n);
	else if (is_path(text, n) || *suffix_of(text, n))
		add_file(r, text, n, out);
	else if (memchr(text, '@', n))
		redact_text(r, REDACT_OWNER, text, n, out);
	else if (has_own_part(r, text, n))
		add_parts(r, REDACT_OWN_FUNCTION, text, n, ".", redact_is_word, out);
	else
		buf_add(out, text, n);
	buf_add(out, text + n, len - n);
}

static void add_tokens(struct redact *r, const char *text, size_t len, struct buf *out)
{
	for (size_t at = 0; at < len;) {
		size_t n = 0;

		while (at + n < len && !ends_token(text[at + n]))
			n++;
		bool place = at + n + 1 < len && text[at + n] == ' ' && text[at + n + 1] == '(';
		add_token(r, text + at, n, place, out);
		at += n;
		if (at < len)
			buf_add_char(out, text[at++]);
	}
}

/* The first of the names that are no single token; NULL: there is none. */
static const struct spaced *find_spaced(const struct redact *r, const char *text, size_t len,
					size_t *out_at)
{
	const struct spaced *found = NULL;

	for (size_t i = 0; i < r->nspaced; i++) {
		const struct spaced *s = &r->spaced[i];
		const char *at = s->len <= len ? memmem(text, len, s->text, s->len) : NULL;

		if (!at || (found && ((size_t)(at - text) > *out_at ||
				      ((size_t)(at - text) == *out_at && s->len <= found->len))))
			continue;
		found = s;
		*out_at = (size_t)(at - text);
	}
	return found;
}

static void add_words(struct redact *r, const char *text, size_t len, struct buf *out)
{
	const struct spaced *s;
	size_t at;

	while ((s = find_spaced(r, text, len, &at)) != NULL) {
		add_tokens(r, text, at, out);
		buf_add_str(out, r->list[s->known].instead);
		text += at + s->len;
		len -= at + s->len;
	}
	add_tokens(r, text, len, out);
}

/* "[inlined]" behind a function says nothing about it. */
static void add_function(struct redact *r, const char *text, size_t len, struct buf *out)
{
	static const char inlined[] = " [inlined]";
	size_t n = sizeof(inlined) - 1;

	n = len > n && !memcmp(text + len - n, inlined, n) ? len - n : len;
	if (*text == '<' || redact_is_word(text, n)) /* <module>, <lambda>; main, step, … */
		buf_add(out, text, n);
	else
		add_replaced(r, REDACT_OWN_FUNCTION, text, n, out);
	buf_add(out, text + n, len - n);
}

/* --- all kinds --- */

void redact_text(struct redact *r, enum redact_kind kind, const char *text, size_t len,
		 struct buf *out)
{
	switch (kind) {
	case REDACT_WORDS:
		add_words(r, text, len, out);
		return;
	case REDACT_FUNCTION:
		buf_add(out, text, len);
		return;
	case REDACT_FILE:
		last_part(&text, &len);
		buf_add(out, text, len);
		return;
	case REDACT_OWN_FILE:
		add_file(r, text, len, out);
		return;
	case REDACT_OWN_FUNCTION:
		add_function(r, text, len, out);
		return;
	case REDACT_MODULE:
		add_parts(r, kind, text, len, ".:", redact_is_parameter, out);
		return;
	case REDACT_OWNER:
		add_parts(r, kind, text, len, "@", redact_is_label, out);
		return;
	case REDACT_KERNEL:
		if (redact_is_vendor_kernel(text, len))
			buf_add(out, text, len);
		else
			add_replaced(r, kind, text, len, out);
		return;
	default:
		if (len)
			add_replaced(r, kind, text, len, out);
	}
}

/* The words of a command: each argument, what it is set to, the last part of a path. */
static void learn_command(struct redact *r, const char *text, size_t len)
{
	for (size_t at = 0; at < len;) {
		size_t n = 0;

		while (at + n < len && text[at + n] != ' ' && text[at + n] != '=')
			n++;
		const char *word = text + at;
		size_t word_len = n;
		if (n > 1 && !redact_is_word(word, n) && !is_number(word, n))
			(void)replace(r, REDACT_COMMAND, word, n);
		last_part(&word, &word_len);
		if (word_len > 1 && !redact_is_word(word, word_len) && !is_number(word, word_len))
			(void)replace(r,
				      *suffix_of(word, word_len) ? REDACT_OWN_FILE : REDACT_COMMAND,
				      word, word_len);
		at += n + 1;
	}
}

void redact_learn(struct redact *r, enum redact_kind kind, const char *text, size_t len)
{
	struct buf unused = {0};

	if (!r || !len)
		return;
	if (kind == REDACT_COMMAND) {
		learn_command(r, text, len);
	} else if (kind == REDACT_FILE) { /* stays in sentences, too */
		last_part(&text, &len);
		if (!find_known(r, text, len))
			add_known(r, text, len, NULL);
	} else {
		redact_text(r, kind, text, len, &unused);
	}
	buf_release(&unused);
}

void redact_learn_surroundings(struct redact *r)
{
	char host[256] = "";
	const struct passwd *user = getpwuid(getuid());

	if (gethostname(host, sizeof(host) - 1) == 0)
		redact_learn(r, REDACT_HOST, host, strlen(host));
	if (user)
		redact_learn(r, REDACT_HOST, user->pw_name, strlen(user->pw_name));
}
