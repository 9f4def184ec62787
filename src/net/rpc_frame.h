/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Frames of the control RPC (wire/rpc.h) in a run of bytes. */
#ifndef SONDE_NET_RPC_FRAME_H
#define SONDE_NET_RPC_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

#define RPC_LENGTH_BYTES sizeof(int32_t)

/*
 * Looks at the front of the bytes. 1: a whole frame, its JSON is *out_body of *out_bytes, and the
 * next frame begins behind that. 0: more bytes are needed. -EBADMSG: no frame of at most max bytes.
 */
int rpc_frame_find(const char *data, size_t len, size_t max, const char **out_body,
		   size_t *out_bytes);

/* What a peer seems to speak that sent no frame, for messages: "TLS", "HTTP", or NULL. */
const char *rpc_frame_foreign(const char *data, size_t len);

/* Room for the length of a frame whose body is added next; then its length is filled in. */
size_t rpc_frame_begin(struct buf *out);
void rpc_frame_end(struct buf *out, size_t begin);

#endif
