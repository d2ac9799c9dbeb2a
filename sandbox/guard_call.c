/* The calls that create names, and those that make a set-group-id directory, carried out for the caller. */
#include "guard_internal.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define AT_LINK_FLAGS (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW)

/*
 * Finds the place of the path in p->buf, read from the caller before. A
 * relative one starts at base. What was read by number, memory and descriptors,
 * was the caller's if the caller still waits now.
 */
static long place_from(struct hw_call *c, long base, struct hw_place *p)
{
	long r = hw_place_find(c, (int)base, p);

	if (r >= 0 && !hw_guard_valid(c->n)) {
		hw_place_drop(p);
		r = -EINTR;
	}
	return r;
}

/* The same, starting at the caller's dirfd. */
static long place_of(struct hw_call *c, int dirfd, struct hw_place *p)
{
	long base = -1, r;

	p->dir = -1;
	if (p->buf[0] && p->buf[0] != '/') {
		base = hw_task_base(c, dirfd);
		if (base < 0)
			return base;
	}
	r = place_from(c, base, p);
	hw_close((int)base);
	return r;
}

/* Finds the place that a path argument means. */
long hw_place_arg(struct hw_call *c, int dirfd, uint64_t path, struct hw_place *p)
{
	long r = hw_task_string(c, path, p->buf);

	p->dir = -1;
	return r < 0 ? r : place_of(c, dirfd, p);
}

