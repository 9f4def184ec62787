/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What certificates, lists and files must be before they are used. */
#include "net/tls/files.h"

#include <errno.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "net/tls/certificate.h"
#include "test.h"
#include "tls_sets.h"

static const char *verdict(const struct odd *o, enum tls_kind kind)
{
	static struct err err;
	EVP_PKEY *key = odd_key(o->rsa_bits);
	X509 *x = odd_make(o, key, NULL);

	err = (struct err){.text = "fine"};
	int r = tls_check_certificate(x, kind, "x.crt", &err);
	CHECK(r == 0 || err.code == r);
	X509_free(x);
	EVP_PKEY_free(key);
	return err.text;
}

TEST(tls_files, certificates_are_checked)
{
	struct odd o = odd_sound;
	static const struct odd ca = {.constraints = "CA:TRUE",
				      .usage = "keyCertSign,cRLSign",
				      .version = 2,
				      .from_days = -1,
				      .to_days = 1};

	CHECK_STR(verdict(&o, TLS_KIND_LEAF), "fine");
	o.md = EVP_sha384();
	CHECK_STR(verdict(&o, TLS_KIND_LEAF), "fine");
	o.md = EVP_sha512();
	CHECK_STR(verdict(&o, TLS_KIND_LEAF), "fine");
	o.md = EVP_sha1();
	CHECK_HAS(verdict(&o, TLS_KIND_LEAF), "too weak");
	o = odd_sound, o.rsa_bits = 2048;
	CHECK_HAS(verdict(&o, TLS_KIND_LEAF), "has 2048 bits; at least 3072");
	o = odd_sound, o.version = 0, o.constraints = o.usage = NULL;
	CHECK_HAS(verdict(&o, TLS_KIND_LEAF), "X.509 v1");
	o = odd_sound, o.to_days = 0;
	CHECK_HAS(verdict(&o, TLS_KIND_LEAF), "expired at");
	o = odd_sound, o.from_days = 1, o.to_days = 2;
	CHECK_HAS(verdict(&o, TLS_KIND_LEAF), "not valid before");
	o = odd_sound, o.usage = NULL;
	CHECK_HAS(verdict(&o, TLS_KIND_LEAF), "no keyUsage");
	CHECK_HAS(verdict(&ca, TLS_KIND_LEAF), "CA:TRUE");
	CHECK_STR(verdict(&ca, TLS_KIND_CA), "fine");
	CHECK_HAS(verdict(&odd_sound, TLS_KIND_CA), "not the certificate of a CA");
	o = ca, o.usage = "keyCertSign";
	CHECK_HAS(verdict(&o, TLS_KIND_CA), "lacks cRLSign");
	CHECK_STR(verdict(&o, TLS_KIND_INTERMEDIATE), "fine");
	o.usage = "cRLSign";
	CHECK_HAS(verdict(&o, TLS_KIND_INTERMEDIATE), "lacks keyCertSign");
}

static void copy(const char *from, const char *to)
{
	struct buf b = {0};

	CHECK(fs_read_file(from, 65536, &b, NULL) == 0);
	CHECK(fs_write_atomic(to, &b, 0600, NULL) == 0);
	buf_release(&b);
}

static void write_crl(const char *path, struct certs_issuer *by, int from_days, int to_days)
{
	X509_CRL *crl = X509_CRL_new();
	ASN1_TIME *from = X509_time_adj_ex(NULL, from_days, 0, NULL);
	ASN1_TIME *to = X509_time_adj_ex(NULL, to_days, 0, NULL);

	X509_CRL_set_version(crl, 1);
	X509_CRL_set_issuer_name(crl, X509_get_subject_name(by->ca));
	X509_CRL_set1_lastUpdate(crl, from);
	if (to_days)
		X509_CRL_set1_nextUpdate(crl, to);
	CHECK(X509_CRL_sign(crl, by->key, EVP_sha256()) > 0);
	FILE *f = fopen(path, "w");
	CHECK(f && PEM_write_X509_CRL(f, crl) == 1);
	fclose(f);
	chmod(path, 0600);
	ASN1_TIME_free(from);
	ASN1_TIME_free(to);
	X509_CRL_free(crl);
}

