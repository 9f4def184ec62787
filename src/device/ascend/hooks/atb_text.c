/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/ascend/hooks/atb_text.h"

void atb_text_add(struct atb_text *t, const char *s)
{
	while (*s && t->len + 1 < t->room)
		t->buf[t->len++] = *s++;
	t->buf[t->len] = '\0';
}

static void add_digits(struct atb_text *t, uint64_t n, unsigned base)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = '\0';
	do {
		*--at = "0123456789abcdef"[n % base];
		n /= base;
	} while (n);
	atb_text_add(t, at);
}

void atb_text_number(struct atb_text *t, uint64_t n)
{
	add_digits(t, n, 10);
}

void atb_text_hex(struct atb_text *t, uint64_t n)
{
	atb_text_add(t, "0x");
	add_digits(t, n, 16);
}

#define LAST_KERNEL_DTYPE 27
#define LAST_KERNEL_FORMAT 33

static const char *const dtypes[] = {
	[0] = "FLOAT",	 [1] = "FLOAT16", [2] = "INT8",	   [3] = "INT32",      [4] = "UINT8",
	[6] = "INT16",	 [7] = "UINT16",  [8] = "UINT32",  [9] = "INT64",      [10] = "UINT64",
	[11] = "DOUBLE", [12] = "BOOL",	  [13] = "STRING", [16] = "COMPLEX64", [17] = "COMPLEX128",
	[27] = "BF16",	 [29] = "INT4",	  [30] = "UINT1",  [33] = "COMPLEX32",
};

static const char *const formats[] = {
	[0] = "NCHW",	     [1] = "NHWC",	   [2] = "ND",	      [3] = "NC1HWC0",
	[4] = "FRACTAL_Z",   [12] = "NC1HWC0_C04", [16] = "HWCN",     [27] = "NDHWC",
	[29] = "FRACTAL_NZ", [30] = "NCDHW",	   [32] = "NDC1HWC0", [33] = "FRACTAL_Z_3D",
	[35] = "NC",	     [47] = "NCL",
};

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof((a)[0])))

static void add_dtype(struct atb_text *t, int32_t value, bool kernel)
{
	const char *name = value >= 0 && value < COUNT(dtypes) ? dtypes[value] : NULL;

	if (kernel && value > LAST_KERNEL_DTYPE)
		name = NULL;
	if (kernel)
		atb_text_add(t, "TENSOR_DTYPE_");
	else
		atb_text_add(t, name ? "ACL_" : "ACL_DT_");
	atb_text_add(t, name ? name : "UNDEFINED");
}

static void add_format(struct atb_text *t, int32_t value, bool kernel)
{
	const char *name = value >= 0 && value < COUNT(formats) ? formats[value] : NULL;

	if (kernel && value > LAST_KERNEL_FORMAT)
		name = NULL;
	if (kernel)
		atb_text_add(t, "TENSOR_FORMAT_");
	else
		atb_text_add(t, value == 33 ? "ACL_" : "ACL_FORMAT_"); /* the one exception */
	atb_text_add(t, name ? name : "UNDEFINED");
}

void atb_text_tensor(char out[ATB_TEXT_TENSOR], const struct atb_text_tensor *tensor, bool kernel)
{
	struct atb_text t = {out, ATB_TEXT_TENSOR, 0};

	atb_text_add(&t, "dtype:");
	add_dtype(&t, tensor->dtype, kernel);
	atb_text_add(&t, ",format:");
	add_format(&t, tensor->format, kernel);
	atb_text_add(&t, ",shape:[");
	for (uint64_t i = 0; i < tensor->ndims && i < 8; i++) {
		int64_t d = tensor->dims[i];
		if (d < 0)
			atb_text_add(&t, "-");
		atb_text_number(&t, d < 0 ? 0 - (uint64_t)d : (uint64_t)d);
		atb_text_add(&t, ",");
	}
	atb_text_add(&t, "]");
}
