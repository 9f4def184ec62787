/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/processes/loss.h"

#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/memory_words.h"

bool loss_any(const struct loss *l)
{
	return l && (l->cut_off || l->more || l->events || l->unread_bytes || l->bad_rows ||
		     l->damaged_bytes);
}

/* Between two of the reasons. */
static void begin_reason(struct buf *out)
{
	add_text(out, out->len ? "; " : "");
}

static void describe_events(const struct loss *l, struct buf *out)
{
	if (l->events) {
		begin_reason(out);
		add_text(out, "{}{} {} lost", TEXT(l->more ? "at least " : ""),
			 COUNT_OF(l->events, "event"), TEXT(words_was(l->events)));
	} else if (l->more && !l->cut_off) {
		begin_reason(out);
		add_text(out, "events may be missing, how many is unknown");
	}
}

void loss_describe(const struct loss *l, const char *of, struct buf *out)
{
	struct buf text = {0};

	if (l->cut_off) {
		begin_reason(&text);
		add_text(&text, "the file is cut off at its end");
		add_text(&text, l->events ? "" : ", how much is missing is unknown");
	}
	if (l->unread_bytes) {
		begin_reason(&text);
		add_text(&text, "{} of the file are damaged", BYTES(l->unread_bytes));
	}
	if (l->bad_rows) {
		begin_reason(&text);
		add_text(&text, "{} {} malformed", COUNT_OF(l->bad_rows, "row"),
			 TEXT(l->bad_rows == 1 ? "is" : "are"));
	}
	describe_events(l, &text);
	if (l->damaged_bytes) {
		begin_reason(&text);
		add_text(&text, "{} of buffers were damaged", BYTES(l->damaged_bytes));
	}
	if (text.len)
		add_text(out, "Incomplete{}{}: {}. What follows is from the rest.",
			 TEXT(of ? " " : ""), TEXT(of ? of : ""), TEXT(buf_str(&text)));
	buf_release(&text);
}

json_t *loss_value(const struct loss *l)
{
	static const struct field fields[] = {
		FIELDS(struct loss, events, stacks, damaged_bytes),
		{0},
	};
	json_t *lost = fields_object(fields, l, NULL);

	put_bool(lost, "exact", !l->more && !l->cut_off && !l->damaged_bytes);
	return lost;
}

void loss_json(const struct loss *l, json_t *o)
{
	struct buf text = {0};

	loss_describe(l, NULL, &text);
	put_text(o, "incomplete", text.len ? buf_str(&text) : NULL);
	json_object_set_new(o, "lost", loss_value(l));
	buf_release(&text);
}
