/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Finds the records of a CSV byte stream (RFC 4180, LF or CRLF, line ends inside quotes), piece by
 * piece, and splits one into fields. A quote inside an unquoted field is an ordinary byte: dumps
 * of earlier programs hold such names.
 */
#ifndef SONDE_EXPORT_CSV_LEX_H
#define SONDE_EXPORT_CSV_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CSV_MAX_RECORD (16u << 20) /* a longer one is damage */

enum csv_state { CSV_FIELD_START, CSV_PLAIN, CSV_QUOTED, CSV_QUOTE_SEEN, CSV_CR_SEEN };

struct csv_lex {
	enum csv_state state; /* zero-initialise: a record begins */
	size_t at; /* bytes of the piece that were looked at */
	uint64_t lines; /* LFs seen so far, those inside quotes too */
};

struct csv_field {
	char *text; /* into the record, without the quotes around it */
	size_t len;
	bool quoted;
};

/*
 * Goes on at p + lex->at. 1: a record ends at lex->at, behind its LF; 0: all n bytes were used and
 * the record goes on; -EBADMSG: text behind a closing quote, at lex->at.
 */
int csv_lex_next(struct csv_lex *lex, const char *p, size_t n);

/*
 * Splits a whole record (its line end may be missing), which is not changed. Gives the number of
 * fields; only the first `max` are stored.
 */
size_t csv_split(char *p, size_t n, struct csv_field *out, size_t max);

/* Makes two quotes one, in place. */
void csv_unquote(struct csv_field *f);

#endif