TEST(tls_files, revocation_lists_are_checked)
{
	const char *set = "ca/server-a.test";
	char crl[256];

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	certs_free(sets_make("two", &sets_plain));
	struct certs_issuer by = sets_issuer("ca");
	snprintf(crl, sizeof(crl), "%s", sets_path("ca/server-a.test/ca.crl"));

	write_crl(crl, &by, -3, -1);
	CHECK_HAS(sets_refusal(set, true), "the revocation list expired at");
	write_crl(crl, &by, 1, 3);
	CHECK_HAS(sets_refusal(set, true), "the revocation list is not valid before");
	write_crl(crl, &by, -400, 0);
	CHECK_HAS(sets_refusal(set, true), "older than 365 days");
	write_crl(crl, &by, -300, 0);
	tls_server_free(sets_server(set));
	copy(sets_path("two/ca/ca.crl"), crl);
	CHECK_HAS(sets_refusal(set, true), "is not signed by a CA of 'ca.crt'");
	sets_write(crl, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", 0600);
	CHECK_HAS(sets_refusal(set, true), "does not hold a revocation list");
	sets_write(crl, "", 0600);
	CHECK_HAS(sets_refusal(set, true), "does not hold a revocation list");
	unlink(crl);
	tls_server_free(sets_server(set));
	sets_issuer_release(&by);
}

TEST(tls_files, modes_are_enforced)
{
	const char *set = "ca/server-a.test";

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	chmod(sets_path("ca/server-a.test/server.key"), 0640);
	CHECK_HAS(sets_refusal(set, true), "run: chmod 600 '");
	CHECK_HAS(sets_refusal(set, true),
		  "/server.key' can be read or written by others (mode 640)");
	chmod(sets_path("ca/server-a.test/server.key"), 0400);
	chmod(sets_path("ca/server-a.test/ca.crt"), 0646);
	CHECK_HAS(sets_refusal(set, true), "ca.crt' can be written by others");
	chmod(sets_path("ca/server-a.test/ca.crt"), 0644);
	chmod(sets_path("ca/server-a.test"), 0777);
	CHECK_HAS(sets_refusal(set, true), "run: chmod 700 '");
	chmod(sets_path("ca/server-a.test"), 0755);
	tls_server_free(sets_server(set));
	CHECK_HAS(sets_refusal("nowhere", true), "cannot use the certificate directory");
	CHECK_HAS(sets_refusal("ca/ca/ca.crt", true), "is not a directory");
}

TEST(tls_files, a_key_of_another_user_is_refused)
{
	const char *set = "ca/server-a.test";

	NEEDS(geteuid() == 0, "root", "only root gives files away");
	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	CHECK(chown(sets_path("ca/server-a.test/server.key"), 4711, 0) == 0);
	CHECK_HAS(sets_refusal(set, true), "belongs to user 4711");
}

TEST(tls_files, files_that_do_not_fit_are_refused)
{
	const char *set = "ca/client";

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	certs_free(sets_make("two", &sets_plain));
	copy(sets_path("two/client/client.key"), sets_path("ca/client/client.key"));
	CHECK_HAS(sets_refusal(set, false), "is not the key of the certificate beside it");
	sets_write(sets_path("ca/client/client.key"), "none", 0600);
	CHECK_HAS(sets_refusal(set, false), "does not hold a private key");
	sets_write(sets_path("ca/client/client.crt"), "-----BEGIN CERTIFICATE-----\nMIIB\n", 0600);
	CHECK_HAS(sets_refusal(set, false), "does not hold a certificate");
	unlink(sets_path("ca/client/client.crt"));
	CHECK_HAS(sets_refusal(set, false), "cannot open");
	CHECK(mkfifo(sets_path("ca/client/client.crt"), 0600) == 0);
	CHECK_HAS(sets_refusal(set, false), "is not a file");
}

static void add_line(void *arg, const char *line)
{
	buf_addf(arg, "%s\n", line);
}

TEST(tls_files, client_tells_what_it_loads)
{
	struct buf got = {0}, want = {0};
	SSL_CTX *ctx = NULL;

	sets_begin();
	certs_free(sets_make("ca", &sets_plain));
	CHECK_INT(tls_client_new(sets_path("ca/client"), add_line, &got, &ctx, NULL), 0);
	const char *d = sets_path("ca/client");
	buf_addf(&want,
		 "Loading CA cert from: %s/ca.crt\nFound Key Usage extension\n"
		 "Loading client cert from: %s/client.crt\nFound Key Usage extension\n"
		 "Checking CRL file: %s/ca.crl\nLoading client key from: %s/client.key\n",
		 d, d, d, d);
	CHECK_STR(buf_str(&got), buf_str(&want));
	SSL_CTX_free(ctx);
	buf_release(&got);
	buf_release(&want);
}
