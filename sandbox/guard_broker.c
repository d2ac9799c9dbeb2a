/* The broker's loop: take a notification, carry the call out, answer. */
#include "guard_internal.h"

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

struct hw_broker hw_broker;

/* Room for what a newer kernel may append to the structs of ours. */
static union {
	struct seccomp_notif n;
	char room[1024];
} request;
static union {
	struct seccomp_notif_resp r;
	char room[256];
} response;

/* Whether the caller still waits for this answer, so that its tid is still its own. */
int hw_guard_valid(const struct seccomp_notif *n)
{
	uint64_t id = n->id;

	return SYS(SYS_ioctl, hw_broker.listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/*
 * Gives up when the kernel refuses to take an answer or to hand out a request: a
 * caller would wait for ever. Whoever waits gets ENOSYS then, and so does everybody
 * who asks later. That a caller is gone (ENOENT) is no reason.
 */
static void give_up_unless(long r)
{
	if (r < 0 && r != -ENOENT && r != -EINTR)
		SYS(SYS_exit_group, 1);
}

static void send_result(const struct seccomp_notif *n, long result, unsigned flags)
{
	response.r.id = n->id;
	response.r.val = result < 0 ? 0 : result;
	response.r.error = result < 0 ? (int)result : 0;
	response.r.flags = flags;
	give_up_unless(SYS(SYS_ioctl, hw_broker.listener, SECCOMP_IOCTL_NOTIF_SEND, &response));
}

/*
 * Gives the caller a descriptor and closes ours before the caller runs on: a
 * copy that lingers here would keep a lock held or a program "busy" (ETXTBSY)
 * after the caller has closed its own. Where that does not matter the answer
 * travels along with the descriptor, which saves two switches.
 */
static void send_fd(const struct seccomp_notif *n, int fd, int cloexec, int shared)
{
	struct seccomp_notif_addfd add = {
		.id = n->id,
		.flags = shared ? SECCOMP_ADDFD_FLAG_SEND : 0,
		.srcfd = (unsigned)fd,
		.newfd_flags = cloexec ? O_CLOEXEC : 0,
	};
	long r = SYS(SYS_ioctl, hw_broker.listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);

	hw_close(fd);
	if (!shared || r < 0)
		send_result(n, r, 0);
}

static int wants_cloexec(const struct seccomp_notif *n)
{
	switch (n->data.nr) {
	case SYS_openat:
		return (n->data.args[2] & O_CLOEXEC) != 0;
#if defined(__x86_64__)
	case SYS_open:
		return (n->data.args[1] & O_CLOEXEC) != 0;
#endif
	}
	return 0;
}

/* Answers a notification with an error, 0, or HW_FD or HW_FD_SHARED plus a descriptor. */
void hw_guard_answer(const struct seccomp_notif *n, long result)
{
	if (result >= HW_FD_SHARED)
		send_fd(n, (int)(result - HW_FD_SHARED), wants_cloexec(n), 1);
	else if (result >= HW_FD)
		send_fd(n, (int)(result - HW_FD), wants_cloexec(n), 0);
	else
		send_result(n, result, 0);
}

static void serve_one(void)
{
	struct hw_call c = { .n = &request.n };
	long r;

	if (request.n.data.nr == SYS_umask) {
		/* No pointer was read: going on is sound here, and only here. */
		hw_task_umask_changes(c.n);
		send_result(c.n, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
		return;
	}
	r = hw_task_find(&c);
	if (r >= 0)
		r = hw_guard_dispatch(&c);
	if (r != HW_DEFERRED)
		hw_guard_answer(c.n, r);
}

/* Serves until no task is left under the filter. */
void hw_guard_serve(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };

	hw_broker.listener = listener;
	for (;;) {
		long r = SYS(SYS_ppoll, &p, 1L, NULL, NULL, 8L);

		give_up_unless(r);
		if (r < 0)
			continue;
		if (p.revents & (POLLHUP | POLLNVAL))
			SYS(SYS_exit_group, 0);
		memset(&request, 0, sizeof(request));
		r = SYS(SYS_ioctl, listener, SECCOMP_IOCTL_NOTIF_RECV, &request);
		give_up_unless(r);
		if (r == 0)
			serve_one();
	}
}
