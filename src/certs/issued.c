/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the CA of a certificate directory has issued, and what of it is revoked. */
#include <dirent.h>
#include <errno.h>
#include <openssl/bn.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "certs/certs_impl.h"

int certs_record(struct certs *c, const char *set, X509 *x, struct err *err)
{
	BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL);
	char *hex = n ? BN_bn2hex(n) : NULL;
	struct buf name = {0}, path = {0};

	buf_addf(&name, "%s-%s.crt", set, hex ? hex : "0");
	certs_path(c, "ca/issued", buf_str(&name), &path);
	int r = certs_write_certificate(buf_str(&path), x, err);
	OPENSSL_free(hex);
	BN_free(n);
	buf_release(&name);
	buf_release(&path);
	return r;
}

static int only_certificates(const struct dirent *e)
{
	size_t len = strlen(e->d_name);

	return len > 4 && !strcmp(e->d_name + len - 4, ".crt") && strrchr(e->d_name, '-');
}

static int tell_issued(struct certs *c, char *file, certs_issued_fn fn, void *arg, struct err *err)
{
	struct certs_issued i = {.set = file};
	X509_REVOKED *found = NULL;
	struct buf path = {0};

	int r = certs_read_certificate(certs_path(c, "ca/issued", file, &path), &i.x, err);
	if (r == 0) {
		*strrchr(file, '-') = '\0';
		i.revoked = X509_CRL_get0_by_cert(c->crl, &found, i.x) == 1;
		r = fn(arg, &i, err);
	}
	X509_free(i.x);
	buf_release(&path);
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
			r = tell_issued(c, list[i]->d_name, fn, arg, err);
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

static int collect(void *arg, const struct certs_issued *i, struct err *err)
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
	if (r == 0)
		r = certs_make_crl(&c->issuer, c->crl, s->found, s->n, &crl, err);
	if (r < 0)
		return r;
	X509_CRL_free(c->crl);
	c->crl = crl;
	r = certs_publish(c, err);
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
	int r = certs_each_issued(c, collect, &s, err);
	if (r == 0 && s.n == 0 && !s.revoked)
		r = err_set(err, -ENOENT, "nothing was issued for '%s'; there are: %s", name,
			    s.list.len ? buf_str(&s.list) : "none");
	else if (r == 0 && s.n == 0) /* a run that was interrupted may not have come so far */
		r = certs_publish(c, err);
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
