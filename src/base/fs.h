/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Files and paths of our own processes. All failures are negative errno with words in err.
 *
 * Paths come from outside: from a request, a variable of the job, a file. Other users may own
 * directories on the way and plant links, FIFOs, hard links and ready-made files there. So nothing
 * outside this module creates, changes or deletes files (`make check-files`); what is here works
 * relative to directory descriptors, by these rules:
 *
 *  - A link is followed only if it belongs to root or to us; the last name is never followed.
 *  - A directory in which every user may create or replace names is refused: o+w without the sticky
 *    bit, or with it if the directory's owner is neither root nor us. Directories of a group are
 *    fine.
 *  - An existing file is written only if it is a regular file of ours with one name.
 *  - In a directory of another user, new files and directories have rights for us alone, and no
 *    ACL.
 */
#ifndef SONDE_BASE_FS_H
#define SONDE_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "base/err.h"

#define FS_DIR_MODE 0750
#define FS_TIMESTAMP_BYTES 15

/* Makes the directory and its missing parents (mode 0750 less umask); fine if it is there. */
int fs_mkdirs(const char *path, struct err *err);
/* Makes the last directory of the path alone: -EEXIST if there is anything of that name. */
int fs_mkdir(const char *path, mode_t mode, struct err *err);

/*
 * A descriptor of a regular file, close-on-exec. O_RDONLY: links are followed, since readers get
 * only what they may read; descriptors of the process (/dev/stdin, /dev/fd/N) may be pipes. Else by the
 * rules above; flags as for open(): with O_EXCL only a new file will do. Never waits, whatever lies
 * there.
 */
int fs_open(const char *path, int flags, mode_t mode, struct err *err);
/* The descriptor of a directory that passes the rules above for writing into it. */
int fs_open_dir(const char *path, struct err *err);

/*
 * For output to what a person has named, such as -o of a command: O_WRONLY, and links of the
 * person's own are followed to the end. What is there and no regular file is written as it is:
 * descriptors of the process (/dev/stdout, `>(command)`), devices, FIFOs that somebody reads.
 */
int fs_open_output(const char *path, int flags, mode_t mode, struct err *err);
/* Whether there is such a thing, which cannot be replaced by a new file. */
bool fs_is_stream(const char *path);
/* The path without links, that of the last name included: each link is followed by the rules above.
 * The file need not be there. Adds it to out. */
int fs_resolve(const char *path, struct buf *out, struct err *err);

/* Whether the path, of which the end need not be there, leads to `base` or below it, over no link
 * behind base. Both absolute; base without links, as fs_resolve() gives it. */
bool fs_is_below(const char *path, const char *base);

/* Appends words for people to a file. Also where everybody may replace it: what is lost are words.
 */
int fs_leave_note(const char *path, const struct buf *text, mode_t mode, struct err *err);

int fs_unlink(const char *path, struct err *err);
/* A second name for the file: -EEXIST if there is one already. */
int fs_link(const char *from, const char *to, struct err *err);
/* Both names by the rules above. Replaces a file at `to`. */
int fs_rename(const char *from, const char *to, struct err *err);
/* The directory and everything below it that is ours and on its file system; links are removed, not
 * followed. -EPERM if the directory is not ours; -ENOTEMPTY if something in it stays. */
int fs_remove_tree(const char *path, struct err *err);
int fs_rmdir(const char *path, struct err *err);

/* Appends the whole file to out; -EFBIG, and nothing added, if it has more than cap bytes. Opened
 * as fs_open() does. */
int fs_read_file(const char *path, size_t cap, struct buf *out, struct err *err);

/*
 * Writes everything, at the offset or (FS_HERE) where the file stands. *out_done, which may be
 * NULL: the bytes that are written, also after an error.
 */
#define FS_HERE (-1)
int fs_write_all(int fd, const void *data, size_t n, int64_t offset, size_t *out_done);

/* Bytes read, fewer than n only at the end of the file; or a negative errno. */
ssize_t fs_read_at(int fd, void *to, size_t n, uint64_t offset);

/* Replaces the file in one step: readers see the old content or the new. Mode less umask. */
int fs_write_atomic(const char *path, struct buf *content, mode_t mode, struct err *err);

/* Absolute, `.`, `..`, doubled and last slashes removed by spelling alone: no link is resolved.
 * Adds it to out. Fails only if the current directory is unknown. */
int fs_absolute(const char *path, struct buf *out, struct err *err);

/* Whether files there are kept by this kernel, so that a shared mapping survives the death of every
 * process: 1 for ext2/3/4, xfs, tmpfs, overlayfs; 0 for network, user-space and all other ones. */
int fs_is_local(const char *path, struct err *err);
/* The name of a statfs() f_type, such as "ext4" or "nfs"; "0x…" is not spelt out: NULL. */
const char *fs_type_name(unsigned long f_type);
bool fs_type_is_local(unsigned long f_type);

/*
 * Has anybody else this file open for writing, or mapped? `fd` is the only descriptor that we have
 * for it, O_RDWR; what we have mapped was mapped by it. 1, 0, or a negative errno where nobody can
 * tell: -ENOTSUP on overlayfs, which loses sight of mappings.
 */
int fs_is_used_elsewhere(int fd);

/* Local time now as YYYYmmddHHMMSS. */
void fs_timestamp(char out[FS_TIMESTAMP_BYTES]);

#endif
