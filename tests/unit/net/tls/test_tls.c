/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Handshakes of both sides in memory, with certificates as the certs module makes them and with
 * odd ones. */
#include "net/tls/tls.h"

#include <openssl/err.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "test.h"
#include "tls_sets.h"

struct meeting {
	SSL *server, *client;
	bool ok; /* both are through, and a byte went each way */
	struct err server_err, client_err;
};

static void join(SSL *a, SSL *b)
{
	BIO *one = NULL, *two = NULL;

	CHECK(BIO_new_bio_pair(&one, 65536, &two, 65536) == 1);
	SSL_set_bio(a, one, one);
	SSL_set_bio(b, two, two);
}

static bool greet(SSL *ssl, bool *broken)
{
	ERR_clear_error();
	if (*broken || SSL_is_init_finished(ssl))
		return !*broken;
	int r = SSL_do_handshake(ssl), why = SSL_get_error(ssl, r);
	*broken = r <= 0 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
	ERR_clear_error(); /* as libevent does before anybody can look */
	return r == 1;
}

/* In TLS 1.3 the client is through before the server has looked at its certificate. */
static bool say(SSL *from, SSL *to)
{
	char c = 'x';
	bool sent = SSL_write(from, &c, 1) == 1;
	bool ok = SSL_read(to, &c, 1) == 1 && sent;

	ERR_clear_error();
	return ok;
}

static struct meeting meet(SSL *server, SSL *client)
{
	struct meeting m = {.server = server, .client = client};
	bool server_broken = false, client_broken = false;

	CHECK(server && client);
	SSL_set_accept_state(server);
	SSL_set_connect_state(client);
	join(server, client);
	for (int i = 0; i < 10; i++) {
		bool done = greet(client, &client_broken);

		if (greet(server, &server_broken) && done)
			break;
	}
	m.ok = say(server, client);
	m.ok = say(client, server) && m.ok;
	if (!m.ok) {
		tls_failure(server, &m.server_err);
		tls_failure(client, &m.client_err);
	}
	return m;
}

static void part(struct meeting *m)
{
	SSL_free(m->server);
	SSL_free(m->client);
}

TEST(tls, both_sides_accept_what_certs_makes)
{
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *ctx = sets_client("ca/client");
	static const char *const hosts[] = {"localhost", "A.test.", "127.0.0.1", "::1", "::1%lo"};

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		struct meeting m = meet(tls_server_ssl(t), tls_client_ssl(ctx, hosts[i]));

		if (!m.ok)
			fprintf(stderr, "%s: %s\n", hosts[i], m.client_err.text);
		CHECK(m.ok);
		CHECK(tls_peer_verified(m.server) && tls_peer_verified(m.client));
		CHECK_INT(SSL_version(m.server), TLS1_3_VERSION);
		part(&m);
	}
	json_t *o = tls_server_describe(t);
	CHECK_STR(json_string_value(json_object_get(o, "subject")), "/CN=a.test");
	CHECK(json_integer_value(json_object_get(o, "days_left")) >= 29);
	CHECK(json_is_true(json_object_get(o, "crl")));
	json_decref(o);
	CHECK(tls_client_ssl(ctx, "") == NULL);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

