/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/rpc_frame.h"

#include <errno.h>
#include <string.h>

int rpc_frame_find(const char *data, size_t len, size_t max, const char **out_body,
		   size_t *out_bytes)
{
	int32_t bytes;

	if (len < sizeof(bytes))
		return 0;
	memcpy(&bytes, data, sizeof(bytes));
	if (bytes <= 0 || (size_t)bytes > max)
		return -EBADMSG;
	if (len - sizeof(bytes) < (size_t)bytes)
		return 0;
	*out_body = data + sizeof(bytes);
	*out_bytes = (size_t)bytes;
	return 1;
}

const char *rpc_frame_foreign(const char *data, size_t len)
{
	static const char *const methods[] = {"GET ", "POST", "HEAD", "PUT ",
					      "OPTI", "PRI ", "DELE"};

	if (len < RPC_LENGTH_BYTES)
		return NULL;
	if (data[0] == 0x16 && data[1] == 0x03) /* a handshake record of any version */
		return "TLS";
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (!memcmp(data, methods[i], RPC_LENGTH_BYTES))
			return "HTTP";
	return NULL;
}

size_t rpc_frame_begin(struct buf *out)
{
	static const int32_t none;

	buf_add(out, &none, sizeof(none));
	return out->len;
}

void rpc_frame_end(struct buf *out, size_t begin)
{
	int32_t bytes = (int32_t)(out->len - begin);

	memcpy(out->data + begin - sizeof(bytes), &bytes, sizeof(bytes));
}
