/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde certs: a certificate authority for a cluster, and what daemons and clients need from it. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "certs/certs.h"
#include "cli/command.h"
#include "net/tls/certificate.h"
#include "net/tls/files.h"

#define INSTALLED "/etc/sonde/certs" /* where the set of a host goes */
#define COPY_LINES_MAX 8
#define CLIENT_NAME_MAX 64

struct certs_cmd {
	const char *out, *clients, *revoke;
	unsigned days, key;
	bool password, renew, json;

	const char *const *hosts; /* words of the command line: lists of NAME[=OTHER…] */
	int nhosts;
	struct certs *certs;
	struct buf copy; /* lines that bring the sets to their hosts */
	struct buf names; /* of the hosts, for the last command */
	unsigned named; /* hosts and clients */
	unsigned made, kept, copies;
	bool client_made;
};

/* Calls for each item of a comma list. */
typedef int (*item_fn)(struct certs_cmd *o, const char *item, struct err *err);

static int each_item(struct certs_cmd *o, const char *list, item_fn fn, struct err *err)
{
	int r = 0;

	while (r >= 0 && *list) {
		size_t len = strcspn(list, ",");
		char *item = xstrndup(list, len);

		if (len)
			r = fn(o, item, err);
		free(item);
		list += len + (list[len] == ',');
	}
	return r < 0 ? r : 0;
}

static int each_host(struct certs_cmd *o, item_fn fn, struct err *err)
{
	int r = 0;

	for (int i = 0; r >= 0 && i < o->nhosts; i++)
		r = each_item(o, o->hosts[i], fn, err);
	return r;
}

/* --- checking the words --- */

static int check_host(struct certs_cmd *o, const char *item, struct err *err)
{
	int r = 0;

	o->named++;
	for (const char *at = item; r == 0;) {
		size_t len = strcspn(at, "=");
		char *host = xstrndup(at, len);

		if (!certs_is_host(host))
			r = err_set(
				err, -EINVAL,
				"'%s' is not a host: expected a name or an address, with others "
				"of the same host behind it as in node1=10.0.0.5",
				item);
		free(host);
		if (!at[len])
			break;
		at += len + 1;
	}
	return r;
}

static int check_client(struct certs_cmd *o, const char *item, struct err *err)
{
	const char *c = item;

	o->named++;
	while (isalnum((unsigned char)*c) || (c > item && *c && strchr("-_.@", *c)))
		c++;
	if (!*c && strlen(item) <= CLIENT_NAME_MAX)
		return 0;
	return err_set(
		err, -EINVAL,
		"'%s' is not a name for a client: expected letters, digits and -_.@, at most "
		"%d of them",
		item, CLIENT_NAME_MAX);
}

static int check_words(struct certs_cmd *o, struct err *err)
{
	int r = each_host(o, check_host, err);

	if (r == 0 && o->clients)
		r = each_item(o, o->clients, check_client, err);
	if (r == 0 && (o->nhosts || o->clients) && !o->named)
		r = err_set(err, -EINVAL, "the list of names is empty");
	if (r == 0 && o->revoke && (o->nhosts || o->clients || o->renew))
		r = err_set(err, -EINVAL, "--revoke goes alone: renew in a second step");
	return r;
}

/* --- making --- */

static void add_copy_lines(struct certs_cmd *o, const char *host, const char *set)
{
	bool v6 = strchr(host, ':') != NULL;

	if (*host == '*')
		host = "<host>";
	buf_addf(&o->names, "%s%s", o->names.len ? "," : "", host);
	if (o->copies++ >= COPY_LINES_MAX)
		return;
	buf_addf(&o->copy, "  ssh root@%s 'mkdir -p -m 700 " INSTALLED "'\n", host);
	buf_addf(&o->copy, "  scp -p %s/%s/* 'root@%s%s%s:" INSTALLED "/'\n", o->out, set,
		 v6 ? "[" : "", host, v6 ? "]" : "");
}

