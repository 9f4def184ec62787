/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control RPC: both directions send a signed 32-bit length in host byte order and that many
 * bytes of JSON. Requests of one connection are answered in order.
 */
#ifndef SONDE_WIRE_RPC_H
#define SONDE_WIRE_RPC_H

#define RPC_PORT 1778
#define RPC_HTTP_PORT 1779
#define RPC_REQUEST_MAX 8191 /* longest request, in bytes of JSON */
#define RPC_REPLY_MAX (2 << 20) /* longest reply a client takes: many ask a thousand at once */
#define RPC_DEPTH_MAX 10 /* nested objects and arrays of a request */
#define RPC_REFUSED "refused: " /* begins the "status" of a reply to who may not ask */
#define RPC_TIMEOUT_S 3 /* for a TLS handshake, an idle connection, a whole request */

#endif
