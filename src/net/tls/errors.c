/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/tls/errors.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "net/tls/certificate.h"
#include "net/tls/tls.h"

struct tls_error {
	char *host; /* whom we called; NULL on the server */
	int alert; /* the last one the peer sent; -1: none */
	unsigned long error; /* OpenSSL's, of the step that failed */
	int verify; /* X509_V_OK, or why we refused the peer's certificate */
	char *peer; /* its subject */
	char *names; /* the hosts it is for */
	char *broken_rule; /* of ours, which OpenSSL does not have; NULL: none */
	char until[TLS_TIME_BYTES];
};

static void error_free(void *parent, void *p, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
	struct tls_error *t = p;

	(void)parent, (void)ad, (void)idx, (void)argl, (void)argp;
	if (!t)
		return;
	free(t->host);
	free(t->peer);
	free(t->names);
	free(t->broken_rule);
	free(t);
}

static CRYPTO_ONCE once = CRYPTO_ONCE_STATIC_INIT;
static int slot;

static void make_slot(void)
{
	slot = SSL_get_ex_new_index(0, NULL, NULL, NULL, error_free);
}

/* Made when there is something to record: most connections go well. */
static struct tls_error *error_of(SSL *ssl)
{
	struct tls_error *t = SSL_get_ex_data(ssl, slot);

	if (t)
		return t;
	t = xcalloc(1, sizeof(*t));
	t->alert = -1;
	if (SSL_set_ex_data(ssl, slot, t))
		return t;
	free(t);
	return NULL;
}

void tls_errors_set_host(SSL *ssl, const char *host)
{
	struct tls_error *t = error_of(ssl);

	if (t)
		t->host = xstrdup(host);
}

static void on_info(const SSL *ssl, int where, int ret)
{
	/* The const is only that of the callback's type. */
	SSL *s = (SSL *)(uintptr_t)ssl;
	struct tls_error *t;

	if (where & SSL_CB_ALERT && where & SSL_CB_READ) {
		int alert = ret & 0xff;

		t = alert != SSL_AD_CLOSE_NOTIFY ? error_of(s) : NULL;
		if (t)
			t->alert = alert;
	} else if (where & SSL_CB_EXIT && ret < 0 && ERR_peek_error()) {
		t = error_of(s);
		if (t)
			t->error = ERR_peek_error();
	}
}

void tls_errors_watch(SSL_CTX *ctx)
{
	CRYPTO_THREAD_run_once(&once, make_slot);
	SSL_CTX_set_info_callback(ctx, on_info);
}

/* --- the peer's certificate --- */

static void record_certificate(struct tls_error *t, X509 *x)
{
	struct buf text = {0};

	free(t->peer);
	free(t->names);
	tls_name_of(x, &text);
	t->peer = xstrdup(buf_str(&text));
	buf_clear(&text);
	tls_hosts_of(x, ", ", &text);
	t->names = xstrdup(buf_str(&text));
	buf_release(&text);
	tls_time_text(t->verify == X509_V_ERR_CERT_NOT_YET_VALID ? X509_get0_notBefore(x)
								 : X509_get0_notAfter(x),
		      t->until);
}

/*
 * What OpenSSL found good is held to the rules for our own files as well: it takes a CA, or a
 * certificate without a keyUsage, as a peer. Those above the peer that come from ca.crt were
 * checked when that was loaded. The words are the caller's; NULL: it is good.
 */
static char *find_broken_rule(const X509_STORE_CTX *store, X509 *x)
{
	bool leaf = X509_STORE_CTX_get_error_depth(store) == 0;
	struct err err = {0};

	if (tls_check_certificate(x, leaf ? TLS_KIND_LEAF : TLS_KIND_INTERMEDIATE, "", &err) == 0)
		return NULL;
	return xstrdup(err.text + strlen("'': "));
}

static void record_refusal(X509_STORE_CTX *store, int why, X509 *x, char *broken_rule)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tls_error *t = ssl ? error_of(ssl) : NULL;

	if (!t) {
		free(broken_rule);
		return;
	}
	t->verify = why;
	free(t->broken_rule);
	t->broken_rule = broken_rule;
	if (x)
		record_certificate(t, x);
}

int tls_errors_verify(int ok, X509_STORE_CTX *store)
{
	int why = X509_STORE_CTX_get_error(store);
	X509 *x = X509_STORE_CTX_get_current_cert(store);

	if (ok) {
		char *rule = x ? find_broken_rule(store, x) : NULL;

		if (!rule)
			return 1;
		X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
		record_refusal(store, X509_V_ERR_CERT_REJECTED, x, rule);
		return 0;
	}
	/* ca.crl must cover the CA that issued the peer's certificate; the CAs above it need a
	 * list only if they have one. */
	if (why == X509_V_ERR_UNABLE_TO_GET_CRL && X509_STORE_CTX_get_error_depth(store) > 0) {
		X509_STORE_CTX_set_error(store, X509_V_OK);
		return 1;
	}
	record_refusal(store, why, x, NULL);
	return 0;
}

/* --- in words --- */

/* Why a certificate is refused, where that needs no dates or names. */
static const char *refusal_words(int verify)
{
	switch (verify) {
	case X509_V_ERR_CERT_REVOKED:
		return "is revoked";
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		return "comes from an unknown CA: none of 'ca.crt' has issued it";
	case X509_V_ERR_EE_KEY_TOO_SMALL:
	case X509_V_ERR_CA_KEY_TOO_SMALL:
	case X509_V_ERR_CA_MD_TOO_WEAK:
		return "has too weak a key or signature";
	default:
		return NULL;
	}
}

