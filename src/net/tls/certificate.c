/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/tls/certificate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define RSA_BITS_MIN 3072
#define EC_BITS_MIN 256
#define CRL_DAYS_WITHOUT_END 365

void tls_time_text(const ASN1_TIME *t, char out[TLS_TIME_BYTES])
{
	struct tm tm = {0};

	if (!t || ASN1_TIME_to_tm(t, &tm) != 1 ||
	    strftime(out, TLS_TIME_BYTES, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
		snprintf(out, TLS_TIME_BYTES, "an unreadable date");
}

static bool digest_is_strong(int md)
{
	return md == NID_sha256 || md == NID_sha384 || md == NID_sha512;
}

/* X509_get_signature_info() sees through RSA-PSS, whose digest is a parameter. Ed25519 has none. */
static int check_signature(X509 *x, const char *path, struct err *err)
{
	int md = NID_undef, key = NID_undef;

	if (!X509_get_signature_info(x, &md, &key, NULL, NULL))
		return err_set(err, -EINVAL, "'%s': the signature algorithm is not known", path);
	if (key == NID_ED25519 || key == NID_ED448 || digest_is_strong(md))
		return 0;
	return err_set(err, -EINVAL,
		       "'%s': the signature algorithm %s is too weak or not known; sha256, sha384 "
		       "or sha512 is needed",
		       path, OBJ_nid2ln(X509_get_signature_nid(x)));
}

static int check_key(X509 *x, const char *path, struct err *err)
{
	EVP_PKEY *key = X509_get0_pubkey(x);

	if (!key)
		return err_set(err, -EINVAL, "'%s': the public key cannot be read", path);
	int bits = EVP_PKEY_bits(key);
	switch (EVP_PKEY_base_id(key)) {
	case EVP_PKEY_RSA:
	case EVP_PKEY_RSA_PSS:
		if (bits >= RSA_BITS_MIN)
			return 0;
		return err_set(err, -EINVAL,
			       "'%s': the RSA key has %d bits; at least %d are needed", path, bits,
			       RSA_BITS_MIN);
	case EVP_PKEY_EC:
		if (bits >= EC_BITS_MIN)
			return 0;
		return err_set(err, -EINVAL, "'%s': the EC key has %d bits; at least %d are needed",
			       path, bits, EC_BITS_MIN);
	case EVP_PKEY_ED25519:
	case EVP_PKEY_ED448:
		return 0;
	default:
		return err_set(err, -EINVAL, "'%s': the key is neither RSA, EC nor Ed25519", path);
	}
}

static int check_dates(X509 *x, const char *path, struct err *err)
{
	char when[TLS_TIME_BYTES];

	/* 0 means that the date makes no sense: refused like a date on the wrong side. */
	if (X509_cmp_time(X509_get0_notBefore(x), NULL) >= 0) {
		tls_time_text(X509_get0_notBefore(x), when);
		return err_set(err, -EINVAL,
			       "'%s': the certificate is not valid before %s; is the clock right?",
			       path, when);
	}
	if (X509_cmp_time(X509_get0_notAfter(x), NULL) <= 0) {
		tls_time_text(X509_get0_notAfter(x), when);
		return err_set(err, -EINVAL, "'%s': the certificate expired at %s", path, when);
	}
	return 0;
}

static int check_usage(X509 *x, enum tls_kind kind, const char *path, struct err *err)
{
	uint32_t flags = X509_get_extension_flags(x), usage = X509_get_key_usage(x);
	uint32_t need = kind == TLS_KIND_LEAF ? 0
			: kind == TLS_KIND_CA ? KU_KEY_CERT_SIGN | KU_CRL_SIGN
					      : KU_KEY_CERT_SIGN;

	if (flags & EXFLAG_INVALID)
		return err_set(err, -EINVAL, "'%s': an extension of the certificate is malformed",
			       path);
	if (kind == TLS_KIND_LEAF && flags & EXFLAG_CA)
		return err_set(err, -EINVAL,
			       "'%s': this is the certificate of a CA (CA:TRUE); one of a server "
			       "or client is needed",
			       path);
	if (kind != TLS_KIND_LEAF && !(flags & EXFLAG_CA))
		return err_set(err, -EINVAL,
			       "'%s': this is not the certificate of a CA (no CA:TRUE)", path);
	if (!(flags & EXFLAG_KUSAGE))
		return err_set(err, -EINVAL, "'%s': the certificate has no keyUsage extension",
			       path);
	if ((usage & need) != need)
		return err_set(err, -EINVAL, "'%s': the keyUsage of the CA lacks %s", path,
			       usage & KU_KEY_CERT_SIGN ? "cRLSign" : "keyCertSign");
	return 0;
}

int tls_check_certificate(X509 *x, enum tls_kind kind, const char *path, struct err *err)
{
	if (X509_get_version(x) != 2) /* counted from zero */
		return err_set(err, -EINVAL, "'%s': the certificate is X.509 v%ld; v3 is needed",
			       path, X509_get_version(x) + 1);
	int r = check_signature(x, path, err);
	r = r ?: check_key(x, path, err);
	r = r ?: check_dates(x, path, err);
	r = r ?: check_usage(x, kind, path, err);
	return r;
}

static int check_crl_signer(X509_CRL *crl, STACK_OF(X509) * ca, const char *path, struct err *err)
{
	int md = NID_undef, key = NID_undef;

	OBJ_find_sigid_algs(X509_CRL_get_signature_nid(crl), &md, &key);
	if (md != NID_undef && !digest_is_strong(md))
		return err_set(err, -EINVAL,
			       "'%s': the signature algorithm %s is too weak or not known", path,
			       OBJ_nid2ln(X509_CRL_get_signature_nid(crl)));
	for (int i = 0; i < sk_X509_num(ca); i++) {
		X509 *x = sk_X509_value(ca, i);

		if (X509_NAME_cmp(X509_CRL_get_issuer(crl), X509_get_subject_name(x)) == 0 &&
		    X509_CRL_verify(crl, X509_get0_pubkey(x)) == 1)
			return 0;
	}
	return err_set(err, -EINVAL, "'%s': the revocation list is not signed by a CA of 'ca.crt'",
		       path);
}

int tls_check_crl(X509_CRL *crl, STACK_OF(X509) * ca, const char *path, struct err *err)
{
	const ASN1_TIME *from = X509_CRL_get0_lastUpdate(crl);
	const ASN1_TIME *until = X509_CRL_get0_nextUpdate(crl);
	char when[TLS_TIME_BYTES];
	int days = 0, seconds = 0;

	int r = check_crl_signer(crl, ca, path, err);
	if (r < 0)
		return r;
	if (X509_cmp_time(from, NULL) >= 0) {
		tls_time_text(from, when);
		return err_set(err, -EINVAL,
			       "'%s': the revocation list is not valid before %s; is the clock "
			       "right?",
			       path, when);
	}
	if (until && X509_cmp_time(until, NULL) <= 0) {
		tls_time_text(until, when);
		return err_set(err, -EINVAL,
			       "'%s': the revocation list expired at %s; get a new one from the CA",
			       path, when);
	}
	if (!until &&
	    (!ASN1_TIME_diff(&days, &seconds, from, NULL) || days >= CRL_DAYS_WITHOUT_END))
		return err_set(err, -EINVAL,
			       "'%s': the revocation list is older than %d days and does not say "
			       "how long it is valid; get a new one from the CA",
			       path, CRL_DAYS_WITHOUT_END);
	return 0;
}

bool tls_is_revoked(STACK_OF(X509_CRL) * crls, X509 *x)
{
	for (int i = 0; i < sk_X509_CRL_num(crls); i++) {
		X509_CRL *crl = sk_X509_CRL_value(crls, i);
		X509_REVOKED *found = NULL;

		/* 2 stands for "taken off the list again". */
		if (X509_NAME_cmp(X509_CRL_get_issuer(crl), X509_get_issuer_name(x)) == 0 &&
		    X509_CRL_get0_by_cert(crl, &found, x) == 1)
			return true;
	}
	return false;
}

static void add_printable(struct buf *out, const ASN1_STRING *s)
{
	const unsigned char *text = ASN1_STRING_get0_data(s);

	for (int i = 0; i < ASN1_STRING_length(s); i++)
		buf_add_char(out, text[i] >= ' ' && text[i] < 0x7f ? (char)text[i] : '?');
}

static void add_address(struct buf *out, const ASN1_STRING *ip)
{
	int len = ASN1_STRING_length(ip);
	char text[INET6_ADDRSTRLEN];

	if ((len == 4 || len == 16) &&
	    inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(ip), text, sizeof(text)))
		buf_add_str(out, text);
	else
		buf_add_char(out, '?');
}

void tls_name_of(X509 *x, struct buf *out)
{
	X509_NAME *subject = X509_get_subject_name(x);
	int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

	if (at >= 0)
		add_printable(out, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

void tls_hosts_of(X509 *x, const char *between, struct buf *out)
{
	GENERAL_NAMES *list = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
	bool first = true;

	for (int i = 0; i < sk_GENERAL_NAME_num(list); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(list, i);

		if (name->type != GEN_DNS && name->type != GEN_IPADD)
			continue;
		if (!first)
			buf_add_str(out, between);
		first = false;
		if (name->type == GEN_DNS)
			add_printable(out, name->d.dNSName);
		else
			add_address(out, name->d.iPAddress);
	}
	GENERAL_NAMES_free(list);
}
