/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Names of operators as users write them and as frameworks send them, how often each was called,
 * and the names behind the numbers of kernels. Tables of fixed size, open addressing; an entry is
 * claimed by a compare-and-swap of its key and never moves. What finds no room is not counted, or
 * goes without a name.
 *
 * The same operator:	aten.mul_.Scalar	mul_.Scalar	aten::mul_.Scalar
 *			torch._ops.aten.mul_.Scalar
 * and for ATB:		LinearOperation		3_LinearOperation	0_4711/3_LinearOperation
 */
#include "guest/watch/watch.h"

#include <string.h>

#define COUNTERS 4096u
#define KERNELS 1024u
#define KERNEL_BYTES 128
#define PROBES 32u
#define TORCH "torch._ops."

static struct counter {
	_Atomic uint64_t key;
	_Atomic uint32_t calls;
} counters[COUNTERS];

static struct kernel {
	_Atomic uint64_t hash;
	_Atomic uint32_t named;
	char text[KERNEL_BYTES];
} kernels[KERNELS];

static const char *skip_prefix(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(s, prefix, n) ? s : s + n;
}

static size_t count_digits(const char *s)
{
	size_t n = 0;

	while (s[n] >= '0' && s[n] <= '9')
		n++;
	return n;
}

const char *watch_name_plain(const char *name)
{
	size_t a = count_digits(name), b = a && name[a] == '_' ? count_digits(name + a + 1) : 0;

	return b && name[a + 1 + b] == '/' ? name + a + b + 2 : name;
}

/* Equal, with "::" and "." the same. */
static bool same_name(const char *a, const char *b)
{
	while (*a || *b) {
		bool wide = a[0] == ':' && a[1] == ':', other = b[0] == ':' && b[1] == ':';
		if ((wide ? '.' : *a) != (other ? '.' : *b))
			return false;
		a += wide ? 2 : 1;
		b += other ? 2 : 1;
	}
	return true;
}

/* Users copy names from logs, from profilers or from source: module prefixes, "::" for ".", the
 * position in an ATB graph may be there or not. A name without a dot matches nothing but itself. */
bool watch_name_matches(const char *wanted, size_t room, const char *name)
{
	if (!wanted[0] || strnlen(wanted, room) == room)
		return false;
	wanted = skip_prefix(watch_name_plain(wanted), TORCH);
	name = skip_prefix(watch_name_plain(name), TORCH);
	if (same_name(wanted, name))
		return true;
	/* Without the module in front; "default" alone would be too many. */
	const char *dot = strchr(name, '.');
	if (dot && strchr(wanted, '.') && same_name(wanted, dot + 1))
		return true;
	/* An ATB operator by its place in the graph, or by its name alone. */
	const char *slash = strrchr(name, '/');
	const char *last = slash ? slash + 1 : name;
	size_t n = count_digits(last);
	return same_name(wanted, last) || (n && last[n] == '_' && same_name(wanted, last + n + 1));
}

static uint64_t hash_of(const char *s, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325ull ^ seed;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	h ^= h >> 32;
	return h ? h : 1;
}

/* The thread and the device are part of the key, so each thread counts its own calls without a
 * lock that others want. */
uint32_t watch_count(const char *name, uint16_t device, uint32_t tid)
{
	uint64_t key = hash_of(name, ((uint64_t)device << 32 | tid) * 0x9e3779b97f4a7c15ull);

	for (uint32_t i = 0; i < PROBES; i++) {
		struct counter *c = &counters[(key + i) % COUNTERS];
		uint64_t seen = 0;
		if (atomic_compare_exchange_strong(&c->key, &seen, key) || seen == key)
			return atomic_fetch_add(&c->calls, 1) + 1;
	}
	return 0;
}

void watch_count_clear(void)
{
	for (uint32_t i = 0; i < COUNTERS; i++) {
		atomic_store(&counters[i].calls, 0);
		atomic_store(&counters[i].key, 0);
	}
}

static struct kernel *kernel_slot(uint64_t hash, bool make)
{
	for (uint32_t i = 0; hash && i < PROBES; i++) {
		struct kernel *k = &kernels[((hash ^ hash >> 32) + i) % KERNELS];
		uint64_t seen = atomic_load(&k->hash);
		if (!seen && make && !atomic_compare_exchange_strong(&k->hash, &seen, hash) &&
		    seen != hash)
			continue;
		if (!seen || seen == hash)
			return seen || make ? k : NULL;
	}
	return NULL;
}

void watch_name(uint64_t hash, const char *text, size_t len)
{
	struct kernel *k = kernel_slot(hash, true);
	uint32_t none = 0;

	if (!k || !atomic_compare_exchange_strong(&k->named, &none, 1))
		return;
	memcpy(k->text, text, len < KERNEL_BYTES ? len : KERNEL_BYTES - 1);
	atomic_store(&k->named, 2);
}

const char *watch_name_text(uint64_t hash)
{
	struct kernel *k = kernel_slot(hash, false);

	return k && atomic_load(&k->named) == 2 ? k->text : NULL;
}
