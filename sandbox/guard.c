/* Starting and arming the creation guard; see guard.h. */
#include "guard_internal.h"

#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* PROC_USER_INIT_INO of the kernel. */
#define INITIAL_USERNS_INO 0xEFFFFFFDU

/* Sends one result, with a descriptor unless fd is negative. */
static long say(int sock, int result, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { &result, sizeof(result) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd < 0) /* the only way the confined broker may send */
		return SYS(SYS_write, sock, &result, sizeof(result));
	memset(&control, 0, sizeof(control));
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
	msg.msg_control = &control;
	msg.msg_controllen = sizeof(control);
	return SYS(SYS_sendmsg, sock, &msg, MSG_NOSIGNAL);
}

/* Receives one result; *fd is -1 unless a descriptor came along. */
static int hear(int sock, int *fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	int result = -EPIPE;
	struct iovec iov = { &result, sizeof(result) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	long r;

	*fd = -1;
	do
		r = SYS(SYS_recvmsg, sock, &msg, MSG_CMSG_CLOEXEC);
	while (r == -EINTR);
	if (r < 0)
		return (int)r;
	if (r != (long)sizeof(result))
		return -EPIPE;
	if (msg.msg_controllen >= CMSG_LEN(sizeof(int)) && control.head.cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(&control.head), sizeof(int));
	return result;
}

/* Whether a capability here would be one over the whole machine. */
static int initial_userns(void)
{
	struct statx st;

	return SYS(SYS_statx, AT_FDCWD, "/proc/self/ns/user", 0L, STATX_INO, &st) < 0 || st.stx_ino == INITIAL_USERNS_INO;
}

/* Drops every capability but those in the mask of the first 32. */
static long keep_capabilities(uint32_t mask)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct cap[2];
	long r;

	SYS(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0L, 0L, 0L);
	memset(cap, 0, sizeof(cap));
	r = SYS(SYS_capget, &head, cap);
	if (r < 0)
		return r;
	cap[0].permitted &= mask;
	cap[0].effective = cap[0].permitted;
	cap[0].inheritable = cap[1].permitted = cap[1].effective = cap[1].inheritable = 0;
	return SYS(SYS_capset, &head, cap);
}

/* Makes the broker a poor target: not traceable, out of reach of the terminal, with at most one capability. */
static long harden(int sock)
{
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} ignore = { .handler = (void *)1 };
	struct {
		uint64_t soft, hard;
	} files;
	uint64_t all = ~0ULL;
	long r;

	SYS(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8L);
	SYS(SYS_rt_sigaction, SIGCHLD, &ignore, NULL, 8L); /* workers leave no zombies */
	r = SYS(SYS_prctl, PR_SET_DUMPABLE, 0L, 0L, 0L, 0L);
	if (r >= 0)
		r = SYS(SYS_setpgid, 0L, 0L);
	SYS(SYS_prctl, PR_SET_NAME, "hw-guard", 0L, 0L, 0L);
	if (r >= 0)
		r = keep_capabilities(initial_userns() ? 0 : 1U << CAP_SYS_PTRACE);
	/* Descriptors are kept for the protected parents and for the tasks seen lately. */
	if (r >= 0)
		r = SYS(SYS_prlimit64, 0L, RLIMIT_NOFILE, NULL, &files);
	files.soft = files.hard;
	if (r >= 0)
		r = SYS(SYS_prlimit64, 0L, RLIMIT_NOFILE, &files, NULL);
	/* The agent's pipes must not stay open for as long as the broker runs. */
	if (r >= 0 && sock > 0)
		r = SYS(SYS_close_range, 0L, sock - 1, 0L);
	if (r >= 0)
		r = SYS(SYS_close_range, sock + 1, ~0U, 0L);
	return r;
}