static void count_added(struct certs_cmd *o, int added)
{
	o->made += added > 0;
	o->kept += added == 0;
}

static int add_host(struct certs_cmd *o, const char *item, struct err *err)
{
	struct buf hosts = {0}, set = {0};
	char *name = xstrndup(item, strcspn(item, "="));

	for (const char *c = item; *c; c++)
		buf_add_char(&hosts, *c == '=' ? ',' : *c);
	if (strcmp(name, "localhost"))
		buf_add_str(&hosts, ",localhost");
	buf_add_str(&hosts, ",127.0.0.1,::1");
	certs_set_name(CERTS_SERVER, name, &set);
	int r = certs_add(o->certs, CERTS_SERVER, name, buf_str(&hosts), o->renew, err);
	if (r >= 0)
		count_added(o, r);
	if (r > 0)
		add_copy_lines(o, name, buf_str(&set));
	buf_release(&hosts);
	buf_release(&set);
	free(name);
	return r;
}

static int add_client(struct certs_cmd *o, const char *item, struct err *err)
{
	int r = certs_add(o->certs, CERTS_CLIENT, item, NULL, o->renew, err);

	if (r >= 0)
		count_added(o, r);
	o->client_made = o->client_made || r > 0;
	return r;
}

static int renew_set(void *arg, const char *set, struct err *err)
{
	struct certs_cmd *o = arg;
	struct buf name = {0};

	int r = certs_renew(o->certs, set, &name, err);
	if (r == 0)
		o->made++;
	if (r == 0 && !strncmp(set, "server-", 7))
		add_copy_lines(o, buf_str(&name), set);
	else if (r == 0)
		o->client_made = true;
	buf_release(&name);
	return r;
}

static void describe_made(struct certs_cmd *o, struct buf *text)
{
	const char *client = o->clients ? "<client>" : "client";

	if (certs_is_new(o->certs))
		buf_addf(text,
			 "Made a certificate authority in %s/ca. Keep it here and private: whoever "
			 "has its key can make certificates for everything.\n",
			 o->out);
	buf_addf(text, "Made %u certificate%s%s.", o->made, o->made == 1 ? "" : "s",
		 o->renew ? " with new keys; those they replace stay valid until they expire" : "");
	if (o->kept)
		buf_addf(text, " %u %s there already and kept; --renew makes new ones.", o->kept,
			 o->kept == 1 ? "was" : "were");
	buf_add_char(text, '\n');
	if (o->copy.len) {
		buf_addf(text, "\nCopy to each host what is its own:\n%s", buf_str(&o->copy));
		if (o->copies > COPY_LINES_MAX)
			buf_addf(text, "  … and %u more in the same way\n",
				 o->copies - COPY_LINES_MAX);
		buf_add_str(text,
			    "\nRun there (one that is running reads them at SIGHUP):\n"
			    "  sonde daemon --enable-ipc-monitor --certs-dir " INSTALLED "\n");
	}
	if (o->copy.len || o->client_made)
		buf_addf(text,
			 "\nThen run here:\n  sonde ctl --certs-dir %s/%s --hostname %s status\n",
			 o->out, client, o->names.len ? buf_str(&o->names) : "<host>");
}

static int make_sets(struct certs_cmd *o, struct buf *text, struct err *err)
{
	int r = each_host(o, add_host, err);

	if (r == 0 && o->clients)
		r = each_item(o, o->clients, add_client, err);
	else if (r == 0 && certs_is_new(o->certs))
		r = add_client(o, "client", err);
	if (r >= 0 && o->renew && !o->nhosts && !o->clients)
		r = certs_each_set(o->certs, renew_set, o, err);
	if (r >= 0)
		describe_made(o, text);
	return r;
}

/* --- revoking --- */

static int revoke_name(struct certs_cmd *o, const char *item, struct err *err)
{
	int r = certs_revoke(o->certs, item, err);

	if (r > 0)
		o->made += (unsigned)r;
	return r;
}

