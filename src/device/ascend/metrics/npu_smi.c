/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Two boxed tables. In the first each chip has two lines, whose cells hold several columns:
 *
 *	| 0     910B2    | OK            | 96.4        41                0    / 0             |
 *	| 0              | 0000:C1:00.0  | 63          0    / 0          41277/ 65536         |
 *
 *	  npu   name       health          power W     temperature       huge pages
 *	  chip  [device]   bus             aicore %    memory used/total HBM used/total in MB
 *
 * The second has a line per process: npu and chip, process id, name, MB, and in newer versions the
 * process id inside its container. Widths and headings differ between versions; "NA" and "-" stand
 * for what is not known.
 */
#include "device/ascend/metrics/npu_smi.h"

#include <stdlib.h>
#include <string.h>

#include "base/subprocess.h"

#define MAX_CELLS 8
#define MB 20

struct cell {
	const char *text;
	size_t len;
};

struct parser {
	struct ascend_chip *chips;
	unsigned n, cap;
	struct ascend_chip next; /* from its first line until its second comes */
	bool have_first;
	bool processes; /* in the second table, with these columns; 0: there is none */
	unsigned pid_column, memory_column, inner_column;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct cell trim_cell(const char *text, size_t len)
{
	while (len && is_blank(*text))
		text++, len--;
	while (len && is_blank(text[len - 1]))
		len--;
	return (struct cell){text, len};
}

static unsigned split_cells(const char *line, size_t len, struct cell *out)
{
	struct cell all = trim_cell(line, len);
	unsigned n = 0;

	if (!all.len || *all.text != '|')
		return 0;
	const char *at = all.text + 1, *end = all.text + all.len;
	while (at < end && n < MAX_CELLS) {
		const char *bar = memchr(at, '|', (size_t)(end - at));

		if (!bar)
			bar = end;
		out[n++] = trim_cell(at, (size_t)(bar - at));
		at = bar + 1;
	}
	return n;
}

/* Takes the next word off a cell; empty at the end. */
static struct cell take_word(struct cell *c)
{
	size_t n = 0;

	*c = trim_cell(c->text, c->len);
	while (n < c->len && !is_blank(c->text[n]))
		n++;
	struct cell word = {c->text, n};
	c->text += n;
	c->len -= n;
	return word;
}

/* Digits at the start of text: how many, 0 if there are none or too many. */
static size_t read_digits(const char *text, size_t len, uint64_t *out)
{
	size_t n = 0;

	*out = 0;
	for (; n < len && text[n] >= '0' && text[n] <= '9'; n++)
		*out = *out * 10 + (uint64_t)(text[n] - '0');
	return n <= 12 ? n : 0;
}

static bool cell_number(struct cell word, uint64_t max, uint64_t *out)
{
	return word.len && read_digits(word.text, word.len, out) == word.len && *out <= max;
}

static bool cell_tenths(struct cell word, double *out)
{
	uint64_t whole, part = 0;
	size_t n = read_digits(word.text, word.len, &whole);

	if (!n)
		return false;
	*out = (double)whole;
	if (n == word.len)
		return true;
	if (word.text[n] != '.' || word.len - n - 1 > 6 ||
	    !cell_number((struct cell){word.text + n + 1, word.len - n - 1}, 999999, &part))
		return false;
	double scale = 1;
	for (size_t i = n + 1; i < word.len; i++)
		scale *= 10;
	*out += (double)part / scale;
	return true;
}

/* The words one after the other, whatever their case and however many blanks are between them. */
static bool cell_contains(struct cell c, const char *words)
{
	for (size_t from = 0; from < c.len; from++) {
		size_t at = from;
		const char *w = words;

		for (; *w && at < c.len; w++) {
			if (*w == ' ' && is_blank(c.text[at]))
				while (at < c.len && is_blank(c.text[at]))
					at++;
			else if ((c.text[at] | 0x20) == *w)
				at++;
			else
				break;
		}
		if (!*w)
			return true;
	}
	return false;
}

static bool cell_is(struct cell c, const char *word)
{
	return c.len == strlen(word) && !strncasecmp(c.text, word, c.len);
}

/* dddd:bb:dd.f */
static bool is_bus_id(struct cell c)
{
	size_t n = 0, colons = 0;

	for (; n < c.len; n++) {
		if (c.text[n] == ':')
			colons++;
		else if (!strchr("0123456789abcdefABCDEF.", c.text[n]))
			return false;
	}
	return colons == 2;
}

static enum ascend_health health_of(struct cell c)
{
	static const char *const words[] = {"ok", "warning", "alarm", "critical"};

