/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Words that say nothing about who runs a job: those of our own sentences, of frameworks, of vendors. */
#ifndef SONDE_REPORT_REDACT_REDACT_WORDS_H
#define SONDE_REPORT_REDACT_REDACT_WORDS_H

#include <stdbool.h>
#include <stddef.h>

bool redact_is_word(const char *text, size_t len); /* of answers */
bool redact_is_unit(const char *text, size_t len); /* "MiB/s", "and/or" */
bool redact_is_label(const char *text, size_t len); /* part of an owner */
bool redact_is_parameter(const char *text, size_t len); /* of a module of PyTorch */
bool redact_is_vendor_kernel(const char *text, size_t len);

#endif