static int revoke_names(struct certs_cmd *o, struct buf *text, struct err *err)
{
	int r = each_item(o, o->revoke, revoke_name, err);

	if (r == 0 && !o->made)
		buf_add_str(text, "All of that was revoked before. ");
	else if (r == 0)
		buf_addf(text, "Revoked %u certificate%s. ", o->made, o->made == 1 ? "" : "s");
	if (r == 0)
		buf_addf(text,
			 "The list is in %s/ca/ca.crl and in every "
			 "set beside it; it takes effect where it has been copied to, as "
			 "'ca.crl', and the daemon has reloaded it (SIGHUP).\n",
			 o->out);
	return r;
}

/* --- listing --- */

static int add_issued(void *arg, const struct certs_issued *i, struct err *err)
{
	char until[TLS_TIME_BYTES];
	struct buf hosts = {0};

	(void)err;
	tls_hosts_of(i->x, ",", &hosts);
	tls_time_text(X509_get0_notAfter(i->x), until);
	const char *state = i->revoked						 ? "revoked"
			    : X509_cmp_time(X509_get0_notAfter(i->x), NULL) <= 0 ? "expired"
										 : "valid";
	json_array_append_new(arg, json_pack("{s:s, s:s, s:s, s:s}", "set", i->set, "state", state,
					     "not_after", until, "hosts", buf_str(&hosts)));
	buf_release(&hosts);
	return 0;
}

static void list_text(const json_t *list, struct buf *text)
{
	const json_t *v;
	size_t at;

	json_array_foreach(list, at, v)
	{
		const char *hosts = json_string_value(json_object_get(v, "hosts"));

		buf_addf(text, "%-24s %-8s until %s%s%s\n",
			 json_string_value(json_object_get(v, "set")),
			 json_string_value(json_object_get(v, "state")),
			 json_string_value(json_object_get(v, "not_after")), *hosts ? "  " : "",
			 hosts);
	}
}

static int list_issued(struct certs *c, bool json, struct buf *out, struct err *err)
{
	json_t *all = json_array();

	int r = certs_each_issued(c, add_issued, all, err);
	if (r == 0 && json) {
		char *dump = json_dumps(all, JSON_INDENT(2));

		buf_addf(out, "%s\n", dump ? dump : "[]");
		free(dump);
	} else if (r == 0) {
		list_text(all, out);
	}
	json_decref(all);
	return r;
}

/* --- the command --- */

static int ask_new_password(struct tls_passphrase *p, struct err *err)
{
	char again[TLS_PASSPHRASE_BYTES] = "";

	int r = tls_passphrase_ask("the new keys", p->text, sizeof(p->text), err);
	r = r ?: err_set(err, -EINVAL, "the password is empty");
	if (r < 0)
		return r;
	p->len = r;
	fputs("Once more. ", stderr);
	r = tls_passphrase_ask("the new keys", again, sizeof(again), err);
	if (r >= 0 && strcmp(again, p->text))
		r = err_set(err, -EINVAL, "the two passwords differ; nothing was made");
	explicit_bzero(again, sizeof(again));
	return r < 0 ? r : 0;
}

static int run_action(struct certs_cmd *o, struct buf *text, struct err *err)
{
	bool making = o->nhosts || o->clients || o->renew;
	struct certs_options options = {.days = o->days,
					.key = (enum certs_key)o->key,
					.encrypt = o->password,
					.passphrase = tls_passphrase_new()};

	int r = options.passphrase ? 0 : err_sys(err, -ENOMEM, "cannot keep a password");
	if (r == 0 && o->password)
		r = ask_new_password(options.passphrase, err);
	r = r ?: certs_open(o->out, &options, o->nhosts > 0 || o->clients, &o->certs, err);
	if (r == -ENOENT && !making && !o->revoke)
		err_set(err, r, "there is no CA in '%s'; name the hosts to make one for", o->out);
	if (r == 0)
		r = o->revoke ? revoke_names(o, text, err)
		    : making  ? make_sets(o, text, err)
			      : list_issued(o->certs, o->json, text, err);
	certs_free(o->certs);
	tls_passphrase_free(options.passphrase);
	return r;
}