static long look_around(void)
{
	struct hw_broker *b = &hw_broker;
	struct statx st;
	struct statfs fs;
	char self[16], want[16];
	long r = SYS(SYS_openat, AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (r < 0)
		return r;
	b->proc = (int)r;
	b->pid = (int)SYS(SYS_getpid);
	b->uid = (int)SYS(SYS_geteuid);
	b->gid = (int)SYS(SYS_getegid);
	/* It has to be a procfs, and that of our own pid namespace. */
	r = SYS(SYS_fstatfs, b->proc, &fs);
	if (r < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return -ENOENT;
	memset(self, 0, sizeof(self));
	hw_decimal(want, (unsigned)b->pid);
	r = SYS(SYS_readlinkat, b->proc, "self", self, sizeof(self) - 1);
	if (r < 0 || strcmp(self, want) != 0)
		return -ENOENT;
	r = SYS(SYS_statx, b->proc, "", AT_EMPTY_PATH, STATX_INO, &st);
	if (r < 0)
		return r;
	b->proc_dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
	r = SYS(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r < 0)
		return r;
	b->root = (int)r;
	r = SYS(SYS_statx, b->root, "", AT_EMPTY_PATH, STATX_INO | HW_STATX_MNT_ID, &st);
	b->root_ino = st.stx_ino;
	b->root_mnt = st.stx_mnt_id;
	b->umask = (unsigned)SYS(SYS_umask, 0L);
	SYS(SYS_umask, b->umask);
	return r < 0 ? r : SYS(SYS_fchdir, b->root);
}

static int is_name(const char *s, size_t n)
{
	return n && !memchr(s, '/', n) && !(s[0] == '.' && (n == 1 || (n == 2 && s[1] == '.')));
}

/*
 * Opens the parent of an entry. While it is missing, its own last component
 * becomes the name.
 */
static long open_parent(const char *parent, const char **name, size_t *len)
{
	static char path[HW_PATH_MAX];
	size_t n = strlen(parent);
	long fd;

	if (parent[0] != '/' || !is_name(*name, *len))
		return -EINVAL;
	if (n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, parent, n + 1);
	for (;;) {
		fd = SYS(SYS_openat, AT_FDCWD, n ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if ((fd != -ENOENT && fd != -ENOTDIR) || !n)
			return fd;
		while (n && path[n - 1] == '/')
			n--;
		*len = 0;
		while (n && path[n - 1] != '/')
			n--, ++*len;
		*name = parent + n;
		if (!is_name(*name, *len))
			return -EINVAL;
		while (n && path[n - 1] == '/')
			n--;
		path[n] = 0;
	}
}

/*
 * Remembers one entry. Its parent stays open, so that the inode number is not
 * given to another directory; the strings are the caller's, copied by fork.
 */
static long protect(const struct hw_guard_entry *e)
{
	struct hw_broker *b = &hw_broker;
	int last = b->n;
	const char *name = e->name;
	size_t len = strlen(name);
	struct statx st;
	long fd = open_parent(e->parent, &name, &len);

	if (fd < 0)
		return fd;
	if (SYS(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &st) < 0)
		return -EIO;
	b->entry[b->n].dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
	b->entry[b->n].ino = st.stx_ino;
	b->entry[b->n].name = name;
	b->entry[b->n].len = len;
	for (int i = 0; i < b->n; i++)
		if (b->entry[i].dev == b->entry[b->n].dev && b->entry[i].ino == b->entry[b->n].ino) {
			hw_close((int)fd); /* held open already */
			break;
		}
	b->entry[b->n].below = 0;
	b->entry[b->n++].fd = -1;
	/* A place for each directory that may be made. Without an inode number it fits nothing. */
	for (const char *rest = e->rest; rest && *rest; rest += len + (rest[len] == '/')) {
		len = strcspn(rest, "/");
		if (!is_name(rest, len))
			return -EINVAL;
		if (b->n == HW_GUARD_MAX)
			return -E2BIG;
		memset(&b->entry[b->n], 0, sizeof(b->entry[b->n]));
		b->entry[b->n].name = rest;
		b->entry[b->n].len = len;
		b->entry[b->n].fd = -1;
		b->entry[last].below = b->n;
		last = b->n++;
	}
	return 0;
}

/*
 * Tries on another process of the same kind what serving will need: Yama, a
 * Landlock domain without /proc or a missing system call show here, before the
 * agent runs.
 */
static long rehearse(int pid, const char *probe)
{
	struct seccomp_notif n = { .pid = (unsigned)pid };
	struct hw_call c = { .n = &n };
	static char copy[HW_PATH_MAX];
	long r = hw_task_find(&c);

	if (r >= 0)
		r = hw_task_umask(&c);
	if (r >= 0)
		r = hw_task_string(&c, (uintptr_t)probe, copy);
	if (r >= 0)
		r = hw_task_base(&c, AT_FDCWD);
	if (r >= 0) {
		hw_close((int)r);
		r = 0;
	}
	return r;
}

static void broker(const struct hw_guard *g, int sock, int parent)
{
	static const char probe[] = "rehearsal";
	uint64_t flags = SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP;
	int listener = -1;
	long r = harden(sock);

	if (r >= 0)
		r = look_around();
	for (int i = 0; r >= 0 && i < g->n; i++)
		r = hw_broker.n == HW_GUARD_MAX ? -E2BIG : protect(&g->entries[i]);
	if (r >= 0)
		r = hear(sock, &listener);
	if (r >= 0)
		r = rehearse(parent, probe);
	if (r >= 0)
		r = hw_guard_confine(g);
	say(sock, r < 0 ? (int)r : 0, -1);
	if (r >= 0)
		r = hear(sock, &listener);
	if (r < 0 || listener < 0)
		SYS(SYS_exit_group, 1);
	/* Wakes the other side on the same processor; missing before 6.6. */
	SYS(SYS_ioctl, listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
	say(sock, 0, -1);
	hw_close(sock);
	hw_guard_serve(listener);
}

/* A plain fork that signals nobody when the child ends. */
static long fork_quietly(void) { return SYS(SYS_clone, 0L, 0L, 0L, 0L, 0L); }

/* Between the agent and the broker: it is what the broker rehearses on, and leaves once told. */
static void middle(const struct hw_guard *g, int ours, int theirs)
{
	int fd, self = (int)SYS(SYS_getpid);
	long r;

	r = fork_quietly();
	if (r == 0)
		broker(g, theirs, self);
	hw_close(theirs);
	/* Like the agent after its execve(2). */
	if (r > 0)
		r = keep_capabilities(0);
	if (r >= 0)
		r = SYS(SYS_prctl, PR_SET_DUMPABLE, 1L, 0L, 0L, 0L);
	if (r >= 0)
		r = say(ours, 0, -1);
	if (r >= 0)
		r = hear(ours, &fd);
	SYS(SYS_exit_group, r < 0 && r > -256 ? (int)-r : 0);
}

int hw_guard_start(const struct hw_guard *g, int *sock)
{
	struct seccomp_notif_sizes sizes;
	int pair[2], status = 0;
	long pid, r = SYS(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0L, &sizes);

	if (r < 0)
		return -ENOSYS;
	if (sizes.seccomp_notif > 1024 || sizes.seccomp_notif_resp > 256)
		return -ENOSYS;
	if (g->n > HW_GUARD_MAX)
		return -E2BIG;
	r = SYS(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0L, pair);
	if (r < 0)
		return (int)r;
	pid = fork_quietly();
	if (pid == 0)
		middle(g, pair[0], pair[1]);
	hw_close(pair[1]);
	r = pid;
	while (pid > 0 && (r = SYS(SYS_wait4, pid, &status, (long)__WALL, NULL)) == -EINTR)
		;
	if (r >= 0 && status)
		r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EPIPE;
	if (r < 0) {
		hw_close(pair[0]);
		return (int)r;
	}
	*sock = pair[0];
	return 0;
}

int hw_guard_arm(int sock, const struct hw_guard *g)
{
	int fd, listener = hw_guard_listen(g->names_only);
	long r = listener;

	if (r >= 0)
		r = say(sock, 0, listener);
	if (r >= 0)
		r = hear(sock, &fd);
	hw_close(listener);
	hw_close(sock);
	return r < 0 ? (int)r : 0;
}