static int refused_by_us(const SSL *ssl, const struct tls_error *t, struct err *err)
{
	const char *who = SSL_is_server(ssl) ? "client" : "daemon";
	const char *name = t->peer ? t->peer : "?", *why = refusal_words(t->verify);

	if (why)
		return err_set(err, -EACCES, "the certificate of the %s ('%s') %s", who, name, why);
	if (t->broken_rule)
		return err_set(err, -EACCES, "the certificate of the %s ('%s') is refused: %s", who,
			       name, t->broken_rule);
	switch (t->verify) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return err_set(err, -EACCES, "the certificate of the %s ('%s') expired at %s", who,
			       name, t->until);
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return err_set(err, -EACCES,
			       "the certificate of the %s ('%s') is not valid before %s; compare "
			       "the clocks",
			       who, name, t->until);
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return err_set(
			err, -EACCES, "the certificate of the %s is not for '%s' but for: %.250s",
			who, t->host ? t->host : "?", t->names && *t->names ? t->names : "no host");
	case X509_V_ERR_CRL_HAS_EXPIRED:
		return err_set(err, -EACCES, "our 'ca.crl' has expired; get a new one from the CA");
	case X509_V_ERR_UNABLE_TO_GET_CRL:
		return err_set(err, -EACCES,
			       "our 'ca.crl' does not cover the CA that issued the certificate of "
			       "the %s ('%s')",
			       who, name);
	case X509_V_ERR_INVALID_PURPOSE:
		return err_set(err, -EACCES,
			       "the certificate of the %s ('%s') is not meant for a %s", who, name,
			       SSL_is_server(ssl) ? "client" : "server");
	default:
		return err_set(err, -EACCES, "the certificate of the %s ('%s') is refused: %s", who,
			       name, X509_verify_cert_error_string(t->verify));
	}
}

static int refused_by_peer(const SSL *ssl, int alert, struct err *err)
{
	static const struct {
		int alert;
		const char *why;
	} reasons[] = {
		{SSL_AD_CERTIFICATE_REVOKED, "it is revoked"},
		{SSL_AD_CERTIFICATE_EXPIRED, "it has expired, or the clocks differ"},
		{SSL_AD_UNKNOWN_CA, "it comes from a CA that is unknown there"},
		{TLS13_AD_CERTIFICATE_REQUIRED, "none was sent"},
		{SSL_AD_BAD_CERTIFICATE, "it does not pass its checks"},
		{SSL_AD_UNSUPPORTED_CERTIFICATE, "it does not pass its checks"},
		{SSL_AD_CERTIFICATE_UNKNOWN, "it does not pass its checks"},
	};
	const char *who = SSL_is_server(ssl) ? "client" : "daemon";

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].alert == alert)
			return err_set(err, -EACCES, "the %s refused our certificate: %s", who,
				       reasons[i].why);
	if (alert == SSL_AD_PROTOCOL_VERSION)
		return err_set(err, -EPROTO,
			       "the %s accepts no TLS version that we accept (1.2 and 1.3)", who);
	if (alert == SSL_AD_HANDSHAKE_FAILURE)
		return err_set(err, -EPROTO,
			       "the %s found nothing in common with us (cipher suites, "
			       "certificates)",
			       who);
	return err_set(err, -EPROTO, "the %s broke the TLS connection off: %s", who,
		       SSL_alert_desc_string_long(alert));
}

static int broke_off(const SSL *ssl, unsigned long error, struct err *err)
{
	const char *who = SSL_is_server(ssl) ? "client" : "daemon";
	const char *words = ERR_reason_error_string(error);

	switch (ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0) {
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		return err_set(err, -EACCES, "the %s sent no certificate", who);
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_VERSION_TOO_LOW:
	case SSL_R_NO_PROTOCOLS_AVAILABLE:
		return err_set(err, -EPROTO, "the %s speaks only TLS versions older than 1.2", who);
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_HTTP_REQUEST:
	case SSL_R_HTTPS_PROXY_REQUEST:
	case SSL_R_UNKNOWN_PROTOCOL:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
	case SSL_R_BAD_RECORD_TYPE:
		return err_set(err, -EPROTO, "the %s does not speak TLS", who);
	case SSL_R_NO_SHARED_CIPHER:
		return err_set(err, -EPROTO, "the %s offers no cipher suite that we accept", who);
	default:
		return err_set(err, -EPROTO, "the TLS handshake with the %s failed: %s", who,
			       words ? words : "unknown error");
	}
}

void tls_failure(const SSL *ssl, struct err *err)
{
	const struct tls_error *t = SSL_get_ex_data(ssl, slot);

	if (t && t->verify != X509_V_OK)
		refused_by_us(ssl, t, err);
	else if (t && t->alert >= 0)
		refused_by_peer(ssl, t->alert, err);
	else if (t && t->error)
		broke_off(ssl, t->error, err);
	else if (SSL_is_server(ssl))
		err_set(err, -ECONNRESET, "the client closed the connection");
	else
		err_set(err, -ECONNRESET, "the daemon closed the connection%s",
			SSL_is_init_finished(ssl) ? ""
						  : " during the TLS handshake; perhaps it runs "
						    "without certificates");
}
