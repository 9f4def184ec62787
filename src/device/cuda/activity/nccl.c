/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Kernels of NCCL say by their names what they do:
 *
 *	ncclDevKernel_AllReduce_Sum_f32_RING_LL		2.19 and later
 *	ncclKernel_AllReduce_RING_LL_Sum_float		before
 *
 * mangled (_Z39ncclDevKernel_…P11ncclDevComm…) or with their parameters.
 */
#include "device/cuda/activity/cupti.h"

#include <string.h>

#define NO_TYPE 65535 /* INVALID_TYPE */

static const char *const algorithms[] = {"RING", "TREE", "COLLNET", "NVLS", "PAT"};

static const struct {
	const char *name;
	uint16_t type;
} types[] = {
	{"i8", 0},    {"int8", 0},    {"i32", 2},     {"int32", 2},  {"f16", 3},  {"half", 3},
	{"f32", 4},   {"float", 4},   {"i64", 5},     {"int64", 5},  {"u64", 6},  {"uint64", 6},
	{"u8", 7},    {"uint8", 7},   {"u32", 9},     {"uint32", 9}, {"f64", 10}, {"double", 10},
	{"bf16", 11}, {"f8e4m3", 15}, {"f8e5m2", 16},
};

static bool begins_with(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* Behind "_Z" and the number of characters, if there are such; *len: that number, or SIZE_MAX. */
static const char *identifier(const char *name, size_t *len)
{
	size_t n = 0;

	*len = SIZE_MAX;
	if (!begins_with(name, "_Z"))
		return name;
	for (name += 2; *name >= '0' && *name <= '9' && n < 10000; name++)
		n = n * 10 + (size_t)(*name - '0');
	*len = n;
	return name;
}

static size_t copy_identifier(char *out, const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && n < NCCL_NAME_BYTES - 1 && s[n] && !strchr("(<. ", s[n])) {
		out[n] = s[n];
		n++;
	}
	out[n] = '\0';
	return n;
}

static bool is_word(const char *s, size_t len, const char *word)
{
	return strlen(word) == len && !memcmp(s, word, len);
}

static void read_word(const char *s, size_t len, struct nccl_kernel *out)
{
	for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++)
		if (is_word(s, len, algorithms[i]))
			out->algorithm = algorithms[i];
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (is_word(s, len, types[i].name))
			out->data_type = types[i].type;
}

bool nccl_kernel_read(const char *name, struct nccl_kernel *out)
{
	size_t len;
	const char *s = identifier(name, &len);

	if (!begins_with(s, "ncclDevKernel") && !begins_with(s, "ncclKernel"))
		return false;
	out->algorithm = "";
	out->data_type = NO_TYPE;
	copy_identifier(out->name, s, len);
	for (const char *w = out->name; *w;) {
		size_t n = strcspn(w, "_");
		read_word(w, n, out);
		w += n + (w[n] == '_');
	}
	return true;
}
