/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How long a mangled name (Itanium C++ ABI) may become. A part of a name can stand for an earlier
 * one (S_) or for a template argument (T_), so its length may double with every few bytes, and a
 * demangler's time and memory with it.
 *
 * The name is read by the grammar, and every part is given an upper bound of its length. The parts
 * that can be referred to have numbers. Those that surely have one are counted; there may be more, so
 * the part with the number n of the runtime is not behind ours, and counts as the largest one up to
 * there. T_ counts as the largest template argument of the whole name, for which the name is read
 * more than once. Behind what the grammar here does not have (expressions) every reference doubles.
 */
#include "unwind/symbols/demangled_size.h"

#include <stdbool.h>
#include <string.h>

#define MOST DEMANGLED_MOST
#define MAX_DEPTH 128
#define MAX_PASSES 16
#define MAX_NUMBERED 256
#define WORD 24 /* the longest word that a letter stands for, and what goes around it */
#define STD_WORD 96 /* Ss, Si … as the runtime spells them */

struct scan {
	const char *p;
	size_t bytes; /* of the name: no identifier is longer */
	uint64_t total; /* of all parts so far */
	uint64_t largest; /* of the parts that S_ can stand for */
	uint64_t numbered[MAX_NUMBERED]; /* the largest when the part with this number ended */
	size_t count; /* of them */
	uint64_t argument; /* the largest template argument of the reading before this one … */
	uint64_t found; /* … and of this one */
	uint64_t most_args, found_args; /* in one list: a pack is repeated so often */
	unsigned depth, encodings;
	bool lost; /* here is something that we do not know */
};

static uint64_t scan_type(struct scan *s);
static uint64_t scan_encoding(struct scan *s);

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a + b > MOST ? MOST : a + b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t note_part(struct scan *s, uint64_t n, bool has_number)
{
	s->largest = larger(s->largest, n);
	if (has_number && !s->lost && s->count < MAX_NUMBERED)
		s->numbered[s->count++] = s->largest;
	return n;
}

static uint64_t spend_work(struct scan *s, uint64_t n)
{
	s->total = add_saturated(s->total, n);
	return n;
}

static uint64_t give_up(struct scan *s)
{
	s->lost = true;
	return 0;
}

