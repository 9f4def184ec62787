/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "certs/certs.h"

#include <errno.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include "base/fs.h"
#include "net/tls/certificate.h"
#include "test.h"
#include "tls_sets.h"

TEST(certs, hosts)
{
	static const char *const good[] = {"a",	      "node-1.x_y.z", "10.0.0.1",
					   "fe80::1", "*.a.b",	      "1node"};
	static const char *const bad[] = {"",	 "a b", "a..b", ".a", "a.",  "-a",
					  "a/b", "a,b", "*",	"*a", "a:b", "a\n"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK(certs_is_host(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!certs_is_host(bad[i]));
}

TEST(certs, nothing_is_overwritten)
{
	struct certs *c = NULL, *other = NULL;
	struct buf before = {0}, after = {0};
	struct err err = {0};

	sets_begin();
	CHECK(certs_open(sets_path("ca"), &sets_plain, false, &c, &err) == -ENOENT);
	c = sets_make("ca", &sets_plain);
	CHECK(certs_is_new(c));
	CHECK(certs_open(sets_path("ca"), &sets_plain, true, &other, &err) == -EBUSY);
	certs_free(c);
	CHECK(fs_read_file(sets_path("ca/ca/ca.key"), 65536, &before, NULL) == 0);
	CHECK(fs_read_file(sets_path("ca/client/client.key"), 65536, &before, NULL) == 0);
	CHECK_INT(certs_open(sets_path("ca"), &sets_plain, true, &c, &err), 0);
	CHECK(!certs_is_new(c));
	CHECK_INT(certs_add(c, CERTS_CLIENT, "client", NULL, false, &err), 0);
	CHECK(fs_read_file(sets_path("ca/ca/ca.key"), 65536, &after, NULL) == 0);
	CHECK(fs_read_file(sets_path("ca/client/client.key"), 65536, &after, NULL) == 0);
	CHECK_STR(buf_str(&after), buf_str(&before));
	unlink(sets_path("ca/client/client.crt"));
	CHECK(certs_add(c, CERTS_CLIENT, "client", NULL, false, &err) == -EEXIST);
	CHECK(certs_revoke(c, "nobody", &err) == -ENOENT);
	CHECK_HAS(err.text, "there are: client, server-a.test");
	certs_free(c);
	buf_release(&before);
	buf_release(&after);
}

TEST(certs, rsa_and_long_names)
{
	char name[201];
	EVP_PKEY *key = NULL;
	X509 *x = NULL;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 60; i < 200; i += 60)
		name[i] = '.';
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	struct certs_issuer by = sets_issuer("ca");
	struct certs_subject s = {CERTS_SERVER, name, name, 100000};
	CHECK_INT(certs_make_key(CERTS_RSA, &key, NULL), 0);
	CHECK_INT(certs_make(&s, key, &by, &x, NULL), 0);
	CHECK_INT(tls_check_certificate(x, TLS_KIND_LEAF, "x", NULL), 0);
	CHECK(X509_check_host(x, name, 0, 0, NULL) == 1);
	/* It ends with the CA. */
	CHECK(ASN1_TIME_compare(X509_get0_notAfter(x), X509_get0_notAfter(by.ca)) == 0);
	X509_free(x);
	EVP_PKEY_free(key);
	sets_issuer_release(&by);
}
