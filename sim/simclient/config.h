/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The text of a config, read as strictly or as carelessly as each consumer reads it.
 */
#ifndef SIM_CLIENT_CONFIG_H
#define SIM_CLIENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_TEXT_MAX 65536
#define CONFIG_PAIRS 64

struct config {
	char text[CONFIG_TEXT_MAX];
	struct {
		const char *key, *value;
	} pairs[CONFIG_PAIRS];
	int n;
};

/* torch_npu: a line counts only if it has exactly two parts around "="; others are passed over. */
void config_read_npu(struct config *c, const char *text, size_t len);
/* libkineto: "#" begins a comment; one line without exactly one "=" spoils the whole. NULL: it is
 * good; else the line that is not. */
const char *config_read_kineto(struct config *c, const char *text, size_t len);

/* NULL: not there. */
const char *config_get(const struct config *c, const char *key);
/* The number; `missing` if the key is not there; -EINVAL if it is no number from min to max. */
int config_number(const struct config *c, const char *key, int64_t min, int64_t max,
		  int64_t missing, int64_t *out);
/* -EINVAL: neither true nor false, in any case. */
int config_bool(const struct config *c, const char *key, bool *out);
/* Whether a list with commas has this item. */
bool config_list_has(const char *list, const char *item);

#endif
