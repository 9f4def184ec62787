/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric/data.h"

#include "base/text/json_depth.h"

json_t *fabric_data_parse(const char *text, size_t len)
{
	json_error_t error;

	if (len > FABRIC_DATA_MAX || json_depth(text, len) > FABRIC_DATA_DEPTH)
		return NULL;
	json_t *record = json_loadb(text, len, 0, &error);
	if (record && !json_is_object(record)) {
		json_decref(record);
		return NULL;
	}
	return record;
}
