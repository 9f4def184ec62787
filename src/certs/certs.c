/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The authority of a certificate directory, made once and opened afterwards, and its files. */
#include "certs/certs.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "certs/certs_impl.h"
#include "net/tls/certificate.h"
#include "net/tls/files.h"

#define CA_DAYS 3650

/* --- files --- */

const char *certs_path(const struct certs *c, const char *a, const char *b, struct buf *out)
{
	buf_clear(out);
	buf_addf(out, "%s/%s%s%s", c->dir, a, b ? "/" : "", b ? b : "");
	return buf_str(out);
}

int certs_mkdir(const struct certs *c, const char *name, struct err *err)
{
	struct buf path = {0};
	struct err why = {0};
	int r = fs_mkdir(certs_path(c, name, NULL, &path), 0700, &why);

	if (r == -EEXIST)
		r = 0;
	else if (r < 0 && err)
		*err = why;
	buf_release(&path);
	return r;
}

/* Writes what is in the memory of `bio` to dir/A/B and frees it. */
static int write_bio(const struct certs *c, const char *a, const char *b, BIO *bio, bool ok,
		     struct err *err)
{
	struct buf text = {0}, path_text = {0};
	const char *path = certs_path(c, a, b, &path_text);
	char *data = NULL;
	int r;

	if (ok) {
		long len = BIO_get_mem_data(bio, &data);

		buf_add(&text, data, (size_t)len);
		r = fs_write_atomic(path, &text, 0600, err);
	} else {
		const char *why = ERR_reason_error_string(ERR_peek_last_error());

		r = err_set(err, -EIO, "cannot write '%s': %s", path, why ? why : "unknown error");
		ERR_clear_error();
	}
	tls_files_forget(&text);
	buf_release(&path_text);
	BIO_free(bio);
	return r;
}

int certs_write_certificate(const struct certs *c, const char *a, const char *b, X509 *x,
			    struct err *err)
{
	BIO *bio = BIO_new(BIO_s_mem());

	return write_bio(c, a, b, bio, bio && PEM_write_bio_X509(bio, x) == 1, err);
}

int certs_write_crl(const struct certs *c, const char *a, const char *b, struct err *err)
{
	BIO *bio = BIO_new(BIO_s_mem());

	return write_bio(c, a, b, bio, bio && PEM_write_bio_X509_CRL(bio, c->crl) == 1, err);
}

/* PKCS#8, the one form that every reader knows. */
int certs_write_key(const struct certs *c, const char *a, const char *b, EVP_PKEY *key,
		    struct err *err)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	const EVP_CIPHER *cipher = c->o.encrypt ? EVP_aes_256_cbc() : NULL;
	struct tls_passphrase *p = c->o.passphrase;

	bool ok = bio && PEM_write_bio_PKCS8PrivateKey(bio, key, cipher, cipher ? p->text : NULL,
						       cipher ? p->len : 0, NULL, NULL) == 1;
	return write_bio(c, a, b, bio, ok, err);
}

int certs_read_certificate(const struct certs *c, const char *a, const char *b, X509 **out,
			   struct err *err)
{
	struct buf text = {0}, path_text = {0};
	const char *path = certs_path(c, a, b, &path_text);
	STACK_OF(X509) *list = NULL;

	int r = tls_files_read(path, false, &text, err);
	r = r ?: tls_files_certificates(path, &text, &list, err);
	if (r == 0)
		*out = sk_X509_shift(list);
	sk_X509_pop_free(list, X509_free);
	buf_release(&text);
	buf_release(&path_text);
	return r;
}

/* --- the CA --- */

bool certs_is_new(const struct certs *c)
{
	return c->made;
}

static int write_ca(struct certs *c, struct err *err)
{
	int r = certs_mkdir(c, "ca", err);

	r = r ?: certs_mkdir(c, "ca/issued", err);
	r = r ?: certs_write_key(c, "ca", "ca.key", c->issuer.key, err);
	r = r ?: certs_write_crl(c, "ca", "ca.crl", err);
	/* Last: where this file is, the CA is whole. */
	r = r ?: certs_write_certificate(c, "ca", "ca.crt", c->issuer.ca, err);
	return r;
}

static int make_ca(struct certs *c, struct err *err)
{
	struct certs_subject s = {.kind = CERTS_CA,
				  .days = c->o.days > CA_DAYS ? c->o.days : CA_DAYS};
	unsigned char id[4];

	/* A name of its own: two CAs of one name give puzzling errors. */
	if (RAND_bytes(id, sizeof(id)) != 1)
		return err_set(err, -EIO, "cannot make a CA: no random numbers");
	char *name = xasprintf("sonde CA %02x%02x%02x%02x", id[0], id[1], id[2], id[3]);
	s.name = name;
	int r = certs_make_key(c->o.key, &c->issuer.key, err);
	r = r ?: certs_make(&s, c->issuer.key, NULL, &c->issuer.ca, err);
	r = r ?: certs_make_crl(&c->issuer, NULL, NULL, 0, &c->crl, err);
	r = r ?: write_ca(c, err);
	c->made = r == 0;
	free(name);
	return r;
}

