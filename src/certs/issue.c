/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "certs/certs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/mem.h"

#define RSA_BITS 3072
#define SERIAL_BITS 127 /* positive in 16 bytes */
#define NAME_BYTES_MAX 64 /* of a common name */
#define HOST_BYTES_MAX 253
/* A host whose clock is a little late must accept what was made just now. */
#define DAYS_BACK 1

static int fail_openssl(const char *what, struct err *err)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	ERR_clear_error();
	return err_set(err, -EIO, "cannot make %s: %s", what, why ? why : "unknown error");
}

bool certs_is_host(const char *text)
{
	unsigned char address[16];
	const char *c = text;

	if (inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1)
		return true;
	if (!strncmp(c, "*.", 2))
		c += 2;
	if (strlen(text) > HOST_BYTES_MAX || !isalnum((unsigned char)*c))
		return false;
	for (; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("-_", *c) &&
		    !(*c == '.' && c[1] && c[1] != '.'))
			return false;
	return true;
}

int certs_make_key(enum certs_key type, EVP_PKEY **out, struct err *err)
{
	EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_id(type == CERTS_EC ? EVP_PKEY_EC : EVP_PKEY_RSA, NULL);
	EVP_PKEY *key = NULL;
	bool ok = c && EVP_PKEY_keygen_init(c) == 1;

	if (ok && type == CERTS_EC)
		ok = EVP_PKEY_CTX_set_ec_paramgen_curve_nid(c, NID_X9_62_prime256v1) == 1 &&
		     EVP_PKEY_CTX_set_ec_param_enc(c, OPENSSL_EC_NAMED_CURVE) == 1;
	else if (ok)
		ok = EVP_PKEY_CTX_set_rsa_keygen_bits(c, RSA_BITS) == 1;
	ok = ok && EVP_PKEY_keygen(c, &key) == 1;
	EVP_PKEY_CTX_free(c);
	if (!ok)
		return fail_openssl("a key", err);
	*out = key;
	return 0;
}

/* --- certificates --- */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX c;

	X509V3_set_ctx(&c, issuer, x, NULL, NULL, 0);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &c, nid, value);
	bool ok = e && X509_add_ext(x, e, -1) == 1;
	X509_EXTENSION_free(e);
	return ok;
}

/* "a,10.0.0.1" to "DNS:a,IP:10.0.0.1". The names have been checked. */
static void alternative_names(const char *hosts, struct buf *out)
{
	while (*hosts) {
		size_t len = strcspn(hosts, ",");
		char *host = xstrndup(hosts, len);
		unsigned char address[16];
		bool ip = inet_pton(AF_INET, host, address) == 1 ||
			  inet_pton(AF_INET6, host, address) == 1;

		buf_addf(out, "%s%s:%s", out->len ? "," : "", ip ? "IP" : "DNS", host);
		free(host);
		hosts += len + (hosts[len] == ',');
	}
}

static bool add_extensions(X509 *x, X509 *issuer, const struct certs_subject *s)
{
	static const struct {
		const char *constraints, *usage, *purpose;
	} of[] = {
		[CERTS_CA] = {"critical,CA:TRUE,pathlen:0", "critical,keyCertSign,cRLSign", NULL},
		[CERTS_SERVER] = {"critical,CA:FALSE", "critical,digitalSignature", "serverAuth"},
		[CERTS_CLIENT] = {"critical,CA:FALSE", "critical,digitalSignature", "clientAuth"},
	};
	struct buf names = {0};

	bool ok = add_extension(x, issuer, NID_basic_constraints, of[s->kind].constraints) &&
		  add_extension(x, issuer, NID_key_usage, of[s->kind].usage) &&
		  add_extension(x, issuer, NID_subject_key_identifier, "hash") &&
		  add_extension(x, issuer, NID_authority_key_identifier, "keyid:always");
	if (ok && of[s->kind].purpose)
		ok = add_extension(x, issuer, NID_ext_key_usage, of[s->kind].purpose);
	if (ok && s->kind == CERTS_SERVER) {
		alternative_names(s->hosts, &names);
		ok = add_extension(x, issuer, NID_subject_alt_name, buf_str(&names));
	}
	buf_release(&names);
	return ok;
}

static bool set_serial(X509 *x)
{
	BIGNUM *n = BN_new();
	bool ok = n && BN_rand(n, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
		  BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));

	BN_free(n);
	return ok;
}

