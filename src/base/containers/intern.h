/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Texts that live as long as the program, each once: equal texts have equal pointers. Any thread.
 */
#ifndef SONDE_BASE_CONTAINERS_INTERN_H
#define SONDE_BASE_CONTAINERS_INTERN_H

#include <stddef.h>

/* The text with NUL behind it. */
const char *intern(const char *text, size_t len);

#endif
