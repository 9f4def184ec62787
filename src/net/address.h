/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Addresses of either family, as sockets give them. */
#ifndef SONDE_NET_ADDRESS_H
#define SONDE_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define ADDRESS_TEXT_BYTES 80

/* "10.0.0.7:1778", "[fe80::1%eth0]:1778". False: it is of another family, and out is untouched. */
bool address_text(const struct sockaddr *a, socklen_t len, char out[ADDRESS_TEXT_BYTES]);

/* 0: none, or of another family. */
unsigned address_port(const struct sockaddr *a);

/* Of either family. */
void address_set_port(struct sockaddr *a, unsigned port);

/* Digits to an address; false: they are none. */
bool address_parse(const char *text, unsigned port, struct sockaddr_storage *out,
		   socklen_t *out_len);

/* Whether only this machine reaches it. */
bool address_is_loopback(const struct sockaddr *a);

/* Whether both are the same host; ports do not count. */
bool address_is_same_host(const struct sockaddr *a, const struct sockaddr *b);

#endif
