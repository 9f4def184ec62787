/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Certificates and revocation lists in PEM, as files and peers bring them: parsing, checks, names.
 * Input that starts like DER is put into PEM as both, so that changed bytes get behind the base64.
 * What goes into words must be printable.
 */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdint.h>
#include <stdlib.h>

#include "net/tls/certificate.h"
#include "net/tls/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_names(X509 *x)
{
	struct buf names = {0};

	tls_name_of(x, &names);
	tls_hosts_of(x, ", ", &names);
	for (size_t i = 0; i < names.len; i++)
		if (names.data[i] < ' ' || names.data[i] == 0x7f)
			abort();
	buf_release(&names);
}

static void add_pem(struct buf *out, const char *name, const uint8_t *data, size_t size)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;

	PEM_write_bio(bio, name, "", data, (long)size);
	long len = BIO_get_mem_data(bio, &text);
	buf_add(out, text, (size_t)len);
	BIO_free(bio);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	STACK_OF(X509) *list = NULL;
	STACK_OF(X509_CRL) *crls = NULL;
	struct buf text = {0};

	if (size && data[0] == 0x30) {
		add_pem(&text, "CERTIFICATE", data, size);
		add_pem(&text, "X509 CRL", data, size);
	} else {
		buf_add(&text, data, size);
	}
	if (tls_files_certificates("x", &text, &list, NULL) == 0)
		for (int i = 0; i < sk_X509_num(list); i++) {
			struct err err = {0};

			tls_check_certificate(sk_X509_value(list, i),
					      i ? TLS_KIND_CA : TLS_KIND_LEAF, "x", &err);
			check_names(sk_X509_value(list, i));
		}
	if (tls_files_crls("x", &text, &crls, NULL) == 0)
		for (int i = 0; i < sk_X509_CRL_num(crls); i++)
			tls_check_crl(sk_X509_CRL_value(crls, i), list, "x", NULL);
	for (int i = 0; crls && i < sk_X509_num(list); i++)
		(void)tls_is_revoked(crls, sk_X509_value(list, i));
	if (ERR_peek_error() && !list && !crls)
		abort();
	ERR_clear_error();
	sk_X509_pop_free(list, X509_free);
	sk_X509_CRL_pop_free(crls, X509_CRL_free);
	buf_release(&text);
	return 0;
}
