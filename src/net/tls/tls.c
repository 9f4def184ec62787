/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/tls/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/tls/certificate.h"
#include "net/tls/errors.h"
#include "net/tls/files.h"

/* Forward secrecy and authenticated encryption. TLS 1.3 has nothing else. */
#define TLS12_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"
/* 128 bits: RSA from 3072, EC from 256, digests from sha256, of every certificate of a peer. */
#define SECURITY_LEVEL 3

struct tls_server {
	char *dir;
	struct tls_passphrase *passphrase;
	SSL_CTX *ctx;
	X509 *own;
	X509_CRL *crl; /* NULL: none */
};

static int use_files(SSL_CTX *ctx, const struct tls_files *f)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	bool ok = SSL_CTX_use_certificate(ctx, sk_X509_value(f->chain, 0)) == 1 &&
		  SSL_CTX_use_PrivateKey(ctx, f->key) == 1;

	for (int i = 1; ok && i < sk_X509_num(f->chain); i++)
		ok = SSL_CTX_add1_chain_cert(ctx, sk_X509_value(f->chain, i)) == 1;
	for (int i = 0; ok && i < sk_X509_num(f->ca); i++)
		ok = X509_STORE_add_cert(store, sk_X509_value(f->ca, i)) == 1 &&
		     SSL_CTX_add_client_CA(ctx, sk_X509_value(f->ca, i)) == 1;
	for (int i = 0; ok && i < sk_X509_CRL_num(f->crls); i++)
		ok = X509_STORE_add_crl(store, sk_X509_CRL_value(f->crls, i)) == 1;
	/* Every certificate of ca.crt is trusted by itself, no matter who issued it. */
	unsigned long flags = X509_V_FLAG_PARTIAL_CHAIN;
	if (sk_X509_CRL_num(f->crls) > 0)
		flags |= X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL;
	return ok && X509_STORE_set_flags(store, flags) == 1;
}

static void set_protocol(SSL_CTX *ctx)
{
	SSL_CTX_set_security_level(ctx, SECURITY_LEVEL);
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_max_proto_version(ctx, 0);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					 SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
	/* Today's clients just close. Frames have lengths, so a cut one is noticed anyway. */
	SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
	/* A resumed session would not look at the revocation list again. */
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
}

static int make_context(const struct tls_source *src, const struct tls_files *f, SSL_CTX **out,
			struct err *err)
{
	bool server = src->role == TLS_ROLE_SERVER;
	SSL_CTX *ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

	if (!ctx)
		return err_set(err, -ENOMEM, "cannot set up TLS");
	set_protocol(ctx);
	tls_errors_watch(ctx);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
			   tls_errors_verify);
	if (SSL_CTX_set_cipher_list(ctx, TLS12_CIPHERS) == 1 && use_files(ctx, f)) {
		ERR_clear_error();
		*out = ctx;
		return 0;
	}
	const char *why = ERR_reason_error_string(ERR_peek_error());
	err_set(err, -EINVAL, "cannot use the certificates in '%s': %s", src->dir,
		why ? why : "unknown error");
	ERR_clear_error();
	SSL_CTX_free(ctx);
	return -EINVAL;
}

/* --- daemon --- */

static int server_load(struct tls_server *t, bool may_ask, struct err *err)
{
	struct tls_source src = {.dir = t->dir,
				 .role = TLS_ROLE_SERVER,
				 .passphrase = t->passphrase,
				 .may_ask = may_ask};
	struct tls_files f = {0};
	SSL_CTX *ctx = NULL;

	int r = tls_files_load(&src, &f, err);
	r = r ?: make_context(&src, &f, &ctx, err);
	if (r == 0) {
		/* Connections hold a reference to the context they were made from. */
		SSL_CTX_free(t->ctx);
		X509_free(t->own);
		X509_CRL_free(t->crl);
		t->ctx = ctx;
		t->own = sk_X509_shift(f.chain);
		t->crl = sk_X509_CRL_shift(f.crls);
	}
	tls_files_release(&f);
	return r;
}

int tls_server_new(const char *certs_dir, struct tls_server **out, struct err *err)
{
	struct tls_server *t = xcalloc(1, sizeof(*t));

	t->dir = xstrdup(certs_dir);
	t->passphrase = tls_passphrase_new();
	int r = t->passphrase ? server_load(t, true, err)
			      : err_sys(err, -ENOMEM, "cannot set up TLS");
	if (r < 0)
		tls_server_free(t);
	else
		*out = t;
	return r;
}

void tls_server_free(struct tls_server *t)
{
	if (!t)
		return;
	SSL_CTX_free(t->ctx);
	X509_free(t->own);
	X509_CRL_free(t->crl);
	tls_passphrase_free(t->passphrase);
	free(t->dir);
	free(t);
}

int tls_server_reload(struct tls_server *t, struct err *err)
{
	return server_load(t, false, err);
}

SSL *tls_server_ssl(struct tls_server *t)
{
	return SSL_new(t->ctx);
}

SSL *tls_server_ssl_optional(struct tls_server *t)
{
	SSL *ssl = SSL_new(t->ctx);

	if (ssl)
		SSL_set_verify(ssl, SSL_VERIFY_PEER, tls_errors_verify);
	return ssl;
}

