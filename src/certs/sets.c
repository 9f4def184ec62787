/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The sets of a certificate directory: made, renewed, revoked, and kept up to date with the CA's
 * list; and what the CA has issued. */
#include <dirent.h>
#include <errno.h>
#include <openssl/bn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "certs/certs_impl.h"
#include "net/tls/certificate.h"

#define NEW ".new"

static bool is_server(const char *set)
{
	return !strncmp(set, "server-", 7);
}

static const char *certificate_of(const char *set)
{
	return is_server(set) ? "server.crt" : "client.crt";
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
	int r = certs_write_certificate(c, set, "ca.crt", c->issuer.ca, err);

	return r == 0 ? certs_write_crl(c, set, "ca.crl", err) : r;
}

/* Puts the file NAME.new of a set in the place of NAME. */
static int use_new_file(struct certs *c, const char *set, const char *name, struct err *err)
{
	struct buf from = {0}, to = {0};

	certs_path(c, set, name, &to);
	certs_path(c, set, name, &from);
	buf_add_str(&from, NEW);
	int r = fs_rename(buf_str(&from), buf_str(&to), err);
	buf_release(&from);
	buf_release(&to);
	return r;
}

/* A key and a certificate that do not belong together are worth nothing: both are written before
 * either is put in its place. */
static int write_pair(struct certs *c, const char *set, EVP_PKEY *key, X509 *x, struct err *err)
{
	bool server = is_server(set);
	int r = certs_write_key(c, set, server ? "server.key" NEW : "client.key" NEW, key, err);

	if (r == 0)
		r = certs_write_certificate(c, set, server ? "server.crt" NEW : "client.crt" NEW, x,
					    err);
	if (r == 0)
		r = use_new_file(c, set, server ? "server.key" : "client.key", err);
	r = r ?: use_new_file(c, set, certificate_of(set), err);
	return r;
}

/* Keeps the certificate of a set in ca/issued. */
static int record_issued(struct certs *c, const char *set, X509 *x, struct err *err)
{
	BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL);
	char *hex = n ? BN_bn2hex(n) : NULL;
	char *name = xasprintf("%s-%s.crt", set, hex ? hex : "0");
	int r = certs_write_certificate(c, "ca/issued", name, x, err);

	OPENSSL_free(hex);
	BN_free(n);
	free(name);
	return r;
}

static int write_set(struct certs *c, const char *set, EVP_PKEY *key, X509 *x, struct err *err)
{
	/* Known to the CA before anybody can use it. */
	int r = record_issued(c, set, x, err);

	r = r ?: certs_mkdir(c, set, err);
	r = r ?: write_ca_files(c, set, err);
	r = r ?: write_pair(c, set, key, x, err);
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
	r = r ?: certs_make_key(c->o.key, &key, err);
	r = r ?: certs_make(&s, key, &c->issuer, &x, err);
	r = r ?: write_set(c, set, key, x, err);
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
	struct buf name = {0}, hosts = {0};
	X509 *old = NULL;

	int r = certs_read_certificate(c, set, certificate_of(set), &old, err);
	if (r == 0) {
		tls_name_of(old, &name);
		tls_hosts_of(old, ",", &hosts);
		r = make_set(c, set, buf_str(&name), buf_str(&hosts), err);
	}
	if (r == 0)
		buf_add(out_name, name.data, name.len);
	X509_free(old);
	buf_release(&name);
	buf_release(&hosts);
	return r;
}

