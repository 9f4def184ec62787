/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the guest reads from its surroundings, without the heap: environment, /proc, paths. Values
 * of the environment are taken when the library is loaded (or at the first event, if that comes
 * even earlier), because the job may change its environment from any thread later.
 */
#ifndef SONDE_GUEST_RUNTIME_ENV_H
#define SONDE_GUEST_RUNTIME_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The directory of the recording; empty: this process is not to be recorded. */
const char *guest_session_dir(void);

/*
 * Another place for it, below `output` (absolute; NULL: the current directory's), as long as nobody
 * but this process has named it and it has not been made. False: it stays where it is.
 */
bool guest_move_session(const char *output);

/* The same for a session of the monitor (SESSION_MONITOR_PREFIX); `dir` is absolute. */
void guest_name_monitor_session(const char *dir);
/* The process whose monitor named the session; 0: it is no such one. */
uint32_t guest_monitor_pid(void);
/* As before it was named. True: this call did it. */
bool guest_unname_monitor_session(uint32_t of);

/*
 * For a process that goes on in another session (guest_move()): a name that no directory has yet,
 * below `output` (NULL: the current directory's), for the monitor or for a recording. It counts
 * when it is taken; "": there is none.
 */
const char *guest_name_next_session(const char *output, bool monitor);
const char *guest_next_session(void);
void guest_take_next_session(bool monitor);

/* Was this library there from the beginning of the process, or is a recording inherited? Else it
 * was loaded by the Python package, and waits to be asked. */
bool guest_is_expected(void);

/* Expected, or asked by now: there are no events before. */
bool guest_has_begun(void);
/* It is asked; true: it has been before. */
bool guest_note_begun(void);

/* The pid of the process that the launcher became; 0 without a launcher. */
uint32_t guest_root_pid(void);

/* Was the directory made by a launcher (and not named by the first process of the tree)? */
bool guest_is_launched(void);

/* Path of the sonde program, found beside this library; empty if it is not there. */
const char *guest_program(void);

/* The value of a variable, cut to size - 1; empty if unset. */
void guest_env_copy(const char *name, char *out, size_t size);

/* Up to size bytes of a file; the rest of out is zero. Returns the number read. */
size_t guest_read_file(const char *path, char *out, size_t size);

/* The inode of our pid namespace: where our number counts; 0: not known. */
uint64_t guest_pid_namespace(void);

/* How many filters of system calls this process has. */
uint32_t guest_filters(void);
/* The most memory (RSS) that this program has had so far; 0: not known. */
uint32_t guest_peak_kib(void);

/* Has it ended; whether its parent has noticed or not? Of our own pid namespace. */
bool guest_is_gone(uint32_t pid);

/* Its parent, field 4; 0: not known. */
uint32_t guest_parent(uint32_t pid);

/* dir + "/" + name; -1 when it does not fit. */
int guest_join_path(char *out, size_t size, const char *dir, const char *name);

/* Name of a process' arena in dir; NULL when it does not fit. */
char *guest_arena_name(char *out, size_t size, const char *dir, uint32_t pid, uint64_t pid_ns,
		       uint64_t image_ns);

/* mkdir -p with mode 0750. */
int guest_mkdirs(const char *path);

#endif