int certs_unlock(struct certs *c, struct err *err)
{
	struct tls_source src = {.passphrase = c->o.passphrase, .may_ask = true};
	struct buf dir = {0}, path_text = {0}, text = {0};
	const char *path = certs_path(c, "ca", "ca.key", &path_text);

	if (c->issuer.key) {
		buf_release(&path_text);
		return 0;
	}
	src.dir = certs_path(c, "ca", NULL, &dir);
	int r = tls_files_read(path, true, &text, err);
	r = r ?: tls_files_key(&src, path, &text, &c->issuer.key, err);
	if (r == 0 && X509_check_private_key(c->issuer.ca, c->issuer.key) != 1)
		r = err_set(err, -EINVAL, "'%s' is not the key of the 'ca.crt' beside it", path);
	tls_files_forget(&text);
	buf_release(&path_text);
	buf_release(&dir);
	return r;
}

static int load_ca_crl(struct certs *c, struct err *err)
{
	struct buf path_text = {0}, text = {0};
	const char *path = certs_path(c, "ca", "ca.crl", &path_text);
	STACK_OF(X509_CRL) *list = NULL;

	int r = tls_files_read(path, false, &text, err);
	r = r ?: tls_files_crls(path, &text, &list, err);
	if (r == 0)
		c->crl = sk_X509_CRL_shift(list);
	sk_X509_CRL_pop_free(list, X509_CRL_free);
	buf_release(&text);
	buf_release(&path_text);
	return r;
}

static int load_ca(struct certs *c, struct err *err)
{
	struct buf dir = {0}, path = {0};

	certs_path(c, "ca", NULL, &dir);
	certs_path(c, "ca", "ca.crt", &path);
	int r = tls_files_check_dir(buf_str(&dir), err);
	r = r ?: certs_read_certificate(c, "ca", "ca.crt", &c->issuer.ca, err);
	r = r ?: tls_check_certificate(c->issuer.ca, TLS_KIND_CA, buf_str(&path), err);
	r = r ?: load_ca_crl(c, err);
	buf_release(&dir);
	buf_release(&path);
	return r;
}

static int lock_dir(struct certs *c, struct err *err)
{
	c->lock = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->lock < 0)
		return err_sys(err, -errno, "cannot open '%s'", c->dir);
	/* A file system without locks is used without them. */
	if (flock(c->lock, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return err_set(err, -EBUSY, "another 'sonde certs' is working in '%s'", c->dir);
	return 0;
}

static int make_dir(const char *dir, struct err *err)
{
	char *parent = xstrdup(dir);
	int r = fs_mkdirs(dirname(parent), err);

	free(parent);
	return r < 0 ? r : fs_mkdir(dir, 0700, err);
}

static int open_dir(struct certs *c, bool create, struct err *err)
{
	struct buf ca = {0}, crt = {0};
	int r = 0;

	certs_path(c, "ca", NULL, &ca);
	certs_path(c, "ca", "ca.crt", &crt);
	bool there = access(buf_str(&crt), F_OK) == 0;
	if (!there && !create)
		r = err_set(err, -ENOENT, "there is no CA in '%s'", c->dir);
	else if (!there && access(buf_str(&ca), F_OK) == 0)
		r = err_set(err, -EEXIST, "'%s' is there but has no 'ca.crt'; move it away first",
			    buf_str(&ca));
	else if (!there && access(c->dir, F_OK) < 0)
		r = make_dir(c->dir, err);
	r = r ?: tls_files_check_dir(c->dir, err);
	r = r ?: lock_dir(c, err);
	if (r == 0)
		r = there ? load_ca(c, err) : make_ca(c, err);
	buf_release(&ca);
	buf_release(&crt);
	return r;
}

int certs_open(const char *dir, const struct certs_options *o, bool create, struct certs **out,
	       struct err *err)
{
	struct certs *c = xcalloc(1, sizeof(*c));

	c->dir = xstrdup(dir);
	c->lock = -1;
	c->o = *o;
	int r = open_dir(c, create, err);
	if (r < 0)
		certs_free(c);
	else
		*out = c;
	return r;
}

void certs_free(struct certs *c)
{
	if (!c)
		return;
	if (c->lock >= 0)
		close(c->lock);
	X509_free(c->issuer.ca);
	EVP_PKEY_free(c->issuer.key);
	X509_CRL_free(c->crl);
	free(c->dir);
	free(c);
}
