/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A report as one HTML file: style, script and data are inside, and its policy allows nothing else, so
 * that it opens from a disk and reaches no network.
 */
#ifndef SONDE_REPORT_HTML_H
#define SONDE_REPORT_HTML_H

#include "report/pack.h"

/* Adds the page; the pack is used up. */
int html_write(struct pack *pack, const char *title, struct buf *out, struct err *err);

#endif
