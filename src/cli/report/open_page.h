/* SPDX-License-Identifier: MulanPSL-2.0 */
/* --open: shows a file in the browser of the desktop. */
#ifndef SONDE_CLI_REPORT_OPEN_PAGE_H
#define SONDE_CLI_REPORT_OPEN_PAGE_H

/* Says on stderr where the file is if there is no desktop, or no xdg-open. */
void open_page(const char *command, const char *path);

#endif