static int only_sets(const struct dirent *e)
{
	const char *name = e->d_name;

	return is_server(name) || !strcmp(name, "client") || !strncmp(name, "client-", 7);
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

/* Writes ca.crt and ca.crl into every set that is here. */
static int publish_sets(struct certs *c, struct err *err)
{
	int r = certs_write_crl(c, "ca", "ca.crl", err);

	return r == 0 ? certs_each_set(c, publish_set, c, err) : r;
}

/* --- what the CA has issued --- */

static int only_certificates(const struct dirent *e)
{
	size_t len = strlen(e->d_name);

	return len > 4 && !strcmp(e->d_name + len - 4, ".crt") && strrchr(e->d_name, '-');
}

static int visit_issued(struct certs *c, char *file, certs_issued_fn fn, void *arg, struct err *err)
{
	struct certs_issued i = {.set = file};
	X509_REVOKED *found = NULL;
	int r = certs_read_certificate(c, "ca/issued", file, &i.x, err);

	if (r == 0) {
		*strrchr(file, '-') = '\0';
		i.revoked = X509_CRL_get0_by_cert(c->crl, &found, i.x) == 1;
		r = fn(arg, &i, err);
	}
	X509_free(i.x);
	return r;
}

int certs_each_issued(struct certs *c, certs_issued_fn fn, void *arg, struct err *err)
{
	struct dirent **list = NULL;
	struct buf path = {0};
	int r = 0;

	int n = scandir(certs_path(c, "ca/issued", NULL, &path), &list, only_certificates,
			alphasort);
	if (n < 0)
		r = err_sys(err, -errno, "cannot list '%s'", buf_str(&path));
	for (int i = 0; i < n; i++) {
		if (r >= 0)
			r = visit_issued(c, list[i]->d_name, fn, arg, err);
		free(list[i]);
	}
	free(list);
	buf_release(&path);
	return r < 0 ? r : 0;
}

/* --- revoking --- */

struct search {
	const char *as[3]; /* the sets that the name may mean */
	X509 **found;
	size_t n, cap;
	size_t revoked; /* that the name means, too, but are on the list already */
	char *known; /* the last set seen, to name each once */
	struct buf list;
};

static int collect_issued(void *arg, const struct certs_issued *i, struct err *err)
{
	struct search *s = arg;

	(void)err;
	if (!s->known || strcmp(s->known, i->set)) {
		free(s->known);
		s->known = xstrdup(i->set);
		if (s->list.len < 200)
			buf_addf(&s->list, "%s%s", s->list.len ? ", " : "", i->set);
	}
	for (int k = 0; k < 3; k++) {
		if (strcmp(s->as[k], i->set))
			continue;
		if (i->revoked) {
			s->revoked++;
			break;
		}
		s->found = xgrow(s->found, &s->cap, s->n + 1, sizeof(*s->found));
		X509_up_ref(i->x);
		s->found[s->n++] = i->x;
		break;
	}
	return 0;
}

static int revoke_found(struct certs *c, const struct search *s, struct err *err)
{
	X509_CRL *crl = NULL;

	int r = certs_unlock(c, err);
	r = r ?: certs_make_crl(&c->issuer, c->crl, s->found, s->n, &crl, err);
	if (r < 0)
		return r;
	X509_CRL_free(c->crl);
	c->crl = crl;
	r = publish_sets(c, err);
	return r < 0 ? r : (int)s->n;
}

int certs_revoke(struct certs *c, const char *name, struct err *err)
{
	struct buf server = {0}, client = {0};
	struct search s = {0};

	certs_set_name(CERTS_SERVER, name, &server);
	certs_set_name(CERTS_CLIENT, name, &client);
	s.as[0] = name;
	s.as[1] = buf_str(&server);
	s.as[2] = buf_str(&client);
	int r = certs_each_issued(c, collect_issued, &s, err);
	if (r == 0 && s.n == 0 && !s.revoked)
		r = err_set(err, -ENOENT, "nothing was issued for '%s'; there are: %s", name,
			    s.list.len ? buf_str(&s.list) : "none");
	else if (r == 0 && s.n == 0) /* a run that was interrupted may not have come so far */
		r = publish_sets(c, err);
	else if (r == 0)
		r = revoke_found(c, &s, err);
	for (size_t i = 0; i < s.n; i++)
		X509_free(s.found[i]);
	free(s.found);
	free(s.known);
	buf_release(&s.list);
	buf_release(&server);
	buf_release(&client);
	return r;
}