TEST(tls, certificate_of_another_host_is_refused)
{
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *ctx = sets_client("ca/client");

	struct meeting m = meet(tls_server_ssl(t), tls_client_ssl(ctx, "b.test"));
	CHECK(!m.ok);
	CHECK_STR(m.client_err.text, "the certificate of the daemon is not for 'b.test' but for: "
				     "a.test, localhost, 127.0.0.1, ::1");
	part(&m);
	m = meet(tls_server_ssl(t), tls_client_ssl(ctx, "127.0.0.2"));
	CHECK_HAS(m.client_err.text, "is not for '127.0.0.2'");
	part(&m);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

TEST(tls, unknown_ca_is_refused_on_both_sides)
{
	sets_begin();
	certs_free(sets_make("one", &sets_plain));
	certs_free(sets_make("two", &sets_plain));
	struct tls_server *t = sets_server("one/server-a.test");
	SSL_CTX *ctx = sets_client("two/client");

	struct meeting m = meet(tls_server_ssl(t), tls_client_ssl(ctx, "localhost"));
	CHECK(!m.ok);
	CHECK_HAS(m.client_err.text, "the daemon ('a.test') comes from an unknown CA");
	CHECK_HAS(m.server_err.text, "the client refused our certificate: it comes from a CA");
	part(&m);
	SSL_CTX_free(ctx);

	/* A client that trusts the server, but is not trusted. */
	struct buf ca = {0};
	CHECK(fs_read_file(sets_path("one/ca/ca.crt"), 65536, &ca, NULL) == 0);
	CHECK(fs_write_atomic(sets_path("two/client/ca.crt"), &ca, 0600, NULL) == 0);
	buf_release(&ca);
	CHECK(unlink(sets_path("two/client/ca.crl")) == 0);
	ctx = sets_client("two/client");
	m = meet(tls_server_ssl(t), tls_client_ssl(ctx, "localhost"));
	CHECK(!m.ok && !tls_peer_verified(m.server));
	CHECK_HAS(m.server_err.text, "the client ('client') comes from an unknown CA");
	CHECK_HAS(m.client_err.text, "the daemon refused our certificate: it comes from a CA");
	part(&m);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

TEST(tls, revoked_peers_are_refused)
{
	struct err err = {0};

	sets_begin();
	struct certs *c = sets_make("ca", &sets_plain);
	CHECK_INT(certs_add(c, CERTS_CLIENT, "eve", NULL, false, &err), 1);
	struct tls_server *old_server = sets_server("ca/server-a.test");
	SSL_CTX *eve = sets_client("ca/client-eve");
	struct meeting m = meet(tls_server_ssl(old_server), tls_client_ssl(eve, "localhost"));
	CHECK(m.ok);
	part(&m);

	CHECK_INT(certs_revoke(c, "eve", &err), 1);
	CHECK_INT(tls_server_reload(old_server, &err), 0);
	m = meet(tls_server_ssl(old_server), tls_client_ssl(eve, "localhost"));
	CHECK(!m.ok);
	CHECK_STR(m.server_err.text, "the certificate of the client ('eve') is revoked");
	CHECK_STR(m.client_err.text, "the daemon refused our certificate: it is revoked");
	part(&m);
	CHECK_HAS(sets_refusal("ca/client-eve", false), "is revoked by");

	CHECK_INT(certs_revoke(c, "a.test", &err), 1);
	SSL_CTX *ctx = sets_client("ca/client");
	m = meet(tls_server_ssl(old_server), tls_client_ssl(ctx, "localhost"));
	CHECK(!m.ok);
	CHECK_STR(m.client_err.text, "the certificate of the daemon ('a.test') is revoked");
	part(&m);
	CHECK_HAS(sets_refusal("ca/server-a.test", true), "is revoked by");
	CHECK(tls_server_reload(old_server, &err) < 0);

	/* A new certificate for the same name is not. */
	CHECK_INT(certs_add(c, CERTS_SERVER, "a.test", "localhost", true, &err), 1);
	err = (struct err){0};
	CHECK_INT(tls_server_reload(old_server, &err), 0);
	m = meet(tls_server_ssl(old_server), tls_client_ssl(ctx, "localhost"));
	CHECK(m.ok);
	part(&m);
	SSL_CTX_free(ctx);
	SSL_CTX_free(eve);
	tls_server_free(old_server);
	certs_free(c);
}

/* A client of plain OpenSSL that trusts everybody and shows what it is told to. */
static SSL_CTX *loose_client(const char *crt, const char *key)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	SSL_CTX_set_security_level(ctx, 0);
	if (crt) {
		CHECK(SSL_CTX_use_certificate_file(ctx, crt, SSL_FILETYPE_PEM) == 1);
		CHECK(SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) == 1);
	}
	return ctx;
}