static mode_t type_at(const struct hw_place *p)
{
	struct statx st;

	return SYS(SYS_statx, p->dir, p->name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0 ? 0 : st.stx_mode & S_IFMT;
}

/* The answer for a name that may not be created here, 0 for any other. */
static long refusal(const struct hw_place *p)
{
	if (!hw_place_protected(p))
		return 0;
	return type_at(p) ? -EEXIST : -EROFS;
}

/* Finds where a name is to be made, and takes on the caller's umask. */
static long new_place(struct hw_call *c, int dirfd, uint64_t path, struct hw_place *p)
{
	long r = hw_place_arg(c, dirfd, path, p);

	if (r >= 0)
		r = refusal(p);
	if (r >= 0)
		r = hw_task_umask(c);
	return r;
}

static long do_mkdir(struct hw_call *c, int dirfd, uint64_t path, unsigned mode)
{
	static struct hw_place p;
	long r = hw_place_arg(c, dirfd, path, &p);
	int makeable = r >= 0 && hw_place_makeable(&p);

	if (r >= 0 && !makeable)
		r = refusal(&p);
	if (r >= 0)
		r = hw_task_umask(c);
	if (r >= 0)
		r = SYS(SYS_mkdirat, p.dir, p.name, mode);
	/* One that somebody outside made counts from when the agent asks for it. */
	if (makeable && (r >= 0 || r == -EEXIST))
		hw_place_made(&p);
	hw_place_drop(&p);
	return r;
}

static long do_mknod(struct hw_call *c, int dirfd, uint64_t path, unsigned mode, unsigned dev)
{
	static struct hw_place p;
	long r = new_place(c, dirfd, path, &p);

	if (r >= 0)
		r = SYS(SYS_mknodat, p.dir, p.name, mode, dev);
	hw_place_drop(&p);
	return r;
}

static long do_symlink(struct hw_call *c, uint64_t target, int dirfd, uint64_t path)
{
	static struct hw_place p;
	static char text[HW_PATH_MAX];
	long r = hw_task_string(c, target, text);

	if (r < 0)
		return r;
	r = new_place(c, dirfd, path, &p);
	if (r >= 0)
		r = SYS(SYS_symlinkat, text, p.dir, p.name);
	hw_place_drop(&p);
	return r;
}

static long do_rename(struct hw_call *c, int olddir, uint64_t oldpath, int newdir, uint64_t newpath, unsigned flags)
{
	static struct hw_place from, to;
	long r = hw_place_arg(c, olddir, oldpath, &from);

	if (r < 0)
		return r;
	r = hw_place_arg(c, newdir, newpath, &to);
	if (r >= 0 && (hw_place_protected(&from) || hw_place_protected(&to)))
		r = -EROFS;
	if (r >= 0)
		r = SYS(SYS_renameat2, from.dir, from.name, to.dir, to.name, flags);
	hw_place_drop(&from);
	hw_place_drop(&to);
	return r;
}

/* Links what p leads to. */
static long link_from(struct hw_call *c, struct hw_place *p, int flags, const struct hw_place *to)
{
	long r;

	for (int links = 0; flags & AT_SYMLINK_FOLLOW; links++) {
		/* procfs leads to the object itself: an O_TMPFILE gets its name this way. */
		if (p->proc || type_at(p) != S_IFLNK)
			break;
		r = links == HW_SYMLINKS ? -ELOOP : hw_place_follow(c, p);
		if (r < 0)
			return r;
	}
	/* A second name would be a way to write to it. */
	if (hw_place_protected(p))
		return -EROFS;
	return SYS(SYS_linkat, p->dir, p->name, to->dir, to->name, p->proc ? flags & AT_SYMLINK_FOLLOW : 0);
}

/* Links a descriptor of the caller, through the caller's own list of them. */
static long link_fd(struct hw_call *c, int fd, const struct hw_place *to)
{
	char name[24] = "fd/";

	if (fd == AT_FDCWD)
		return -EPERM; /* a directory */
	if (fd < 0)
		return -EBADF;
	hw_decimal(name + 3, (unsigned)fd);
	return SYS(SYS_linkat, c->task->dir, name, to->dir, to->name, AT_SYMLINK_FOLLOW);
}

static long do_link(struct hw_call *c, int olddir, uint64_t oldpath, int newdir, uint64_t newpath, int flags)
{
	static struct hw_place from, to;
	long r;

	if (flags & ~AT_LINK_FLAGS)
		return -EINVAL;
	r = hw_task_string(c, oldpath, from.buf);
	if (r < 0)
		return r;
	from.dir = -1;
	r = new_place(c, newdir, newpath, &to);
	if (r >= 0 && !from.buf[0] && (flags & AT_EMPTY_PATH)) {
		r = link_fd(c, olddir, &to);
	} else if (r >= 0) {
		r = place_of(c, olddir, &from);
		if (r >= 0)
			r = link_from(c, &from, flags, &to);
	}
	hw_place_drop(&from);
	hw_place_drop(&to);
	return r;
}

/*
 * Gives a directory its mode. A file does not become set-group-id: outside it
 * would give whoever executes it the caller's group.
 */
static long chmod_directory(int fd, unsigned mode)
{
	char name[24] = "self/fd/";
	struct statx st;
	long r = SYS(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &st);

	if (r < 0)
		return r;
	if ((st.stx_mode & S_IFMT) != S_IFDIR)
		return -EPERM;
	hw_decimal(name + 8, (unsigned)fd);
	return SYS(SYS_fchmodat, hw_broker.proc, name, mode);
}

/* A directory by a descriptor of the caller. */
static long do_fchmod(struct hw_call *c, int fd, unsigned mode)
{
	long own = hw_task_fd(c, fd), r;

	if (own < 0)
		return own;
	r = hw_guard_valid(c->n) ? chmod_directory((int)own, mode) : -EINTR;
	hw_close((int)own);
	return r;
}

/* Opens what p leads to, for looking at it alone. */
static long handle_of(struct hw_call *c, struct hw_place *p, int follow)
{
	for (int links = 0; follow && !p->proc && type_at(p) == S_IFLNK; links++) {
		long r = links == HW_SYMLINKS ? -ELOOP : hw_place_follow(c, p);

		if (r < 0)
			return r;
	}
	return SYS(SYS_openat, p->dir, p->name[0] ? p->name : ".", O_PATH | O_CLOEXEC | (p->proc && follow ? 0 : O_NOFOLLOW));
}

static long do_chmod(struct hw_call *c, int dirfd, uint64_t path, unsigned mode, int flags)
{
	static struct hw_place p;
	long fd, r;

	if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
		return -EINVAL;
	p.dir = -1;
	r = hw_task_string(c, path, p.buf);
	if (r < 0)
		return r;
	if (!p.buf[0] && (flags & AT_EMPTY_PATH))
		return do_fchmod(c, dirfd, mode);
	r = place_of(c, dirfd, &p);
	fd = r < 0 ? r : handle_of(c, &p, !(flags & AT_SYMLINK_NOFOLLOW));
	r = fd < 0 ? fd : chmod_directory((int)fd, mode);
	hw_close((int)fd);
	hw_place_drop(&p);
	return r;
}

/*
 * Binds a socket to the name that place means; sa holds the caller's spelling.
 *
 * getsockname(2) must later give that spelling, so the kernel has to walk the
 * very string again. That is sound because nobody else can create or rename
 * anything meanwhile: every such call of the agent waits for this process. Only
 * a path through procfs, which means something else here, is bound by its last
 * component.
 */
static long bind_at(int sock, long base, const struct hw_place *p, const struct sockaddr_un *sa, socklen_t len)
{
	struct sockaddr_un last = { .sun_family = AF_UNIX };
	const size_t head = offsetof(struct sockaddr_un, sun_path);
	size_t n = strlen(p->name);
	long r = SYS(SYS_fchdir, p->direct ? base : (long)p->dir);

	if (r < 0)
		return r;
	if (!p->direct) {
		memcpy(last.sun_path, p->name, n);
		sa = &last;
		len = (socklen_t)(head + n);
	}
	r = SYS(SYS_bind, sock, sa, len);
	SYS(SYS_fchdir, hw_broker.root);
	return r;
}

static long bind_path(struct hw_call *c, int sock, const struct sockaddr_un *sa, socklen_t len)
{
	static struct hw_place p;
	const size_t head = offsetof(struct sockaddr_un, sun_path);
	/* Taken once: another thread of the caller may change its directory at any time. */
	long base = hw_task_base(c, AT_FDCWD), r;

	if (base < 0)
		return base;
	memcpy(p.buf, sa->sun_path, len - head);
	p.buf[len - head] = 0;
	r = place_from(c, base, &p);
	if (r >= 0 && hw_place_protected(&p))
		r = type_at(&p) ? -EADDRINUSE : -EROFS;
	if (r >= 0)
		r = hw_task_umask(c);
	if (r >= 0)
		r = bind_at(sock, base, &p, sa, len);
	hw_place_drop(&p);
	hw_close((int)base);
	return r;
}

/* Everything but a path name goes to the caller's socket as it is. */
static long do_bind(struct hw_call *c, int fd, uint64_t addr, int len)
{
	union {
		struct sockaddr_storage any;
		struct sockaddr_un un;
	} sa;
	long sock, r;

	if (len < 0 || len > (int)sizeof(sa.any))
		return -EINVAL;
	memset(&sa, 0, sizeof(sa));
	sock = hw_task_fd(c, fd);
	if (sock < 0)
		return sock;
	r = hw_task_read(c, addr, &sa, (size_t)len);
	if (r >= 0 && !hw_guard_valid(c->n))
		r = -EINTR;
	if (r >= 0 && sa.any.ss_family == AF_UNIX && len > (int)offsetof(struct sockaddr_un, sun_path) &&
	    len <= (int)sizeof(sa.un) && sa.un.sun_path[0])
		r = bind_path(c, (int)sock, &sa.un, (socklen_t)len);
	else if (r >= 0)
		r = SYS(SYS_bind, sock, &sa, len);
	hw_close((int)sock);
	return r;
}

/* Carries one call out and gives its result. */
long hw_guard_dispatch(struct hw_call *c)
{
	const uint64_t *a = (const uint64_t *)c->n->data.args;

	switch (c->n->data.nr) {
	case SYS_openat:
		return hw_guard_open(c, (int)a[0], a[1], (int)a[2], (unsigned)a[3]);
	case SYS_mkdirat:
		return do_mkdir(c, (int)a[0], a[1], (unsigned)a[2]);
	case SYS_mknodat:
		return do_mknod(c, (int)a[0], a[1], (unsigned)a[2], (unsigned)a[3]);
	case SYS_symlinkat:
		return do_symlink(c, a[0], (int)a[1], a[2]);
	case SYS_linkat:
		return do_link(c, (int)a[0], a[1], (int)a[2], a[3], (int)a[4]);
	case SYS_renameat:
		return do_rename(c, (int)a[0], a[1], (int)a[2], a[3], 0);
	case SYS_renameat2:
		return do_rename(c, (int)a[0], a[1], (int)a[2], a[3], (unsigned)a[4]);
	case SYS_fchmod:
		return do_fchmod(c, (int)a[0], (unsigned)a[1]);
	case SYS_fchmodat:
		return do_chmod(c, (int)a[0], a[1], (unsigned)a[2], 0);
	case HW_SYS_FCHMODAT2:
		return do_chmod(c, (int)a[0], a[1], (unsigned)a[2], (int)a[3]);
	case SYS_bind:
		return do_bind(c, (int)a[0], a[1], (int)a[2]);
#if defined(__x86_64__)
	case SYS_open:
		return hw_guard_open(c, AT_FDCWD, a[0], (int)a[1], (unsigned)a[2]);
	case SYS_chmod:
		return do_chmod(c, AT_FDCWD, a[0], (unsigned)a[1], 0);
	case SYS_creat:
		return hw_guard_open(c, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (unsigned)a[1]);
	case SYS_mkdir:
		return do_mkdir(c, AT_FDCWD, a[0], (unsigned)a[1]);
	case SYS_mknod:
		return do_mknod(c, AT_FDCWD, a[0], (unsigned)a[1], (unsigned)a[2]);
	case SYS_symlink:
		return do_symlink(c, a[0], AT_FDCWD, a[1]);
	case SYS_link:
		return do_link(c, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
	case SYS_rename:
		return do_rename(c, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
#endif
	}
	return -ENOSYS;
}
