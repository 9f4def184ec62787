/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The other end of a TCP connection within this machine is a socket like ours, with the addresses
 * exchanged; inet_diag finds it by them. Three things could make the answer a lie:
 *
 *  - A socket that its program has closed has no owner any more, and kernels say 0 then, which is
 *    root. Such a one has no inode either: without an inode the owner counts as unknown.
 *  - Where no connection has these addresses, the kernel answers with a socket that listens on the
 *    port. So the state counts: ours and the other must be two ends of one connection.
 *  - The peer may have left, and another program may have got its addresses. While our end lives
 *    nobody else can be connected by them; so our state is read after the answer.
 */
#include "net/socket_owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LATE_ANSWERS 8 /* of earlier questions, which are passed over */
#define GROUPS 256 /* of a process, that are looked at */

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

int socket_owner_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	return fd < 0 ? -errno : fd;
}

/* An address as the question wants it; one of IPv4 inside IPv6 becomes IPv4. False: neither. */
static bool read_address(const struct sockaddr_storage *a, int *family, __be32 out[4], __be16 *port,
			 uint32_t *device)
{
	memset(out, 0, 4 * sizeof(*out));
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)a;

		*family = AF_INET;
		memcpy(out, &in->sin_addr, 4);
		*port = in->sin_port;
		return true;
	}
	if (a->ss_family != AF_INET6)
		return false;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
	*family = mapped ? AF_INET : AF_INET6;
	memcpy(out, mapped ? &in6->sin6_addr.s6_addr[12] : in6->sin6_addr.s6_addr, mapped ? 4 : 16);
	*port = in6->sin6_port;
	if (!mapped && in6->sin6_scope_id)
		*device = in6->sin6_scope_id;
	return true;
}

/* What is local to the other end is remote to ours. */
static int make_question(int fd, struct question *out)
{
	static uint32_t sequence;
	struct sockaddr_storage own = {0}, peer = {0};
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
	int family, peer_family;

	if (getsockname(fd, (struct sockaddr *)&own, &own_len) < 0 ||
	    getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0)
		return errno == ENOTCONN ? -ENOENT : -errno;
	*out = (struct question){
		.head = {.nlmsg_len = sizeof(*out),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST,
			 .nlmsg_seq = ++sequence},
		.body = {.sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = UINT32_MAX,
			 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
	struct inet_diag_sockid *id = &out->body.id;
	if (!read_address(&peer, &peer_family, id->idiag_src, &id->idiag_sport, &id->idiag_if) ||
	    !read_address(&own, &family, id->idiag_dst, &id->idiag_dport, &id->idiag_if) ||
	    family != peer_family)
		return -EAFNOSUPPORT;
	out->body.sdiag_family = (uint8_t)family;
	return 0;
}

/* The kernel has answered before send() returns. */
static int read_answer(int questions, uint32_t sequence, struct inet_diag_msg *out)
{
	union {
		struct nlmsghdr head;
		char bytes[2048];
	} answer;

	for (int i = 0; i < LATE_ANSWERS; i++) {
		struct sockaddr_nl from = {0};
		socklen_t from_len = sizeof(from);
		ssize_t n = recvfrom(questions, &answer, sizeof(answer), MSG_DONTWAIT,
				     (struct sockaddr *)&from, &from_len);

		if (n < 0)
			return -errno;
		if ((size_t)n < sizeof(answer.head) || from.nl_pid ||
		    answer.head.nlmsg_seq != sequence)
			continue;
		if (answer.head.nlmsg_type == NLMSG_ERROR) {
			const struct nlmsgerr *e = NLMSG_DATA(&answer.head);

			if ((size_t)n < NLMSG_LENGTH(sizeof(*e)) || e->error >= 0)
				return -EPROTO;
			return e->error;
		}
		if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		    (size_t)n < NLMSG_LENGTH(sizeof(*out)))
			return -EPROTO;
		memcpy(out, NLMSG_DATA(&answer.head), sizeof(*out));
		return 0;
	}
	return -EPROTO;
}

/* TCP_ESTABLISHED and so on; 0: it is no TCP. */
static uint8_t tcp_state(int fd)
{
	uint8_t state = 0; /* the first byte of struct tcp_info */
	socklen_t len = sizeof(state);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &len) < 0 ? 0 : state;
}

/* Whether two sockets in these states can be the ends of one connection: the peer may have ended
 * its side. A handshake by the same addresses never gets so far while our end is there. */
static bool are_connected(uint8_t own, uint8_t peer)
{
	return (own == TCP_ESTABLISHED || own == TCP_CLOSE_WAIT) &&
	       (peer == TCP_ESTABLISHED || peer == TCP_FIN_WAIT1 || peer == TCP_FIN_WAIT2);
}

int socket_owner_tcp(int questions, int fd, uid_t *out)
{
	struct inet_diag_msg found;
	struct question q;
	int r = make_question(fd, &q);

	if (r < 0)
		return r;
	if (send(questions, &q, sizeof(q), MSG_DONTWAIT) != (ssize_t)sizeof(q))
		return errno ? -errno : -EIO;
	r = read_answer(questions, q.head.nlmsg_seq, &found);
	if (r < 0)
		return r;
	if (!found.idiag_inode || found.id.idiag_sport != q.body.id.idiag_sport ||
	    found.id.idiag_dport != q.body.id.idiag_dport ||
	    !are_connected(tcp_state(fd), found.idiag_state))
		return -ENOENT;
	*out = found.idiag_uid;
	return 0;
}

int socket_owner_unix(int fd, gid_t group, uid_t *out, int *out_in_group)
{
	gid_t groups[GROUPS];
	struct ucred peer;
	socklen_t len = sizeof(peer), groups_len = sizeof(groups);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -errno;
	*out = peer.uid;
	*out_in_group = group != (gid_t)-1 && peer.gid == group;
	if (group == (gid_t)-1 || *out_in_group ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &groups_len) < 0)
		return 0;
	for (size_t i = 0; i < groups_len / sizeof(*groups); i++)
		*out_in_group |= groups[i] == group;
	return 0;
}
