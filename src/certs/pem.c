/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Files of a certificate directory: how they are written and read. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "certs/certs_impl.h"
#include "net/tls/files.h"

const char *certs_path(const struct certs *c, const char *a, const char *b, struct buf *out)
{
	buf_clear(out);
	buf_addf(out, "%s/%s%s%s", c->dir, a, b ? "/" : "", b ? b : "");
	return buf_str(out);
}

int certs_mkdir(const char *path, struct err *err)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make directory '%s'", path);
	return 0;
}

/* Writes what is in the memory of `bio` and frees it. */
static int write_bio(const char *path, BIO *bio, bool ok, struct err *err)
{
	struct buf text = {0};
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
	BIO_free(bio);
	return r;
}

int certs_write_certificate(const char *path, X509 *x, struct err *err)
{
	BIO *bio = BIO_new(BIO_s_mem());

	return write_bio(path, bio, bio && PEM_write_bio_X509(bio, x) == 1, err);
}

int certs_write_crl(const char *path, X509_CRL *crl, struct err *err)
{
	BIO *bio = BIO_new(BIO_s_mem());

	return write_bio(path, bio, bio && PEM_write_bio_X509_CRL(bio, crl) == 1, err);
}

/* PKCS#8, the one form that every reader knows. */
int certs_write_key(const struct certs *c, const char *path, EVP_PKEY *key, struct err *err)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	const EVP_CIPHER *cipher = c->o.encrypt ? EVP_aes_256_cbc() : NULL;
	struct tls_passphrase *p = c->o.passphrase;

	bool ok = bio && PEM_write_bio_PKCS8PrivateKey(bio, key, cipher, cipher ? p->text : NULL,
						       cipher ? p->len : 0, NULL, NULL) == 1;
	return write_bio(path, bio, ok, err);
}

int certs_read_certificate(const char *path, X509 **out, struct err *err)
{
	STACK_OF(X509) *list = NULL;
	struct buf text = {0};

	int r = tls_files_read(path, false, &text, err);
	if (r == 0)
		r = tls_files_certificates(path, &text, &list, err);
	if (r == 0)
		*out = sk_X509_shift(list);
	sk_X509_pop_free(list, X509_free);
	buf_release(&text);
	return r;
}
