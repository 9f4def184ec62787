/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/python/layout.h"

#include <errno.h>
#include <string.h>

#include "unwind/python/layout_tables.h"

int python_layout_table(uint32_t version, enum python_arch arch, struct python_layout *out)
{
	unsigned minor = version >> 16 & 0xff;

	if (version >> 24 != 3 || minor < PYTHON_OLDEST || minor >= PYTHON_OLDEST + PYTHON_TABLES)
		return -ENOENT;

	*out = python_layout_tables[minor - PYTHON_OLDEST];
	out->version = version;
	for (const struct python_runtime_exception *e = python_runtime_exceptions; e->minor; e++)
		if (e->minor == minor && e->arch == arch && version < e->before) {
			out->runtime = e->runtime;
			break;
		}
	return 0;
}
