/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The sets of a certificate directory: made, renewed, and kept up to date with the CA's list. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "certs/certs_impl.h"
#include "net/tls/names.h"

#define NEW ".new"

static bool is_server(const char *set)
{
	return !strncmp(set, "server-", 7);
}

static const char *certificate_of(const char *set)
{
	return is_server(set) ? "server.crt" : "client.crt";
}

static bool is_set(const char *name)
{
	return is_server(name) || !strcmp(name, "client") || !strncmp(name, "client-", 7);
}

void certs_set_name(enum certs_kind kind, const char *name, struct buf *out)
{
	buf_add_str(out, kind == CERTS_SERVER ? "server-" : "client");
	if (kind == CERTS_CLIENT && strcmp(name, "client"))
		buf_add_char(out, '-');
	else if (kind == CERTS_CLIENT)
		return;
	/* Colons would make scp look for another host, asterisks the shell for files. */
	for (; *name; name++)
		buf_add_char(out, strchr(":*", *name) ? '_' : *name);
}

static int write_ca_files(struct certs *c, const char *set, struct err *err)
{
	struct buf path = {0};

	int r = certs_write_certificate(certs_path(c, set, "ca.crt", &path), c->issuer.ca, err);
	if (r == 0)
		r = certs_write_crl(certs_path(c, set, "ca.crl", &path), c->crl, err);
	buf_release(&path);
	return r;
}

/* Puts the file NAME.new of a set in the place of NAME. */
static int take_new(struct certs *c, const char *set, const char *name, struct err *err)
{
	struct buf from = {0}, to = {0};
	int r = 0;

	certs_path(c, set, name, &to);
	certs_path(c, set, name, &from);
	buf_add_str(&from, NEW);
	if (rename(buf_str(&from), buf_str(&to)) < 0)
		r = err_sys(err, -errno, "cannot write '%s'", buf_str(&to));
	buf_release(&from);
	buf_release(&to);
	return r;
}

/* A key and a certificate that do not belong together are worth nothing: both are written before
 * either is put in its place. */
static int write_pair(struct certs *c, const char *set, EVP_PKEY *key, X509 *x, struct err *err)
{
	bool server = is_server(set);
	struct buf path = {0};

	int r = certs_write_key(
		c, certs_path(c, set, server ? "server.key" NEW : "client.key" NEW, &path), key,
		err);
	if (r == 0)
		r = certs_write_certificate(
			certs_path(c, set, server ? "server.crt" NEW : "client.crt" NEW, &path), x,
			err);
	if (r == 0)
		r = take_new(c, set, server ? "server.key" : "client.key", err);
	if (r == 0)
		r = take_new(c, set, certificate_of(set), err);
	buf_release(&path);
	return r;
}

static int write_set(struct certs *c, const char *set, EVP_PKEY *key, X509 *x, struct err *err)
{
	struct buf path = {0};

	/* Known to the CA before anybody can use it. */
	int r = certs_record(c, set, x, err);
	if (r == 0)
		r = certs_mkdir(certs_path(c, set, NULL, &path), err);
	if (r == 0)
		r = write_ca_files(c, set, err);
	if (r == 0)
		r = write_pair(c, set, key, x, err);
	buf_release(&path);
	return r;
}

static int make_set(struct certs *c, const char *set, const char *name, const char *hosts,
		    struct err *err)
{
	struct certs_subject s = {.kind = is_server(set) ? CERTS_SERVER : CERTS_CLIENT,
				  .name = name,
				  .hosts = hosts,
				  .days = c->o.days};
	EVP_PKEY *key = NULL;
	X509 *x = NULL;

	int r = certs_unlock(c, err);
	if (r == 0)
		r = certs_make_key(c->o.key, &key, err);
	if (r == 0)
		r = certs_make(&s, key, &c->issuer, &x, err);
	if (r == 0)
		r = write_set(c, set, key, x, err);
	EVP_PKEY_free(key);
	X509_free(x);
	return r;
}

int certs_add(struct certs *c, enum certs_kind kind, const char *name, const char *hosts,
	      bool renew, struct err *err)
{
	struct buf set = {0}, dir = {0}, crt = {0};
	int r = 1;

	certs_set_name(kind, name, &set);
	certs_path(c, buf_str(&set), NULL, &dir);
	certs_path(c, buf_str(&set), certificate_of(buf_str(&set)), &crt);
	if (!renew && access(buf_str(&crt), F_OK) == 0)
		r = 0;
	else if (!renew && access(buf_str(&dir), F_OK) == 0)
		r = err_set(err, -EEXIST,
			    "'%s' is there but holds no certificate; move it away, or use --renew",
			    buf_str(&dir));
	if (r > 0) {
		r = make_set(c, buf_str(&set), name, hosts, err);
		r = r < 0 ? r : 1;
	}
	buf_release(&set);
	buf_release(&dir);
	buf_release(&crt);
	return r;
}

int certs_renew(struct certs *c, const char *set, struct buf *out_name, struct err *err)
{
	struct buf path = {0}, name = {0}, hosts = {0};
	X509 *old = NULL;

	certs_path(c, set, certificate_of(set), &path);
	int r = certs_read_certificate(buf_str(&path), &old, err);
	if (r == 0) {
		tls_name_of(old, &name);
		tls_hosts_of(old, ",", &hosts);
		r = make_set(c, set, buf_str(&name), buf_str(&hosts), err);
	}
	if (r == 0)
		buf_add(out_name, name.data, name.len);
	X509_free(old);
	buf_release(&path);
	buf_release(&name);
	buf_release(&hosts);
	return r;
}

static int only_sets(const struct dirent *e)
{
	return is_set(e->d_name);
}

int certs_each_set(struct certs *c, certs_set_fn fn, void *arg, struct err *err)
{
	struct dirent **list = NULL;
	struct buf path = {0};
	int r = 0;

	int n = scandir(c->dir, &list, only_sets, alphasort);
	if (n < 0)
		r = err_sys(err, -errno, "cannot list '%s'", c->dir);
	for (int i = 0; i < n; i++) {
		const char *set = list[i]->d_name;

		certs_path(c, set, certificate_of(set), &path);
		if (r >= 0 && access(buf_str(&path), F_OK) == 0)
			r = fn(arg, set, err);
		free(list[i]);
	}
	free(list);
	buf_release(&path);
	return r < 0 ? r : 0;
}

static int publish_set(void *arg, const char *set, struct err *err)
{
	return write_ca_files(arg, set, err);
}

int certs_publish(struct certs *c, struct err *err)
{
	struct buf path = {0};

	int r = certs_write_crl(certs_path(c, "ca", "ca.crl", &path), c->crl, err);
	if (r == 0)
		r = certs_each_set(c, publish_set, c, err);
	buf_release(&path);
	return r;
}
