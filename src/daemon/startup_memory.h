/* SPDX-License-Identifier: MulanPSL-2.0 */
#ifndef SONDE_DAEMON_STARTUP_MEMORY_H
#define SONDE_DAEMON_STARTUP_MEMORY_H

/* Gives back what only starting took: free heap, and pages of the program and its libraries that
 * were read once (relocation, symbol tables). What is needed again comes back from the page cache.
 */
void release_startup_memory(void);

#endif
