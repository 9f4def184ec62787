/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/tls/names.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>
#include <stdbool.h>

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