TEST(tls, client_without_certificate)
{
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *ctx = loose_client(NULL, NULL);

	struct meeting m = meet(tls_server_ssl(t), SSL_new(ctx));
	CHECK(!m.ok);
	CHECK_STR(m.server_err.text, "the client sent no certificate");
	part(&m);
	m = meet(tls_server_ssl_optional(t), SSL_new(ctx));
	CHECK(m.ok && !tls_peer_verified(m.server));
	part(&m);
	SSL_CTX_free(ctx);

	/* One that shows a certificate must show a good one, even where none is needed. */
	ctx = sets_client("ca/client");
	m = meet(tls_server_ssl_optional(t), tls_client_ssl(ctx, "localhost"));
	CHECK(m.ok && tls_peer_verified(m.server));
	part(&m);
	SSL_CTX_free(ctx);
	certs_free(sets_make("two", &sets_plain));
	ctx = loose_client(sets_path("two/client/client.crt"), sets_path("two/client/client.key"));
	m = meet(tls_server_ssl_optional(t), SSL_new(ctx));
	CHECK(!m.ok && !tls_peer_verified(m.server));
	part(&m);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

TEST(tls, old_protocols_and_weak_suites_are_refused)
{
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *ctx =
		loose_client(sets_path("ca/client/client.crt"), sets_path("ca/client/client.key"));

	SSL_CTX_set_min_proto_version(ctx, TLS1_VERSION);
	SSL_CTX_set_max_proto_version(ctx, TLS1_1_VERSION);
	struct meeting m = meet(tls_server_ssl(t), SSL_new(ctx));
	CHECK(!m.ok);
	CHECK_STR(m.server_err.text, "the client speaks only TLS versions older than 1.2");
	part(&m);

	SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_cipher_list(ctx, "ECDHE-ECDSA-AES128-SHA:AES128-GCM-SHA256");
	m = meet(tls_server_ssl(t), SSL_new(ctx));
	CHECK(!m.ok);
	CHECK_STR(m.server_err.text, "the client offers no cipher suite that we accept");
	part(&m);

	SSL_CTX_set_cipher_list(ctx, "ECDHE-ECDSA-AES128-GCM-SHA256");
	m = meet(tls_server_ssl(t), SSL_new(ctx));
	CHECK(m.ok);
	CHECK_INT(SSL_version(m.server), TLS1_2_VERSION);
	CHECK(SSL_renegotiate(m.client) == 1);
	SSL_do_handshake(m.client);
	CHECK(!say(m.client, m.server) || SSL_is_init_finished(m.server));
	CHECK_INT(SSL_num_renegotiations(m.server), 0);
	part(&m);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

TEST(tls, peer_that_does_not_speak_tls)
{
	static const char *const said[] = {"\x12\0\0\0{\"fn\":\"getStatus\"}",
					   "GET / HTTP/1.1\r\n"};
	struct err err = {0};

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	for (int i = 0; i < 2; i++) {
		SSL *ssl = tls_server_ssl(t);
		BIO *in = BIO_new_mem_buf(said[i], i ? 16 : 22), *out = BIO_new(BIO_s_mem());

		SSL_set_bio(ssl, in, out);
		SSL_set_accept_state(ssl);
		CHECK(SSL_do_handshake(ssl) < 0);
		ERR_clear_error();
		tls_failure(ssl, &err);
		CHECK_STR(err.text, "the client does not speak TLS");
		SSL_free(ssl);
	}
	SSL_CTX *ctx = sets_client("ca/client");
	SSL *ssl = tls_client_ssl(ctx, "localhost");
	SSL_set_bio(ssl, BIO_new_mem_buf("", 0), BIO_new(BIO_s_mem()));
	SSL_set_connect_state(ssl);
	SSL_do_handshake(ssl);
	ERR_clear_error();
	tls_failure(ssl, &err);
	CHECK_HAS(err.text, "perhaps it runs without certificates");
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

/* What a peer shows is held to the same measure. */
TEST(tls, weak_and_expired_peers_are_refused)
{
	static const struct {
		int rsa_bits, to_days;
		const char *words;
	} rows[] = {{2048, 1, "the client ('odd?[31m') has too weak a key or signature"},
		    {0, 0, "the certificate of the client ('odd?[31m') expired at 2"}};

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	struct certs_issuer by = sets_issuer("ca");
	for (int i = 0; i < 2; i++) {
		struct odd o = odd_sound;
		o.rsa_bits = rows[i].rsa_bits;
		o.to_days = rows[i].to_days;
		EVP_PKEY *key = odd_key(o.rsa_bits);
		X509 *x = odd_make(&o, key, &by);
		SSL_CTX *ctx = loose_client(NULL, NULL);

		CHECK(SSL_CTX_use_certificate(ctx, x) == 1 &&
		      SSL_CTX_use_PrivateKey(ctx, key) == 1);
		struct meeting m = meet(tls_server_ssl(t), SSL_new(ctx));
		CHECK(!m.ok);
		CHECK_HAS(m.server_err.text, rows[i].words);
		part(&m);
		SSL_CTX_free(ctx);
		X509_free(x);
		EVP_PKEY_free(key);
	}
	sets_issuer_release(&by);
	tls_server_free(t);
}

/* OpenSSL by itself takes every one of these for a good client; so does a server for the daemon. */
TEST(tls, peers_are_held_to_the_rules_for_our_own_files)
{
	static const struct {
		const char *constraints, *usage, *words;
	} rows[] = {
		{"CA:TRUE", "digitalSignature,keyCertSign,cRLSign", "of a CA (CA:TRUE)"},
		{"CA:TRUE", "digitalSignature", "of a CA (CA:TRUE)"},
		{"CA:TRUE", NULL, "of a CA (CA:TRUE)"},
		{"CA:FALSE", NULL, "has no keyUsage extension"},
		{NULL, NULL, "has no keyUsage extension"},
		{"CA:FALSE", "digitalSignature", NULL},
		{NULL, "digitalSignature", NULL},
	};

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	struct certs_issuer by = sets_issuer("ca");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct odd o = odd_sound;
		o.constraints = rows[i].constraints;
		o.usage = rows[i].usage;
		EVP_PKEY *key = odd_key(0);
		X509 *x = odd_make(&o, key, &by);
		SSL_CTX *ctx = loose_client(NULL, NULL);

		CHECK(SSL_CTX_use_certificate(ctx, x) == 1 &&
		      SSL_CTX_use_PrivateKey(ctx, key) == 1);
		for (int optional = 0; optional < 2; optional++) {
			struct meeting m =
				meet(optional ? tls_server_ssl_optional(t) : tls_server_ssl(t),
				     SSL_new(ctx));

			CHECK(m.ok == !rows[i].words && tls_server_trusts(t, m.server) == m.ok);
			if (!m.ok) {
				CHECK_HAS(m.server_err.text,
					  "the client ('odd?[31m') is refused: ");
				CHECK_HAS(m.server_err.text, rows[i].words);
			}
			part(&m);
		}
		SSL_CTX_free(ctx);
		X509_free(x);
		EVP_PKEY_free(key);
	}
	sets_issuer_release(&by);
	tls_server_free(t);
}

/* The key of the CA itself signs what it likes, but calls nobody. */
TEST(tls, the_ca_is_no_peer)
{
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *ctx = loose_client(sets_path("ca/ca/ca.crt"), sets_path("ca/ca/ca.key"));

	struct meeting m = meet(tls_server_ssl(t), SSL_new(ctx));
	CHECK(!m.ok && !tls_server_trusts(t, m.server));
	part(&m);
	SSL_CTX_free(ctx);
	tls_server_free(t);
}

/* A server that the client would believe by its name. */
TEST(tls, clients_hold_the_daemon_to_the_same_rules)
{
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct certs_issuer by = sets_issuer("ca");
	struct odd o = odd_sound;
	o.usage = NULL;
	EVP_PKEY *key = odd_key(0);
	X509 *x = odd_make(&o, key, &by);
	SSL_CTX *server = SSL_CTX_new(TLS_server_method()), *ctx = sets_client("ca/client");

	CHECK(SSL_CTX_use_certificate(server, x) == 1 && SSL_CTX_use_PrivateKey(server, key) == 1);
	SSL *client = tls_client_ssl(ctx, "localhost");
	SSL_set1_host(client, NULL); /* of the rules, not of the name */
	struct meeting m = {.server = SSL_new(server), .client = client};
	m = meet(m.server, m.client);
	CHECK(!m.ok);
	CHECK_HAS(m.client_err.text, "the daemon ('odd?[31m') is refused: the certificate has no "
				     "keyUsage extension");
	part(&m);
	SSL_CTX_free(ctx);
	SSL_CTX_free(server);
	X509_free(x);
	EVP_PKEY_free(key);
	sets_issuer_release(&by);
}

/* --- passphrases and reload --- */

TEST(tls, encrypted_key)
{
	struct tls_passphrase *p = tls_passphrase_new();
	struct certs_options o = {.days = 30, .key = CERTS_EC, .encrypt = true, .passphrase = p};
	struct err err = {0};

	sets_begin();
	strcpy(p->text, "open sesame");
	p->len = 11;
	struct certs *c = sets_make("ca", &o);
	/* Nobody to ask: no controlling terminal, and stdin is none. */
	setsid();
	CHECK(freopen("/dev/null", "r", stdin) != NULL);
	CHECK_HAS(sets_refusal("ca/server-a.test", true), "there is no terminal to ask");
	sets_write(sets_path("ca/server-a.test/key.pass"), "wrong\n", 0600);
	CHECK_HAS(sets_refusal("ca/server-a.test", true), "wrong password");
	sets_write(sets_path("ca/server-a.test/key.pass"), "open sesame\n", 0644);
	CHECK_HAS(sets_refusal("ca/server-a.test", true),
		  "key.pass' can be read or written by others");
	sets_write(sets_path("ca/server-a.test/key.pass"), "open sesame\n", 0600);
	struct tls_server *t = sets_server("ca/server-a.test");

	/* The one that is known is enough for another load, and for a renewed key. */
	CHECK_INT(unlink(sets_path("ca/server-a.test/key.pass")), 0);
	CHECK_INT(tls_server_reload(t, &err), 0);
	CHECK_INT(certs_add(c, CERTS_SERVER, "a.test", "localhost", true, &err), 1);
	CHECK_INT(tls_server_reload(t, &err), 0);
	strcpy(p->text, "another one");
	CHECK_INT(certs_add(c, CERTS_SERVER, "a.test", "localhost", true, &err), 1);
	CHECK(tls_server_reload(t, &err) < 0);
	CHECK_HAS(err.text, "the password given at the start does not open");
	sets_write(sets_path("ca/server-a.test/key.pass"), "another one", 0600);
	CHECK_INT(tls_server_reload(t, &err), 0);
	tls_server_free(t);
	certs_free(c);
	tls_passphrase_free(p);
}

static long long serial_seen(struct tls_server *t, SSL_CTX *ctx)
{
	struct meeting m = meet(tls_server_ssl(t), tls_client_ssl(ctx, "localhost"));
	unsigned char id[8] = "";

	CHECK(m.ok);
	X509 *x = SSL_get_peer_certificate(m.client);
	const ASN1_INTEGER *n = X509_get0_serialNumber(x);
	memcpy(id, ASN1_STRING_get0_data(n), sizeof(id));
	X509_free(x);
	part(&m);
	long long v = 0;
	memcpy(&v, id, sizeof(v));
	return v;
}

TEST(tls, reload_is_for_new_connections)
{
	struct buf name = {0};
	struct err err = {0};

	sets_begin();
	struct certs *c = sets_make("ca", &sets_plain);
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *ctx = sets_client("ca/client");
	struct meeting m = meet(tls_server_ssl(t), tls_client_ssl(ctx, "localhost"));
	long long first = serial_seen(t, ctx);

	CHECK_INT(certs_renew(c, "server-a.test", &name, &err), 0);
	CHECK_STR(buf_str(&name), "a.test");
	CHECK(serial_seen(t, ctx) == first);
	CHECK_INT(tls_server_reload(t, &err), 0);
	long long second = serial_seen(t, ctx);
	CHECK(second != first);
	sets_write(sets_path("ca/server-a.test/server.crt"), "damaged", 0600);
	CHECK(tls_server_reload(t, &err) < 0);
	CHECK(serial_seen(t, ctx) == second);
	CHECK(m.ok && say(m.server, m.client) && say(m.client, m.server));
	part(&m);
	SSL_CTX_free(ctx);
	tls_server_free(t);
	certs_free(c);
	buf_release(&name);
}

TEST(tls, a_connection_that_lasts_is_judged_as_of_now)
{
	struct err err = {0};

	sets_begin();
	struct certs *c = sets_make("ca", &sets_plain);
	CHECK_INT(certs_add(c, CERTS_CLIENT, "eve", NULL, false, &err), 1);
	struct tls_server *t = sets_server("ca/server-a.test");
	SSL_CTX *good = sets_client("ca/client"), *eve = sets_client("ca/client-eve");
	struct meeting a = meet(tls_server_ssl_optional(t), tls_client_ssl(good, "localhost"));
	struct meeting b = meet(tls_server_ssl_optional(t), tls_client_ssl(eve, "localhost"));

	CHECK(tls_server_trusts(t, a.server) && tls_server_trusts(t, b.server));
	CHECK_INT(certs_revoke(c, "eve", &err), 1);
	CHECK_INT(tls_server_reload(t, &err), 0);
	CHECK(tls_server_trusts(t, a.server));
	CHECK(tls_peer_verified(b.server) && !tls_server_trusts(t, b.server));
	part(&a);
	part(&b);

	SSL_CTX *nobody = loose_client(NULL, NULL);
	a = meet(tls_server_ssl_optional(t), SSL_new(nobody));
	CHECK(a.ok && !tls_server_trusts(t, a.server));
	part(&a);
	SSL_CTX_free(nobody);
	SSL_CTX_free(good);
	SSL_CTX_free(eve);
	tls_server_free(t);
	certs_free(c);
}
