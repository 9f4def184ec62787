/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The log of our own processes. A line is
 *
 *	2026-01-31 12:00:00 [WARN]  [recorder.c:41] merge: text
 *
 * with the area of the file that wrote it (`#define LOG_AREA "merge"` before the include; none:
 * left out). Before log_open() lines go to stderr. Lines are written with one write() each, so
 * threads and processes may share a file. Levels can differ by area: see log_configure().
 */
#ifndef SONDE_BASE_LOG_H
#define SONDE_BASE_LOG_H

#include "base/err.h"

#ifndef LOG_AREA
#	define LOG_AREA ""
#endif

enum log_level { LOG_DEBUG = 0, LOG_INFO = 1, LOG_WARN = 2, LOG_ERROR = 3 };

/* Lines below the level are left out; LOG_WARN until said otherwise. */
void log_set_level(enum log_level level);

/* "debug" or "merge=debug,csv=error" or both; as in the environment variable SONDE_LOG. */
int log_configure(const char *text, struct err *err);

/* Appends to the file (made with mode 0600) from now on. The old destination stays on failure. */
int log_open(const char *path, struct err *err);
void log_close(void); /* back to stderr */

/* debug, info, warning (or warn), error; negative if it is none of them. */
int log_level_find(const char *name);

__attribute__((format(printf, 5, 6))) void log_write(enum log_level level, const char *area,
						     const char *file, int line, const char *fmt,
						     ...);

#define log_err(...) log_write(LOG_ERROR, LOG_AREA, __FILE__, __LINE__, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, LOG_AREA, __FILE__, __LINE__, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, LOG_AREA, __FILE__, __LINE__, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, LOG_AREA, __FILE__, __LINE__, __VA_ARGS__)

#endif