	for (unsigned i = 0; i < 4; i++)
		if (cell_is(c, words[i]))
			return (enum ascend_health)i;
	return ASCEND_UNKNOWN;
}

static void first_line(struct parser *p, struct cell *cells)
{
	struct ascend_chip *chip = &p->next;
	uint64_t npu, v;

	struct cell name = cells[0];
	if (!cell_number(take_word(&name), UINT16_MAX, &npu))
		return; /* a heading */
	name = trim_cell(name.text, name.len);
	*chip = (struct ascend_chip){.card = (uint32_t)npu};
	if (name.len < sizeof(chip->name))
		memcpy(chip->name, name.text, name.len);
	chip->health = health_of(cells[1]);
	chip->has = ASCEND_HAS_HEALTH;
	if (cell_tenths(take_word(&cells[2]), &chip->power_w))
		chip->has |= ASCEND_HAS_POWER;
	if (cell_number(take_word(&cells[2]), 1000, &v)) {
		chip->temperature_c = (int)v;
		chip->has |= ASCEND_HAS_TEMPERATURE;
	}
	p->have_first = true;
}

/* The largest of the pairs "used / total" is the device's memory: the others are 0 / 0, or small.
 */
static void take_memory(struct cell c, struct ascend_chip *chip)
{
	uint64_t used, total;

	for (size_t i = 0; i < c.len; i++) {
		if (c.text[i] != '/')
			continue;
		size_t from = i;
		while (from && is_blank(c.text[from - 1]))
			from--;
		size_t to = from;
		while (from && c.text[from - 1] >= '0' && c.text[from - 1] <= '9')
			from--;
		struct cell rest = {c.text + i + 1, c.len - i - 1};
		if (!cell_number((struct cell){c.text + from, to - from}, UINT32_MAX, &used) ||
		    !cell_number(take_word(&rest), UINT32_MAX, &total) || used > total)
			continue;
		if (total << MB > chip->memory.total_bytes) {
			chip->memory.used_bytes = used << MB;
			chip->memory.total_bytes = total << MB;
			chip->has |= ASCEND_HAS_MEMORY;
		}
	}
}

static void second_line(struct parser *p, struct cell *cells)
{
	struct ascend_chip *chip = &p->next;
	uint64_t index, device, v;

	if (!p->have_first || !cell_number(take_word(&cells[0]), UINT16_MAX, &index))
		return;
	p->have_first = false;
	if (p->n == p->cap)
		return;
	chip->index = (uint32_t)index;
	chip->device =
		cell_number(take_word(&cells[0]), UINT16_MAX, &device) ? (uint32_t)device : p->n;
	take_memory(cells[2], chip);
	if (cell_number(take_word(&cells[2]), 100, &v)) {
		chip->aicore = (unsigned)v;
		chip->has |= ASCEND_HAS_AICORE;
	}
	chip->memory.has_processes = true;
	p->chips[p->n++] = *chip;
}

/* One that the first table does not show, or shows in a way that is not known, is made up. */
static struct ascend_chip *chip_of(struct parser *p, uint64_t npu, uint64_t index)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->chips[i].card == npu && p->chips[i].index == index)
			return &p->chips[i];
	if (p->n == p->cap)
		return NULL;
	struct ascend_chip *chip = &p->chips[p->n];
	*chip = (struct ascend_chip){
		.device = p->n++, .card = (uint32_t)npu, .index = (uint32_t)index};
	chip->memory.has_processes = true;
	return chip;
}

static void process_line(struct parser *p, struct cell *cells, unsigned n)
{
	uint64_t npu, index, pid, mb, inner;

	if (n <= p->pid_column || !cell_number(take_word(&cells[0]), UINT16_MAX, &npu) ||
	    !cell_number(take_word(&cells[0]), UINT16_MAX, &index) ||
	    !cell_number(cells[p->pid_column], INT32_MAX, &pid) || !pid)
		return;
	if (n <= p->memory_column ||
	    !cell_number(take_word(&cells[p->memory_column]), UINT32_MAX, &mb))
		mb = UINT64_MAX;
	if (!p->inner_column || n <= p->inner_column ||
	    !cell_number(cells[p->inner_column], INT32_MAX, &inner))
		inner = 0;
	struct ascend_chip *chip = chip_of(p, npu, index);
	if (!chip || chip->memory.nprocesses == ASCEND_DCMI_PROCESSES)
		return;
	unsigned at = chip->memory.nprocesses++;
	chip->memory.processes[at].pid = (uint32_t)pid;
	chip->memory.processes[at].inner_pid = (uint32_t)inner;
	chip->memory.processes[at].bytes = mb == UINT64_MAX ? ASCEND_NO_BYTES : mb << MB;
}

/* The heading of the second table says what stands where. */
static bool is_process_heading(struct parser *p, const struct cell *cells, unsigned n)
{
	unsigned pid = 0, memory = 0, inner = 0;
	uint64_t npu;

	if (n < 3)
		return false;
	struct cell first = cells[0];
	if (cell_number(take_word(&first), UINT16_MAX, &npu))
		return false; /* a process that calls itself so */
	for (unsigned i = 1; i < n; i++) {
		if (cell_contains(cells[i], "in container"))
			inner = i;
		else if (cell_contains(cells[i], "process id") || cell_is(cells[i], "pid"))
			pid = pid ? pid : i;
		else if (cell_contains(cells[i], "memory") || cell_contains(cells[i], "usage"))
			memory = i;
	}
	if (!pid)
		return false;
	p->processes = true;
	p->pid_column = pid;
	p->memory_column = memory ? memory : 3;
	p->inner_column = inner;
	return true;
}

unsigned npu_smi_parse(const char *text, size_t len, struct ascend_chip *out, unsigned cap)
{
	struct parser p = {.chips = out, .cap = cap};
	struct cell cells[MAX_CELLS];

	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t line = end ? (size_t)(end - text) : len;
		unsigned n = split_cells(text, line, cells);

		text += line + (end != NULL);
		len -= line + (end != NULL);
		if (is_process_heading(&p, cells, n))
			continue;
		if (p.processes)
			process_line(&p, cells, n);
		else if (n >= 3 && is_bus_id(cells[1]))
			second_line(&p, cells);
		else if (n >= 3)
			first_line(&p, cells);
	}
	return p.n;
}

#define MAX_OUTPUT (1u << 20)

int npu_smi_run(struct npu_smi *s, unsigned timeout_ms, struct buf *out, struct err *err)
{
	static const char *const argv[] = {"npu-smi", "info", NULL};
	const struct run_options o = {.timeout_ms = timeout_ms,
				      .max_bytes = MAX_OUTPUT,
				      .apart = true,
				      .hanging = &s->hanging};

	return run_program(argv, &o, out, err);
}
