/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/host_path.h"

#include <string.h>
#include <sys/stat.h>

#include "base/containers/intern.h"
#include "base/text/printable.h"

struct host_path host_path_read(const char *word)
{
	const char *equals = strchr(word, '=');
	struct buf name = {0};
	struct stat st;

	if (!equals || equals == word || memchr(word, '/', (size_t)(equals - word)) ||
	    stat(word, &st) == 0)
		return (struct host_path){NULL, word};
	text_add_printable(&name, word, (size_t)(equals - word));
	struct host_path h = {intern(name.data, name.len), equals + 1};
	buf_release(&name);
	return h;
}
