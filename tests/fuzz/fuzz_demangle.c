/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Names of C++: what the runtime makes of one is never longer than was said before. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "unwind/symbols/demangle.h"
#include "unwind/symbols/demangled_size.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = xasprintf("_Z%.*s", (int)(size < 4000 ? size : 4000), (const char *)data);
	uint64_t most = demangled_size(name);
	char *plain = demangle(name);

	BUG_ON(most > DEMANGLED_MOST || (plain && strlen(plain) > most));
	free(plain);
	free(name);
	return 0;
}