static bool set_name(X509 *x, const char *name)
{
	int len = (int)strnlen(name, NAME_BYTES_MAX);

	return X509_NAME_add_entry_by_NID(X509_get_subject_name(x), NID_commonName, MBSTRING_UTF8,
					  (const unsigned char *)name, len, -1, 0) == 1;
}

static bool set_dates(X509 *x, unsigned days, const X509 *ca)
{
	if (!X509_time_adj_ex(X509_getm_notBefore(x), -DAYS_BACK, 0, NULL) ||
	    !X509_time_adj_ex(X509_getm_notAfter(x), (int)days, 0, NULL))
		return false;
	if (ca && ASN1_TIME_compare(X509_get0_notAfter(x), X509_get0_notAfter(ca)) > 0)
		return X509_set1_notAfter(x, X509_get0_notAfter(ca)) == 1;
	return true;
}

int certs_make(const struct certs_subject *s, EVP_PKEY *key, const struct certs_issuer *by,
	       X509 **out, struct err *err)
{
	X509 *x = X509_new(), *issuer = by ? by->ca : x;

	if (x && X509_set_version(x, 2) == 1 && set_serial(x) && set_name(x, s->name) &&
	    X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1 &&
	    set_dates(x, s->days, by ? by->ca : NULL) && X509_set_pubkey(x, key) == 1 &&
	    add_extensions(x, issuer, s) && X509_sign(x, by ? by->key : key, EVP_sha256()) > 0) {
		*out = x;
		return 0;
	}
	X509_free(x);
	return fail_openssl("a certificate", err);
}

/* --- revocation lists --- */

static bool add_revoked(X509_CRL *crl, X509 *x)
{
	X509_REVOKED *found = NULL, *r = NULL;
	ASN1_TIME *now = NULL;

	if (X509_CRL_get0_by_cert(crl, &found, x) == 1)
		return true;
	r = X509_REVOKED_new();
	now = X509_gmtime_adj(NULL, 0);
	bool ok = r && now && X509_REVOKED_set_serialNumber(r, X509_get_serialNumber(x)) == 1 &&
		  X509_REVOKED_set_revocationDate(r, now) == 1 &&
		  X509_CRL_add0_revoked(crl, r) == 1;
	if (!ok)
		X509_REVOKED_free(r);
	ASN1_TIME_free(now);
	return ok;
}

/* One more than on the old list, so that readers know which is newer. */
static bool set_number(X509_CRL *crl)
{
	ASN1_INTEGER *n = X509_CRL_get_ext_d2i(crl, NID_crl_number, NULL, NULL);
	BIGNUM *next = n ? ASN1_INTEGER_to_BN(n, NULL) : BN_new();
	bool ok = next && BN_add_word(next, 1) == 1;

	ASN1_INTEGER_free(n);
	n = ok ? BN_to_ASN1_INTEGER(next, NULL) : NULL;
	ok = n && X509_CRL_add1_ext_i2d(crl, NID_crl_number, n, 0, X509V3_ADD_REPLACE) == 1;
	ASN1_INTEGER_free(n);
	BN_free(next);
	return ok;
}

/* The list lives as long as the CA: when nothing is revoked for years, nothing has to be done. */
static bool set_crl_dates(X509_CRL *crl, X509 *ca)
{
	ASN1_TIME *from = X509_time_adj_ex(NULL, -DAYS_BACK, 0, NULL);
	bool ok = from && X509_CRL_set1_lastUpdate(crl, from) == 1 &&
		  X509_CRL_set1_nextUpdate(crl, X509_get0_notAfter(ca)) == 1;

	ASN1_TIME_free(from);
	return ok;
}

int certs_make_crl(const struct certs_issuer *by, X509_CRL *old, X509 *const *revoked, size_t n,
		   X509_CRL **out, struct err *err)
{
	X509_CRL *crl = old ? X509_CRL_dup(old) : X509_CRL_new();
	bool ok = crl && X509_CRL_set_version(crl, 1) == 1 &&
		  X509_CRL_set_issuer_name(crl, X509_get_subject_name(by->ca)) == 1 &&
		  set_crl_dates(crl, by->ca) && set_number(crl);

	for (size_t i = 0; ok && i < n; i++)
		ok = add_revoked(crl, revoked[i]);
	if (ok && X509_CRL_sort(crl) == 1 && X509_CRL_sign(crl, by->key, EVP_sha256()) > 0) {
		*out = crl;
		return 0;
	}
	X509_CRL_free(crl);
	return fail_openssl("a revocation list", err);
}
