/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/tls/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ui.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/tls/certificate.h"

#define PROMPT "Please enter the certificate password: "

/* --- passphrases --- */

struct tls_passphrase *tls_passphrase_new(void)
{
	struct tls_passphrase *p =
		mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* Both may be forbidden here; then it is memory like any other. */
	(void)mlock(p, sizeof(*p));
	(void)madvise(p, sizeof(*p), MADV_DONTDUMP);
	return p;
}

void tls_passphrase_free(struct tls_passphrase *p)
{
	if (!p)
		return;
	OPENSSL_cleanse(p, sizeof(*p));
	munmap(p, sizeof(*p));
}

/* OpenSSL's dialogue uses /dev/tty, or stdin where there is none, and would read a stdin that is no
 * terminal just the same. */
static bool have_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return isatty(STDIN_FILENO);
	close(fd);
	return true;
}

int tls_passphrase_ask(const char *what, char *buf, int size, struct err *err)
{
	if (!have_terminal())
		return err_set(err, -ENOTTY, "there is no terminal to ask for the password of '%s'",
			       what);
	UI *ui = UI_new_method(UI_OpenSSL());
	int r = ui ? UI_add_input_string(ui, PROMPT, 0, buf, 0, size - 1) : -1;
	if (r >= 0)
		r = UI_process(ui);
	UI_free(ui);
	ERR_clear_error();
	if (r < 0)
		return err_set(err, -EINTR, "no password was given for '%s'", what);
	return (int)strlen(buf);
}

/* --- PEM --- */

/* What OpenSSL has to say, and forgets it: a later reader of its queue must not find it. */
static const char *last_reason(void)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	ERR_clear_error();
	return why ? why : "unknown error";
}

static void notify_user(const struct tls_source *src, const char *what, const char *path)
{
	struct buf line = {0};

	if (!src->notice)
		return;
	buf_addf(&line, "%s%s", what, path);
	src->notice(src->arg, buf_str(&line));
	buf_release(&line);
}

static const char *file_path(const struct tls_source *src, const char *name, struct buf *out)
{
	buf_clear(out);
	buf_addf(out, "%s/%s", src->dir, name);
	return buf_str(out);
}

int tls_files_certificates(const char *path, const struct buf *text, STACK_OF(X509) * *out,
			   struct err *err)
{
	BIO *bio = BIO_new_mem_buf(text->len ? text->data : "", (int)text->len);
	STACK_OF(X509) *list = sk_X509_new_null();
	X509 *x;

	while (bio && list && (x = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL)
		sk_X509_push(list, x);
	BIO_free(bio);
	/* Nothing more to find is how every file ends; anything else is damage. */
	if (sk_X509_num(list) > 0 && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) {
		ERR_clear_error();
		*out = list;
		return 0;
	}
	sk_X509_pop_free(list, X509_free);
	return err_set(err, -EINVAL, "'%s' does not hold a certificate in PEM format: %s", path,
		       last_reason());
}

int tls_files_crls(const char *path, const struct buf *text, STACK_OF(X509_CRL) * *out,
		   struct err *err)
{
	BIO *bio = BIO_new_mem_buf(text->len ? text->data : "", (int)text->len);
	STACK_OF(X509_CRL) *list = sk_X509_CRL_new_null();
	X509_CRL *crl;

	while (bio && list && (crl = PEM_read_bio_X509_CRL(bio, NULL, NULL, NULL)) != NULL)
		sk_X509_CRL_push(list, crl);
	BIO_free(bio);
	if (sk_X509_CRL_num(list) > 0 &&
	    ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) {
		ERR_clear_error();
		*out = list;
		return 0;
	}
	sk_X509_CRL_pop_free(list, X509_CRL_free);
	return err_set(err, -EINVAL, "'%s' does not hold a revocation list in PEM format: %s", path,
		       last_reason());
}

/* --- the private key --- */

/* While OpenSSL reads a key; it calls for the passphrase if there has to be one. */
struct unlock {
	const char *path;
	struct tls_passphrase *passphrase;
	bool called;
};

static int supply_passphrase(char *buf, int size, int writing, void *arg)
{
	struct unlock *u = arg;

	(void)writing;
	u->called = true;
	if (u->passphrase->len == 0 || u->passphrase->len > size)
		return -1;
	memcpy(buf, u->passphrase->text, (size_t)u->passphrase->len);
	return u->passphrase->len;
}

static EVP_PKEY *read_key(const struct buf *text, struct unlock *u)
{
	BIO *bio = BIO_new_mem_buf(text->len ? text->data : "", (int)text->len);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, supply_passphrase, u) : NULL;

	BIO_free(bio);
	return key;
}

/* As tls_files_read(); 1 if it was read and 0, without words, if there is no such file. */
static int read_if_there(const char *path, bool secret, struct buf *out, struct err *err)
{
	struct err why = {0};

	int r = tls_files_read(path, secret, out, &why);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && err)
		*err = why;
	return r < 0 ? r : 1;
}

/* The first line of key.pass: 1 with a passphrase, 0 if there is no such file. */
static int read_key_pass(const struct tls_source *src, struct err *err)
{
	struct tls_passphrase *p = src->passphrase;
	struct buf path = {0}, text = {0};

	int r = read_if_there(file_path(src, "key.pass", &path), true, &text, err);
	if (r > 0) {
		size_t len = strcspn(buf_str(&text), "\r\n");

		if (len == 0 || len >= sizeof(p->text)) {
			r = err_set(err, -EINVAL, "'%s' must hold a password of 1 to %zu bytes",
				    buf_str(&path), sizeof(p->text) - 1);
		} else {
			memcpy(p->text, text.data, len);
			p->len = (int)len;
		}
	}
	tls_files_forget(&text);
	buf_release(&path);
	return r;
}

