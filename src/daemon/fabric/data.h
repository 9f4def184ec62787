/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The payload of a "data" message: one JSON object with a metric. */
#ifndef SONDE_DAEMON_FABRIC_DATA_H
#define SONDE_DAEMON_FABRIC_DATA_H

#include <jansson.h>
#include <stddef.h>

#define FABRIC_DATA_MAX 4096 /* bytes */
#define FABRIC_DATA_DEPTH 10 /* objects and arrays inside one another */

/* A new reference; NULL if it is no JSON object, too long, too deep, or has numbers that do not
 * fit. */
json_t *fabric_data_parse(const char *text, size_t len);

#endif
