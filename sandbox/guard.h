/*
 * The creation guard: names that do not exist at launch and must not come into
 * existence inside a writable tree.
 *
 * A mount can only cover what exists, Landlock has no rule for one name, and a
 * seccomp filter sees no strings. So the calls that can create a name raise a
 * seccomp user notification, and a broker process with the agent's own
 * credentials, Landlock domain and mount view carries them out itself: it
 * copies the path once, resolves the parent directory to a descriptor,
 * compares device, inode and name with the protected set, and acts on that very
 * descriptor. It never tells the kernel to continue a call whose pointers it
 * has read, so swapping the buffer afterwards changes nothing.
 *
 * A protected name behaves as on a read-only file system: creating it, renaming
 * it or renaming onto it, and linking it fail with EROFS (EEXIST where the call
 * reports that first and the name exists). Names are compared byte by byte.
 *
 * While the guard is on, calls it could not keep apart are refused: openat2(2)
 * and io_uring_setup(2) with ENOSYS, landlock_create_ruleset(2) with EOPNOTSUPP
 * (the broker would not share a narrower domain), ioctls that create a
 * subvolume or a reflink by name with EPERM, foreign ABIs with ENOSYS.
 *
 * One trace remains: a signal that arrives before the broker has taken the call
 * up ends it with EINTR if its handler was installed without SA_RESTART, where
 * the kernel alone would have finished it. Nothing has been done then.
 *
 * Opening such a name for writing once it exists fails with EROFS as well, since
 * a cover over it is gone when somebody outside replaces the entry (but see
 * names_only).
 *
 * Not covered: unlinking and truncate(2), once somebody outside has created the
 * name during the run, and what lies below a directory that was replaced;
 * replacing the protected parent directory itself (pin it with a mount).
 */
#ifndef HW_GUARD_H
#define HW_GUARD_H

#include <linux/filter.h>

/* The most entries that one guard takes. */
#define HW_GUARD_MAX 512

/*
 * One protected name. parent is an absolute path inside the sandbox, opened
 * once at start; where it does not exist, its first missing component becomes
 * the protected name, so nothing below it can appear either.
 *
 * With rest, name is a directory that does not exist yet and may be made, by
 * mkdir(2) alone: what may not appear is rest, a path below it ("jobs.json",
 * "a/b"), whose own directories may be made likewise.
 */
struct hw_guard_entry {
	const char *parent;
	const char *name;
	const char *rest; /* NULL or "": name itself may not appear */
};

/*
 * base_filter, when base_len is not 0, is loaded into the broker on top of the
 * allow-list the broker always gives itself. It has to allow what
 * guard_filter.c lists under "broker".
 */
struct hw_guard {
	const struct hw_guard_entry *entries;
	int n;
	const struct sock_filter *base_filter;
	unsigned short base_len;
	/*
	 * Leaves opens alone that create nothing. Programs that write the id maps
	 * of a user namespace of theirs need it: the kernel asks what the opener
	 * may do there, and the broker may do nothing.
	 */
	int names_only;
};

/*
 * Starts the broker and gives a socket to it. To be called in the agent child
 * (which must not share its memory with anyone), single-threaded, after
 * no_new_privs and landlock_restrict_self(2), before the final seccomp filter.
 * The agent itself must end up without capabilities.
 * If the caller has CAP_SYS_PTRACE in a user namespace of its own, the broker
 * keeps that one capability: Yama would otherwise hide the agent's memory from
 * it. Returns 0 or -errno: -ENOSYS without user notification in this kernel,
 * -EACCES when the broker cannot look at a process like the agent (Yama without
 * the capability, a Landlock domain without read access to /proc), -ENOENT when
 * /proc is not that of this pid namespace.
 */
int hw_guard_start(const struct hw_guard *g, int *sock);

/*
 * Loads the notifying filter, hands the listener to the broker, waits until it
 * serves, closes sock. Returns 0 or -errno: -EBUSY inside another sandbox that
 * already listens. After a failure the child must not go on to execve(2).
 */
int hw_guard_arm(int sock, const struct hw_guard *g);

/*
 * Instead of both where no names are guarded: refuses what the guard would have
 * looked into, modes that lie in memory (openat2(2)) and set-group-id ones.
 * Returns 0 or -errno.
 */
int hw_guard_absent(void);

#endif