/* The passphrase in hand does not do: gets another one. */
static int find_passphrase(const struct tls_source *src, struct unlock *u, struct err *err)
{
	struct tls_passphrase *p = src->passphrase;
	bool knew = p->len > 0;

	int r = read_key_pass(src, err);
	if (r != 0)
		return r;
	if (!src->may_ask)
		return err_set(err, -ENOKEY,
			       knew ? "the password given at the start does not open '%s'; put its "
				      "password into 'key.pass' beside it (mode 600), or restart"
				    : "'%s' is encrypted; put its password into 'key.pass' beside "
				      "it (mode 600), or restart",
			       u->path);
	p->len = 0;
	r = tls_passphrase_ask(u->path, p->text, sizeof(p->text), err);
	if (r == -ENOTTY)
		return err_set(
			err, r,
			"'%s' is encrypted and there is no terminal to ask for its password; "
			"put it into 'key.pass' beside it (mode 600)",
			u->path);
	if (r > 0)
		p->len = r;
	return r < 0 ? r : 1;
}

int tls_files_key(const struct tls_source *src, const char *path, struct buf *text, EVP_PKEY **out,
		  struct err *err)
{
	struct unlock u = {.path = path, .passphrase = src->passphrase};
	EVP_PKEY *key = read_key(text, &u);

	if (!key && u.called) {
		ERR_clear_error();
		int r = find_passphrase(src, &u, err);
		if (r < 0)
			return r;
		key = read_key(text, &u);
		if (!key) {
			ERR_clear_error();
			OPENSSL_cleanse(src->passphrase, sizeof(*src->passphrase));
			return err_set(err, -EKEYREJECTED, "wrong password for '%s'", path);
		}
	}
	if (!key)
		return err_set(err, -EINVAL, "'%s' does not hold a private key in PEM format: %s",
			       path, last_reason());
	ERR_clear_error();
	*out = key;
	return 0;
}

/* --- the directory --- */

static int load_certificates(const struct tls_source *src, const char *name, bool ca,
			     STACK_OF(X509) * *out, struct err *err)
{
	struct buf path_text = {0}, text = {0};
	const char *path = file_path(src, name, &path_text);

	notify_user(src, ca ? "Loading CA cert from: " : "Loading client cert from: ", path);
	int r = tls_files_read(path, false, &text, err);
	r = r ?: tls_files_certificates(path, &text, out, err);
	for (int i = 0; r == 0 && i < sk_X509_num(*out); i++) {
		r = tls_check_certificate(sk_X509_value(*out, i),
					  ca	  ? TLS_KIND_CA
					  : i > 0 ? TLS_KIND_INTERMEDIATE
						  : TLS_KIND_LEAF,
					  path, err);
		if (r == 0)
			notify_user(src, "Found Key Usage extension", "");
	}
	buf_release(&text);
	buf_release(&path_text);
	return r;
}

static int load_crl(const struct tls_source *src, const char *own_name, struct tls_files *f,
		    struct err *err)
{
	struct buf path_text = {0}, text = {0};
	const char *path = file_path(src, "ca.crl", &path_text);

	int r = read_if_there(path, false, &text, err);
	notify_user(src, r == 0 ? "CRL file does not exist: " : "Checking CRL file: ", path);
	if (r > 0)
		r = tls_files_crls(path, &text, &f->crls, err);
	for (int i = 0; r == 0 && i < sk_X509_CRL_num(f->crls); i++)
		r = tls_check_crl(sk_X509_CRL_value(f->crls, i), f->ca, path, err);
	if (r == 0 && tls_is_revoked(f->crls, sk_X509_value(f->chain, 0)))
		r = err_set(err, -EKEYREVOKED, "the certificate '%s/%s' is revoked by '%s'",
			    src->dir, own_name, path);
	buf_release(&text);
	buf_release(&path_text);
	return r;
}

static int load_key(const struct tls_source *src, const char *name, struct tls_files *f,
		    struct err *err)
{
	struct buf path_text = {0}, text = {0};
	const char *path = file_path(src, name, &path_text);

	notify_user(src, "Loading client key from: ", path);
	int r = tls_files_read(path, true, &text, err);
	r = r ?: tls_files_key(src, path, &text, &f->key, err);
	if (r == 0 && X509_check_private_key(sk_X509_value(f->chain, 0), f->key) != 1) {
		ERR_clear_error();
		r = err_set(err, -EINVAL, "'%s' is not the key of the certificate beside it", path);
	}
	tls_files_forget(&text);
	buf_release(&path_text);
	return r;
}

int tls_files_load(const struct tls_source *src, struct tls_files *out, struct err *err)
{
	bool server = src->role == TLS_ROLE_SERVER;
	const char *crt = server ? "server.crt" : "client.crt";
	struct tls_files f = {0};

	int r = strlen(src->dir) >= PATH_MAX
			? err_set(err, -ENAMETOOLONG,
				  "the certificate directory has too long a name")
			: tls_files_check_dir(src->dir, err);
	r = r ?: load_certificates(src, "ca.crt", true, &f.ca, err);
	r = r ?: load_certificates(src, crt, false, &f.chain, err);
	r = r ?: load_crl(src, crt, &f, err);
	if (r == 0)
		r = load_key(src, server ? "server.key" : "client.key", &f, err);
	if (r == 0)
		*out = f;
	else
		tls_files_release(&f);
	return r;
}

void tls_files_release(struct tls_files *f)
{
	sk_X509_pop_free(f->ca, X509_free);
	sk_X509_pop_free(f->chain, X509_free);
	sk_X509_CRL_pop_free(f->crls, X509_CRL_free);
	EVP_PKEY_free(f->key);
	*f = (struct tls_files){0};
}