static bool take_char(struct scan *s, char c)
{
	if (s->lost || *s->p != c)
		return false;
	s->p++;
	return true;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static void skip_digits(struct scan *s)
{
	while (is_digit(*s->p))
		s->p++;
}

/* <number> <identifier> */
static uint64_t scan_source_name(struct scan *s)
{
	size_t n = 0;

	if (!is_digit(*s->p))
		return give_up(s);
	while (is_digit(*s->p) && n <= s->bytes)
		n = n * 10 + (size_t)(*s->p++ - '0');
	if (strnlen(s->p, n) < n)
		return give_up(s);
	s->p += n;
	return spend_work(s, n + WORD);
}

/* The end of a reference, "_" for 0, "0_" for 1, "1A_" …: its number. */
static bool take_sequence(struct scan *s, size_t *out)
{
	const char *p = s->p;
	size_t n = 0;

	for (; is_digit(*p) || (*p >= 'A' && *p <= 'Z'); p++)
		n = n < MAX_NUMBERED ? n * 36 + (size_t)(*p - (is_digit(*p) ? '0' : 'A' - 10)) : n;
	if (*p != '_')
		return false;
	*out = n + (p > s->p);
	s->p = p + 1;
	return true;
}

/* L <type> <value> E, or L _Z <encoding> E: behind the L. */
static uint64_t scan_literal(struct scan *s)
{
	uint64_t n = 0;

	if (!strncmp(s->p, "_Z", 2)) {
		s->p += 2;
		n = scan_encoding(s);
	} else {
		n = scan_type(s);
		size_t value = strspn(s->p, "0123456789abcdefn._");
		s->p += value;
		n = add_saturated(n, spend_work(s, value + WORD));
	}
	return take_char(s, 'E') ? n : give_up(s);
}

/* Behind I or J. */
static uint64_t scan_arguments(struct scan *s)
{
	uint64_t sum = spend_work(s, WORD), count = 0;

	if (++s->depth > MAX_DEPTH)
		return give_up(s);
	while (!s->lost && !take_char(s, 'E')) {
		uint64_t n = take_char(s, 'L')	 ? scan_literal(s)
			     : take_char(s, 'J') ? scan_arguments(s)
						 : scan_type(s);

		n = add_saturated(n, spend_work(s, 2));
		s->found = larger(s->found, n);
		sum = add_saturated(sum, n);
		s->found_args = larger(s->found_args, ++count);
	}
	s->depth--;
	return sum;
}

/* A name and its arguments; without them it has no number here. */
static uint64_t scan_if_arguments(struct scan *s, uint64_t n, bool has_number)
{
	bool is_template = !s->lost && *s->p == 'I';

	note_part(s, n, is_template && has_number);
	if (take_char(s, 'I'))
		n = add_saturated(n, scan_arguments(s));
	return note_part(s, n, false);
}

/* S…, but St. */
static uint64_t scan_substitution(struct scan *s)
{
	size_t number;

	s->p++;
	if (*s->p && strchr("absiod", *s->p)) {
		s->p++;
		return spend_work(s, STD_WORD);
	}
	if (!take_sequence(s, &number))
		return give_up(s);
	return spend_work(s, number < s->count ? s->numbered[number] : s->largest);
}

static uint64_t scan_template_param(struct scan *s)
{
	size_t unused;

	s->p++;
	return take_sequence(s, &unused) ? spend_work(s, s->argument) : give_up(s);
}

/* Ul <types> E [number] _ : a lambda. Ut [number] _ : a type without a name. */
static uint64_t scan_unnamed(struct scan *s)
{
	uint64_t n = spend_work(s, WORD);
	char kind = s->p[1];

	s->p += 2;
	if (kind == 'l')
		while (!s->lost && !take_char(s, 'E'))
			n = add_saturated(n, scan_type(s));
	else if (kind != 't')
		return give_up(s);
	skip_digits(s);
	return take_char(s, '_') ? n : give_up(s);
}

static uint64_t scan_operator(struct scan *s)
{
	static const char two[] =
		"nwnadldaawpsngaddecoplmimldvrmanoreoaSpLmImLdVrMaNoReOlsrslSrSeqneltgt"
		"legessntaaooppmmcmpmptclixqu";

	if (!strncmp(s->p, "cv", 2)) {
		s->p += 2;
		return add_saturated(spend_work(s, WORD), scan_type(s));
	}
	if (!strncmp(s->p, "li", 2)) {
		s->p += 2;
		return scan_source_name(s);
	}
	for (const char *at = two; *at; at += 2)
		if (!strncmp(s->p, at, 2)) {
			s->p += 2;
			return spend_work(s, WORD);
		}
	return give_up(s);
}

/* One name without what it is in. */
static uint64_t scan_unqualified(struct scan *s)
{
	uint64_t n = 0;

	if (take_char(s, 'L') || s->lost)
		n = 0;
	if (is_digit(*s->p))
		n = scan_source_name(s);
	else if (*s->p == 'U')
		n = scan_unnamed(s);
	else if ((*s->p == 'C' || *s->p == 'D') && s->p[1] >= '0' && s->p[1] <= '5') {
		s->p += 2;
		n = spend_work(s, s->bytes); /* the name of its class once more */
	} else
		n = scan_operator(s);
	while (take_char(s, 'B'))
		n = add_saturated(n, scan_source_name(s));
	return n;
}

/* Behind N. */
static uint64_t scan_nested(struct scan *s)
{
	uint64_t n = 0;

	for (; *s->p && strchr("rVKRO", *s->p); s->p++)
		n = add_saturated(n, spend_work(s, WORD));
	while (!s->lost && !take_char(s, 'E')) {
		bool is_reference = *s->p == 'S';

		if (!strncmp(s->p, "St", 2)) {
			s->p += 2;
			n = add_saturated(n, spend_work(s, WORD));
		} else if (is_reference)
			n = add_saturated(n, scan_substitution(s));
		else if (*s->p == 'T')
			n = add_saturated(n, scan_template_param(s));
		else if (take_char(s, 'I'))
			n = add_saturated(n, scan_arguments(s));
		else if (!take_char(s, 'M'))
			n = add_saturated(n, scan_unqualified(s));
		n = add_saturated(n, spend_work(s, 2));
		note_part(s, n, !is_reference && *s->p != 'E' && s->p[-1] != 'M');
	}
	return n;
}

/* Behind Z. */
static uint64_t scan_local(struct scan *s)
{
	uint64_t n = scan_encoding(s);

	if (!take_char(s, 'E'))
		return give_up(s);
	if (take_char(s, 's')) {
		n = add_saturated(n, spend_work(s, WORD));
	} else {
		if (take_char(s, 'd')) {
			skip_digits(s);
			if (!take_char(s, '_'))
				return give_up(s);
		}
		n = add_saturated(n, take_char(s, 'N') ? scan_nested(s) : scan_unqualified(s));
	}
	if (*s->p == '_' && (is_digit(s->p[1]) || s->p[1] == '_')) {
		s->p += strspn(s->p, "_");
		skip_digits(s);
		(void)take_char(s, '_');
	}
	return n;
}

static uint64_t scan_name(struct scan *s)
{
	bool is_reference = s->p[0] == 'S' && s->p[1] != 't';
	uint64_t n;

	if (take_char(s, 'N'))
		return scan_nested(s);
	if (take_char(s, 'Z'))
		n = scan_local(s);
	else if (!strncmp(s->p, "St", 2)) {
		s->p += 2;
		n = add_saturated(spend_work(s, WORD), scan_unqualified(s));
	} else if (*s->p == 'S')
		n = scan_substitution(s);
	else
		n = scan_unqualified(s);
	return scan_if_arguments(s, n, !is_reference);
}

static uint64_t scan_types_until_end(struct scan *s)
{
	uint64_t n = spend_work(s, WORD);

	(void)take_char(s, 'Y');
	while (!s->lost && !take_char(s, 'E')) {
		if (s->p[0] && strchr("RO", s->p[0]) && s->p[1] == 'E')
			s->p++;
		else
			n = add_saturated(n, add_saturated(scan_type(s), spend_work(s, 2)));
	}
	return n;
}

/* D and what follows. */
static uint64_t scan_d_type(struct scan *s)
{
	char kind = s->p[1];

	s->p += kind ? 2 : 1;
	if (kind && strchr("ndfehisuac", kind))
		return spend_work(s, WORD);
	if (kind == 'p') {
		uint64_t before = s->total, times = s->most_args + 1, n = scan_type(s);

		if (s->total - before > MOST / times)
			return spend_work(s, MOST);
		spend_work(s, (s->total - before) * times);
		return n * times > MOST ? MOST : n * times;
	}
	if (kind == 'o')
		return scan_type(s);
	if (kind == 'v' && is_digit(*s->p)) {
		skip_digits(s);
		return take_char(s, '_') ? add_saturated(scan_type(s), spend_work(s, WORD))
					 : give_up(s);
	}
	return give_up(s);
}

static uint64_t scan_plain_type(struct scan *s)
{
	if (*s->p >= 'a' && *s->p <= 'z' && *s->p != 'u') {
		s->p++;
		return spend_work(s, WORD);
	}
	if (take_char(s, 'u'))
		return scan_if_arguments(s, scan_source_name(s), false);
	if (*s->p == 'D')
		return scan_d_type(s);
	if (take_char(s, 'F'))
		return scan_types_until_end(s);
	if (take_char(s, 'A')) {
		skip_digits(s);
		return take_char(s, '_') ? add_saturated(scan_type(s), spend_work(s, WORD))
					 : give_up(s);
	}
	if (take_char(s, 'M')) {
		uint64_t n = scan_type(s);

		return add_saturated(n, add_saturated(scan_type(s), spend_work(s, WORD)));
	}
	if (*s->p == 'T')
		return scan_if_arguments(s, scan_template_param(s), false);
	return scan_name(s);
}

static uint64_t scan_type(struct scan *s)
{
	uint64_t n = 0;
	unsigned modifiers = 0;

	if (s->lost || ++s->depth > MAX_DEPTH)
		return give_up(s);
	for (; *s->p && strchr("rVKPROCG", *s->p); s->p++) {
		bool is_one = strchr("PRO", *s->p) || (*s->p == 'K' && !strchr("rVKF", s->p[1]));

		modifiers += is_one;
		n = add_saturated(n, spend_work(s, WORD));
	}
	const char *start = s->p;
	n = add_saturated(n, scan_plain_type(s));
	/* Words of one letter have no number, and neither has what is only a reference. */
	bool is_plain = *start == 'S' ? s->p[-1] != '_' && s->p - start > 2
				      : *start && strchr("FAMTNZ0123456789", *start);
	note_part(s, n, is_plain);
	for (; modifiers; modifiers--)
		note_part(s, n, true);
	s->depth--;
	return n;
}

static uint64_t scan_encoding(struct scan *s)
{
	size_t unused;
	uint64_t n;

	if (s->lost || ++s->depth > MAX_DEPTH)
		return give_up(s);
	s->encodings++;
	if (s->p[0] == 'T' && s->p[1] && strchr("VITS", s->p[1])) {
		s->p += 2;
		n = add_saturated(spend_work(s, WORD), scan_type(s));
	} else if (s->p[0] == 'G' && (s->p[1] == 'V' || s->p[1] == 'R')) {
		s->p += 2;
		n = add_saturated(spend_work(s, WORD), scan_name(s));
		(void)take_sequence(s, &unused);
	} else {
		n = scan_name(s);
		while (!s->lost && *s->p && *s->p != 'E' && *s->p != '.')
			n = add_saturated(n, add_saturated(scan_type(s), spend_work(s, 2)));
	}
	s->depth--;
	return n;
}

/* What may come behind a place where we are lost. */
static uint64_t double_per_reference(const struct scan *s)
{
	uint64_t n = add_saturated(s->total, s->largest + s->argument + STD_WORD);

	for (const char *p = s->p; *p && n < MOST; p++) {
		n = add_saturated(n, WORD);
		if ((*p == 'S' || *p == 'T' || *p == 'p') && n < MOST)
			n *= 2;
	}
	return n > MOST ? MOST : n;
}

uint64_t demangled_size(const char *name)
{
	uint64_t argument = 0, most_args = 1, size = MOST;

	/* An argument may name one of the template around it, and so on outwards. */
	for (unsigned pass = 0, passes = 2; pass < passes; pass++) {
		struct scan s = {
			.p = name + strlen("_Z"),
			.bytes = strlen(name),
			.largest = WORD,
			.argument = argument,
			.most_args = most_args,
		};

		scan_encoding(&s);
		if (s.lost || (*s.p && *s.p != '.'))
			return double_per_reference(&s);
		passes = s.encodings + 2;
		if (passes > MAX_PASSES)
			return MOST;
		argument = larger(argument, s.found);
		most_args = larger(most_args, s.found_args);
		size = add_saturated(s.total, s.bytes);
	}
	return size;
}
