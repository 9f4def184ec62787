/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The rows behind python_layout_table(): a generated file (tools/python_offsets). */
#ifndef SONDE_UNWIND_PYTHON_LAYOUT_TABLES_H
#define SONDE_UNWIND_PYTHON_LAYOUT_TABLES_H

#include "unwind/python/layout.h"

#define PYTHON_TABLES 6 /* 3.7 to 3.12 */

/* x86-64; `version` is left out. */
extern const struct python_layout python_layout_tables[PYTHON_TABLES];

/* _PyRuntime of versions below `before` on `arch`, where it differs from the row. The first that
 * fits counts; .minor == 0 ends the list. */
struct python_runtime_exception {
	uint8_t minor;
	enum python_arch arch;
	uint32_t before;
	struct python_layout_runtime runtime;
};
extern const struct python_runtime_exception python_runtime_exceptions[];

#endif
