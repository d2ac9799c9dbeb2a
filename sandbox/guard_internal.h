/* What the parts of the guard share. Nothing here is for other files. */
#ifndef HW_GUARD_INTERNAL_H
#define HW_GUARD_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard.h"

#define HW_PATH_MAX 4096
#define HW_SYMLINKS 40 /* the kernel's own bound */

/* Numbers and flags newer than the oldest headers we build with. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1UL << 1)
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
#define HW_STATX_MNT_ID 0x1000U
#define HW_SYS_FCHMODAT2 452

/* One system call, answering -errno. Sound after a bare clone(2): no cancellation, no locks. */
static inline long hw_ret(long r) { return r == -1 ? -(long)errno : r; }
#define SYS(...) hw_ret(syscall(__VA_ARGS__))

static inline void hw_close(int fd)
{
	if (fd >= 0)
		SYS(SYS_close, fd);
}

/* A task that has sent a notification. dir is its /proc directory: once the task is gone, every use of dir fails. */
struct hw_task {
	int tid, tgid, dir;
	unsigned umask;
	int umask_known;
};

/* One notification being served. */
struct hw_call {
	struct seccomp_notif *n;
	struct hw_task *task;
};

/* Where a path leads: the directory that holds its last component, and that component (trailing slashes kept). */
struct hw_place {
	int dir; /* closed by hw_place_drop */
	int proc; /* dir lies in procfs */
	int direct; /* the kernel's own walk of the very string gave dir */
	uint64_t dev, ino;
	char *name; /* inside buf */
	char buf[2 * HW_PATH_MAX + 8];
};

/* A result that is not sent by the caller: somebody else answers the notification. */
#define HW_DEFERRED (-100000L)
/* A result that is a descriptor to inject: HW_FD + descriptor. */
#define HW_FD 0x40000000L
/* The same for a descriptor of which a copy may linger here a moment longer. */
#define HW_FD_SHARED 0x50000000L

/* What the broker holds while it serves. */
struct hw_broker {
	int listener, proc, root;
	int pid, uid, gid;
	uint64_t root_ino, root_mnt, proc_dev;
	unsigned umask; /* the broker's own, now */
	int n;
	struct {
		uint64_t dev, ino;
		const char *name; /* not ended by NUL */
		size_t len;
		int below; /* the entry for a directory that may be made under this name; 0: none may */
		int fd; /* holds the directory of such an entry; -1 before it is made, and for any other */
	} entry[HW_GUARD_MAX];
};
extern struct hw_broker hw_broker;

/* guard_filter.c */
int hw_guard_listen(int names_only);
int hw_guard_confine(const struct hw_guard *g);

/* guard_broker.c */
void hw_guard_serve(int listener) __attribute__((noreturn));
int hw_guard_valid(const struct seccomp_notif *n);
void hw_guard_answer(const struct seccomp_notif *n, long result);

/* guard_task.c */
long hw_task_find(struct hw_call *c);
void hw_task_umask_changes(const struct seccomp_notif *n);
long hw_task_umask(struct hw_call *c);
long hw_task_base(struct hw_call *c, int dirfd);
long hw_task_fd(struct hw_call *c, int fd);
long hw_task_signalled(struct hw_call *c);
long hw_task_tty(struct hw_call *c);
long hw_task_read(struct hw_call *c, uint64_t addr, void *buf, size_t len);
long hw_task_string(struct hw_call *c, uint64_t addr, char *buf);
char *hw_decimal(char *to, unsigned v);

/* guard_path.c */
long hw_place_find(struct hw_call *c, int base, struct hw_place *p);
long hw_place_follow(struct hw_call *c, struct hw_place *p);
void hw_place_drop(struct hw_place *p);
int hw_place_protected(const struct hw_place *p);
int hw_object_protected(int fd);
int hw_place_makeable(const struct hw_place *p);
void hw_place_made(const struct hw_place *p);

/* guard_open.c */
long hw_guard_open(struct hw_call *c, int dirfd, uint64_t path, int flags, unsigned mode);

/* guard_call.c */
long hw_guard_dispatch(struct hw_call *c);
long hw_place_arg(struct hw_call *c, int dirfd, uint64_t path, struct hw_place *p);

#endif
