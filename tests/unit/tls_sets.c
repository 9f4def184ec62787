/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "tls_sets.h"

#include <ftw.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "test.h"

static char dir[] = "/tmp/sonde_tls_XXXXXX";

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st, (void)kind, (void)ftw;
	return remove(path);
}

static void remove_dir(void)
{
	nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *sets_path(const char *name)
{
	static char path[8][256];
	static int next;
	char *p = path[next++ % 8];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

void sets_begin(void)
{
	CHECK(mkdtemp(dir) != NULL);
	atexit(remove_dir);
}

const struct certs_options sets_plain = {.days = 30, .key = CERTS_EC};

struct certs *sets_make(const char *name, const struct certs_options *o)
{
	struct certs *c = NULL;
	struct err err = {0};

	if (certs_open(sets_path(name), o, true, &c, &err) < 0 ||
	    certs_add(c, CERTS_SERVER, "a.test", "a.test,localhost,127.0.0.1,::1", false, &err) !=
		    1 ||
	    certs_add(c, CERTS_CLIENT, "client", NULL, false, &err) != 1) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return c;
}

struct tls_server *sets_server(const char *set)
{
	struct tls_server *t = NULL;
	struct err err = {0};

	if (tls_server_new(sets_path(set), &t, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return t;
}

SSL_CTX *sets_client(const char *set)
{
	SSL_CTX *ctx = NULL;
	struct err err = {0};

	if (tls_client_new(sets_path(set), NULL, NULL, &ctx, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return ctx;
}

const char *sets_refusal(const char *set, bool server)
{
	static struct err err;
	struct tls_server *t = NULL;
	SSL_CTX *ctx = NULL;

	err = (struct err){0};
	int r = server ? tls_server_new(sets_path(set), &t, &err)
		       : tls_client_new(sets_path(set), NULL, NULL, &ctx, &err);
	CHECK(r < 0);
	CHECK_INT(err.code, r);
	CHECK_INT(ERR_peek_error(), 0);
	return err.text;
}

void sets_write(const char *path, const char *text, mode_t mode)
{
	struct buf b = {0};

	buf_add_str(&b, text);
	CHECK(fs_write_atomic(path, &b, mode, NULL) == 0);
	buf_release(&b);
}

/* --- odd certificates --- */

const struct odd odd_sound = {.constraints = "CA:FALSE",
			      .usage = "digitalSignature",
			      .version = 2,
			      .from_days = -1,
			      .to_days = 1};

static void add_ext(X509 *x, int nid, const char *value)
{
	X509V3_CTX c;

	if (!value)
		return;
	X509V3_set_ctx(&c, x, x, NULL, NULL, 0);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &c, nid, value);
	CHECK(e && X509_add_ext(x, e, -1) == 1);
	X509_EXTENSION_free(e);
}

EVP_PKEY *odd_key(int rsa_bits)
{
	EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_id(EVP_PKEY_RSA, NULL);
	EVP_PKEY *key = NULL;

	if (rsa_bits)
		CHECK(EVP_PKEY_keygen_init(c) == 1 &&
		      EVP_PKEY_CTX_set_rsa_keygen_bits(c, rsa_bits) == 1 &&
		      EVP_PKEY_keygen(c, &key) == 1);
	else
		CHECK(certs_make_key(CERTS_EC, &key, NULL) == 0);
	EVP_PKEY_CTX_free(c);
	return key;
}

X509 *odd_make(const struct odd *o, EVP_PKEY *key, const struct certs_issuer *by)
{
	X509 *x = X509_new();

	X509_set_version(x, o->version);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 42);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
				   (const unsigned char *)"odd\x1b[31m", -1, -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(by ? by->ca : x));
	X509_time_adj_ex(X509_getm_notBefore(x), o->from_days, 0, NULL);
	X509_time_adj_ex(X509_getm_notAfter(x), o->to_days, 0, NULL);
	X509_set_pubkey(x, key);
	add_ext(x, NID_basic_constraints, o->constraints);
	add_ext(x, NID_key_usage, o->usage);
	CHECK(X509_sign(x, by ? by->key : key, o->md ? o->md : EVP_sha256()) > 0);
	return x;
}

struct certs_issuer sets_issuer(const char *ca)
{
	struct certs_issuer by = {0};
	char path[64];

	snprintf(path, sizeof(path), "%s/ca/ca.crt", ca);
	FILE *f = fopen(sets_path(path), "r");
	by.ca = PEM_read_X509(f, NULL, NULL, NULL);
	fclose(f);
	snprintf(path, sizeof(path), "%s/ca/ca.key", ca);
	f = fopen(sets_path(path), "r");
	by.key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
	fclose(f);
	CHECK(by.ca && by.key);
	return by;
}

void sets_issuer_release(struct certs_issuer *by)
{
	X509_free(by->ca);
	EVP_PKEY_free(by->key);
}
