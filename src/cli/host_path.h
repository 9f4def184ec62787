/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A word "node5=/data/node5": what lies at the path is of that host. */
#ifndef SONDE_CLI_HOST_PATH_H
#define SONDE_CLI_HOST_PATH_H

struct host_path {
	const char *host; /* NULL: none was named; interned */
	const char *path;
};

/* A path that exists is a path, whatever it is called. */
struct host_path host_path_read(const char *word);

#endif
