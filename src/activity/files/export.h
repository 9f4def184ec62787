/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as one file of any name: for people who convert what was recorded. The same ops as
 * those of activity.h; only that `dir` is the path of the file, which is replaced if it is there.
 */
#ifndef SONDE_ACTIVITY_FILES_EXPORT_H
#define SONDE_ACTIVITY_FILES_EXPORT_H

#include "activity/files/activity.h"

extern const struct activity_writer_ops activity_chrome_file;
/* One table, a row per activity: docs/activity.md. */
extern const struct activity_writer_ops activity_csv_file;
/*
 * A workbook with a sheet per kind, and further sheets where one is full; the file is there when it
 * is closed, and not before. ".xlsx" is added to a path without it. Needs little memory, and the
 * room of the file once more in the directory for temporary files. -ENOTSUP by put and close if the
 * program was built without libxlsxwriter.
 */
extern const struct activity_writer_ops activity_xlsx_file;

/* A time in µs as Python prints the float. Room for 32 bytes. */
void activity_us_text(uint64_t ns, char *out);

#endif
