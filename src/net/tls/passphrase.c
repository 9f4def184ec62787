/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/tls/passphrase.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ui.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROMPT "Please enter the certificate password: "

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
