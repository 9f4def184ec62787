/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The files of the status page (src/web), inside the program: they need no place on a disk. */
#include <stddef.h>
#include <string.h>

#include "daemon/http/http_impl.h"

#define EMBED(name, file)                                                                          \
	__asm__(".section .rodata\n"                                                               \
		".global page_" #name "\n"                                                         \
		".global page_" #name "_end\n"                                                     \
		"page_" #name ":\n"                                                                \
		".incbin \"" file "\"\n"                                                           \
		"page_" #name "_end:\n"                                                            \
		".byte 0\n"                                                                        \
		".previous\n");                                                                    \
	extern const char page_##name[], page_##name##_end[]

EMBED(html, "src/web/status.html");
EMBED(css, "src/web/status.css");
EMBED(js, "src/web/status.js");

static const struct page_file files[] = {
	{"/", "text/html; charset=utf-8", page_html, page_html_end},
	{"/status.css", "text/css; charset=utf-8", page_css, page_css_end},
	{"/status.js", "text/javascript; charset=utf-8", page_js, page_js_end},
};

const struct page_file *page_find(const char *path)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (!strcmp(files[i].path, path))
			return &files[i];
	return NULL;
}