static int certs_run(const struct command *cmd, int argc, char **argv)
{
	struct certs_cmd o = {.out = "sonde-certs", .days = CERTS_DEFAULT_DAYS};
	struct args a = {.target = &o};
	struct buf text = {0}, out = {0};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto done;
	o.hosts = (const char *const *)a.words;
	o.nhosts = a.nwords;
	if (check_words(&o, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_USAGE);
		goto done;
	}
	int r = fs_absolute(o.out, &out, &err);
	o.out = buf_str(&out);
	r = r ?: run_action(&o, &text, &err);
	status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : command_print(cmd, &text);
done:
	buf_release(&o.copy);
	buf_release(&o.names);
	buf_release(&text);
	buf_release(&out);
	args_release(&a);
	return status;
}

static const char *const key_types[] = {"rsa", "ec", NULL};

#define AT(field) offsetof(struct certs_cmd, field)
static const struct opt options[] = {
	OPTION_TEXT("out", "dir", AT(out), "sonde-certs",
		    "The directory of the certificate authority and all it issues.",
		    .group = "Options", .letters = "o"),
	OPTION_UINT(
		"days", "n", AT(days), 1, 36500, "825",
		"How long the certificates made now are valid. The authority itself lives for ten "
		"years, or for this time if it is longer."),
	OPTION_TEXT("clients", "name,…", AT(clients), "client",
		    "Make a certificate for each of these people or programs, so that each can be "
		    "revoked alone."),
	OPTION_CHOICE("key-type", "type", key_types, AT(key), "rsa",
		      "Kind of the keys: rsa (3072 bits, which every tool of today accepts) or ec "
		      "(P-256: made at once, handshakes cost less)."),
	OPTION_FLAG(
		"password", AT(password),
		"Encrypt the keys made now with a password, which is asked for on the terminal."),
	OPTION_FLAG(
		"renew", AT(renew),
		"Make new keys and certificates for the hosts and clients that are named; without "
		"names, for all that are in the directory."),
	OPTION_TEXT("revoke", "name,…", AT(revoke), NULL,
		    "Revoke all that was issued for these hosts or clients."),
	OPTION_FLAG("json", AT(json), "Print the list as JSON."),
	COMMAND_HELP_OPTION,
	OPT_END,
};

static const char *const usage[] = {
	"[options] <host>[=<other name>…],…", "[-o <dir>] --revoke <name>,…",
	"[-o <dir>] --renew [<host>,…] [--clients <name>,…]", "[-o <dir>] [--json]", NULL};

static const struct args_example examples[] = {
	{"certificates for two hosts and one client", "sonde certs -o certs node1,node2"},
	{"a host that is called by name and by address", "sonde certs -o certs node3=10.0.0.5"},
	{"one more client", "sonde certs -o certs --clients alice"},
	{"shut a client out", "sonde certs -o certs --revoke alice"},
	{"what was issued, and until when", "sonde certs -o certs"},
	{NULL, NULL},
};

const struct command cmd_certs = {
	.name = "certs",
	.spec = {.name = "sonde certs",
		 .summary = "make certificates for daemons and their clients",
		 .description =
			 "Makes a certificate authority and, for each host, a directory to give "
			 "to the daemon there as --certs-dir; for each client one to give to "
			 "'sonde ctl' or 'dyno'. Hosts that are named later come from the same "
			 "authority. Nothing that exists is overwritten unless --renew says so.\n\n"
			 "Each server certificate is also good for localhost. Without hosts or "
			 "options it lists what was issued.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 0,
		 .max_words = -1},
	.run = certs_run,
};
