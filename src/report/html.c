/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/html.h"

#include <openssl/sha.h>
#include <string.h>

#include "base/text/embed.h"
#include "base/text/printable.h"

EMBED(report_html, "src/web/report/report.html");
EMBED(report_css, "src/web/report/report.css");
EMBED(report_model, "src/web/report/model.js");
EMBED(report_elements, "src/web/report/elements.js");
EMBED(report_over_time, "src/web/report/over_time.js");
EMBED(report_flame, "src/web/report/flame.js");
EMBED(report_tables, "src/web/report/tables.js");
EMBED(report_address_map, "src/web/report/address_map.js");
EMBED(report_device_time, "src/web/report/device_time.js");
EMBED(report_profiles, "src/web/report/profiles.js");
EMBED(report_difference, "src/web/report/difference.js");
EMBED(report_page, "src/web/report/page.js");

#define PART(name_)                                                                                \
	{                                                                                          \
		embedded_##name_, embedded_##name_##_end                                           \
	}

static const struct {
	const char *begin, *end;
} scripts[] = {
	PART(report_model),	  PART(report_elements), PART(report_over_time),
	PART(report_flame),	  PART(report_tables),	 PART(report_address_map),
	PART(report_device_time), PART(report_profiles), PART(report_difference),
	PART(report_page),
};

static void add_hash(const struct buf *text, struct buf *out)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char hash[SHA256_DIGEST_LENGTH + 1] = {0};

	SHA256((const unsigned char *)text->data, text->len, hash);
	buf_add_str(out, "'sha256-");
	for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i += 3) {
		uint32_t v = (uint32_t)hash[i] << 16 | (uint32_t)hash[i + 1] << 8 |
			     (i + 2 < SHA256_DIGEST_LENGTH ? hash[i + 2] : 0u);

		buf_add_char(out, letters[v >> 18]);
		buf_add_char(out, letters[v >> 12 & 63]);
		buf_add_char(out, letters[v >> 6 & 63]);
		buf_add_char(out, i + 2 < SHA256_DIGEST_LENGTH ? letters[v & 63] : '=');
	}
	buf_add_char(out, '\'');
}

static void add_escaped(struct buf *out, const char *text)
{
	struct buf clean = {0};

	text_add_printable(&clean, text, strlen(text));
	for (size_t i = 0; i < clean.len; i++) {
		if (clean.data[i] == '<')
			buf_add_str(out, "&lt;");
		else if (clean.data[i] == '&')
			buf_add_str(out, "&amp;");
		else
			buf_add_char(out, clean.data[i]);
	}
	buf_release(&clean);
}

/* The one script: all parts see each other's names, and nobody else does. */
static void join_scripts(struct buf *out)
{
	buf_add_str(out, "(() => {\n\"use strict\";\n");
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		buf_add(out, scripts[i].begin, (size_t)(scripts[i].end - scripts[i].begin));
	buf_add_str(out, "})();\n");
}

int html_write(struct pack *pack, const char *title, struct buf *out, struct err *err)
{
	struct buf script = {0}, style = {0};
	uint64_t raw = 0;

	join_scripts(&script);
	buf_add(&style, embedded_report_css,
		(size_t)(embedded_report_css_end - embedded_report_css));
	buf_add_str(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
			 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
			 "'none'; script-src ");
	add_hash(&script, out);
	buf_add_str(out, "; style-src ");
	add_hash(&style, out);
	buf_add_str(out, "; img-src data:; base-uri 'none'; form-action 'none'\">\n"
			 "<meta name=\"viewport\" content=\"width=device-width, "
			 "initial-scale=1\">\n"
			 "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
	add_escaped(out, title);
	buf_add_str(out, "</title>\n<style>");
	buf_add(out, style.data, style.len);
	buf_add_str(out, "</style>\n</head>\n");
	buf_add(out, embedded_report_html,
		(size_t)(embedded_report_html_end - embedded_report_html));
	buf_add_str(out, "<script type=\"text/plain\" id=\"data\">");
	int r = pack_finish(pack, out, &raw, err);
	buf_add_str(out, "</script>\n<script>");
	buf_add(out, script.data, script.len);
	buf_add_str(out, "</script>\n</body>\n</html>\n");
	buf_release(&script);
	buf_release(&style);
	return r;
}
