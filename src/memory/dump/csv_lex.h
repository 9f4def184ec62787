/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Finds the records of a CSV byte stream (RFC 4180, LF or CRLF, line ends inside quotes) and their
 * fields, piece by piece, in one pass. A quote inside an unquoted field is an ordinary byte: dumps
 * of earlier programs hold such names.
 */
#ifndef SONDE_MEMORY_DUMP_CSV_LEX_H
#define SONDE_MEMORY_DUMP_CSV_LEX_H

#include "memory/dump/cell.h"

#define CSV_MAX_RECORD (16u << 20) /* a longer one is damage */
#define CSV_MAX_FIELDS 32 /* whose place is known; more are counted */

enum csv_state {
	CSV_RECORD_START,
	CSV_FIELD_START,
	CSV_PLAIN,
	CSV_QUOTED,
	CSV_QUOTE_SEEN,
	CSV_CR_SEEN,
};

struct csv_lex {
	enum csv_state state; /* zero-initialise: a record begins */
	size_t at; /* bytes of the piece that were looked at */
	uint64_t lines; /* LFs seen so far, those inside quotes too */
	/* Of the record; good when one call saw all of it. */
	size_t begin; /* of the field that is not complete */
	size_t nfields;
	uint32_t doubled; /* a bit per field: has two quotes that mean one, see csv_unquote() */
	struct cell fields[CSV_MAX_FIELDS]; /* without the quotes around them */
};

/*
 * Goes on at p + lex->at. 1: a record ends at lex->at, behind its LF; 0: all n bytes were used and
 * the record goes on; -EBADMSG: text behind a closing quote, at lex->at.
 */
int csv_lex_next(struct csv_lex *lex, const char *p, size_t n);

/* The stream ends here, behind the n bytes. False: inside quotes, there is no last record. */
bool csv_lex_end(struct csv_lex *lex, const char *p, size_t n);

/* Makes two quotes one, in place; gives the new length. */
size_t csv_unquote(char *p, size_t n);

#endif