bool tls_peer_verified(const SSL *ssl)
{
	X509 *peer = SSL_get_peer_certificate(ssl);

	X509_free(peer);
	return peer && SSL_get_verify_result(ssl) == X509_V_OK;
}

/* The peer's certificate against the files that are in force now. */
static bool verify_again(const struct tls_server *t, const SSL *ssl, X509 *peer)
{
	X509_STORE_CTX *c = X509_STORE_CTX_new();
	bool ok = c && X509_STORE_CTX_init(c, SSL_CTX_get_cert_store(t->ctx), peer,
					   SSL_get_peer_cert_chain(ssl)) == 1;

	if (ok) {
		X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(c), SECURITY_LEVEL);
		X509_STORE_CTX_set_verify_cb(c, tls_errors_verify);
		ok = X509_STORE_CTX_set_default(c, "ssl_client") == 1 && X509_verify_cert(c) == 1;
	}
	X509_STORE_CTX_free(c);
	ERR_clear_error();
	return ok;
}

bool tls_server_trusts(const struct tls_server *t, const SSL *ssl)
{
	if (!tls_peer_verified(ssl))
		return false;
	X509 *peer = SSL_get_peer_certificate(ssl);
	bool ok = SSL_get_SSL_CTX(ssl) == t->ctx ? X509_cmp_time(X509_get0_notAfter(peer), NULL) > 0
						 : verify_again(t, ssl, peer);
	X509_free(peer);
	return ok;
}

/* What decides about rights is compared byte by byte: a name with a NUL, or beside a second one, is
 * none. */
bool tls_peer_name(const SSL *ssl, struct buf *out)
{
	X509 *peer = SSL_get_peer_certificate(ssl);
	X509_NAME *subject = peer ? X509_get_subject_name(peer) : NULL;
	int at = subject ? X509_NAME_get_index_by_NID(subject, NID_commonName, -1) : -1;
	unsigned char *text = NULL;
	bool good = at >= 0 && X509_NAME_get_index_by_NID(subject, NID_commonName, at) < 0;
	int len = good ? ASN1_STRING_to_UTF8(
				 &text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)))
		       : -1;

	for (int i = 0; i < len; i++)
		good = good && text[i] >= ' ' && text[i] != 0x7f;
	good = good && len > 0;
	if (good)
		buf_add(out, text, (size_t)len);
	OPENSSL_free(text);
	X509_free(peer);
	ERR_clear_error();
	return good;
}

json_t *tls_server_describe(const struct tls_server *t)
{
	char until[TLS_TIME_BYTES], subject[256] = "";
	int days = 0, seconds = 0;

	X509_NAME_oneline(X509_get_subject_name(t->own), subject, sizeof(subject));
	tls_time_text(X509_get0_notAfter(t->own), until);
	ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(t->own));
	json_t *o = json_pack("{s:s, s:s, s:i, s:b}", "subject", subject, "not_after", until,
			      "days_left", days, "crl", t->crl != NULL);
	if (t->crl && X509_CRL_get0_nextUpdate(t->crl)) {
		tls_time_text(X509_CRL_get0_nextUpdate(t->crl), until);
		json_object_set_new(o, "crl_not_after", json_string(until));
	}
	return o;
}

/* --- client --- */

int tls_client_new(const char *certs_dir, tls_notice_fn notice, void *arg, SSL_CTX **out,
		   struct err *err)
{
	struct tls_source src = {.dir = certs_dir,
				 .role = TLS_ROLE_CLIENT,
				 .passphrase = tls_passphrase_new(),
				 .may_ask = true,
				 .notice = notice,
				 .arg = arg};
	struct tls_files f = {0};

	int r = src.passphrase ? tls_files_load(&src, &f, err)
			       : err_sys(err, -ENOMEM, "cannot set up TLS");
	r = r ?: make_context(&src, &f, out, err);
	tls_files_release(&f);
	tls_passphrase_free(src.passphrase);
	return r;
}

/* The certificate is checked for the host that was asked for, whatever address it led to. */
static bool expect_host(SSL *ssl, const char *host)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
	char name[256]; /* no host name is longer */
	unsigned char address[16];

	size_t len = strlen(host);
	if (len >= sizeof(name) || !len)
		return false;
	memcpy(name, host, len + 1);
	/* Not part of a name in a certificate: the interface of an address, the dot of the root. */
	if (strchr(name, ':'))
		name[strcspn(name, "%")] = '\0';
	else if (len > 1 && name[len - 1] == '.')
		name[len - 1] = '\0';
	if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
						       X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1 &&
	       SSL_set_tlsext_host_name(ssl, name) == 1;
}

SSL *tls_client_ssl(SSL_CTX *ctx, const char *host)
{
	SSL *ssl = SSL_new(ctx);

	if (ssl && !expect_host(ssl, host)) {
		SSL_free(ssl);
		ERR_clear_error();
		return NULL;
	}
	if (ssl)
		tls_errors_set_host(ssl, host);
	return ssl;
}
