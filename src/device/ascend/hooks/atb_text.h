/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Text about ATB's tensors, written by hand into the caller's buffer: no heap, no stdio. What does
 * not fit is cut.
 */
#ifndef SONDE_DEVICE_ASCEND_HOOKS_ATB_TEXT_H
#define SONDE_DEVICE_ASCEND_HOOKS_ATB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Always a C string of len bytes; {buf, room, 0} before the first call. */
struct atb_text {
	char *buf;
	size_t room;
	size_t len;
};

void atb_text_add(struct atb_text *t, const char *s);
void atb_text_number(struct atb_text *t, uint64_t n);
void atb_text_hex(struct atb_text *t, uint64_t n); /* 0x… */

struct atb_text_tensor {
	int32_t dtype;
	int32_t format;
	const int64_t *dims;
	uint64_t ndims; /* at most 8 */
};

#define ATB_TEXT_TENSOR 320 /* bytes that are always enough */

/* dtype:…,format:…,shape:[2,64,] with ACL's names or those of the kernel level. */
void atb_text_tensor(char out[ATB_TEXT_TENSOR], const struct atb_text_tensor *tensor, bool kernel);

#endif
