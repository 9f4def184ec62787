/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where `recover` reads, writes and deletes. A recording may come from anybody, and what it says
 * about other places (outputDir, ring_dir) is a claim:
 *
 *  - Root has the rights of the recording's owner alone, from the first byte on.
 *  - Files are changed in the recording's directory, and dumps written in the directory that holds
 *    it. Another place for dumps has to be named by the person.
 *  - Rings on another file system are taken if their directory is our own and says that it belongs
 *    to this recording (recorder/start.c). Otherwise the person has to name it.
 */
#ifndef SONDE_RECORDER_RECOVER_PLACES_H
#define SONDE_RECORDER_RECOVER_PLACES_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "recorder/recover.h"
#include "wire/control_page.h"

/* Zero-initialise and release. Paths are without links. */
struct recover_places {
	struct buf dir; /* of the recording */
	struct buf output; /* dumps are written below */
	struct buf rings;
	bool rings_elsewhere; /* in a directory that a launcher made for them */
};

/* All but the rings. Adds to report what the person should know. */
int places_open(struct recover_places *p, const char *dir, const struct recover_options *options,
		struct buf *report, struct err *err);
/* When the control page is known. */
int places_choose_rings(struct recover_places *p, const struct control_page *page,
			const struct recover_options *options, struct err *err);
void places_release(struct recover_places *p);

#endif
