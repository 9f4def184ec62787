/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/writer.h"

#include <string.h>

static const struct writer_ops *const writers[] = {&csv_writer, &db_writer};

const struct writer_ops *writer_find(const char *name)
{
	for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++)
		if (!strcmp(writers[i]->name, name))
			return writers[i];
	return NULL;
}
