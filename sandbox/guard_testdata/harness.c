/*
 * Runs a command under the creation guard alone.
 *
 *   harness [-u] [-n] [-p PARENT NAME]... [-m PARENT NAME REST]... -- COMMAND [ARGUMENT]...
 *
 * -u enters a user namespace first (the broker then has CAP_SYS_PTRACE in it),
 * -n leaves the guard off. Exit code 125: the guard could not be set up.
 */
#define _GNU_SOURCE
#include "../guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct hw_guard_entry entries[HW_GUARD_MAX];

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return ok ? 0 : -1;
}

static int enter_userns(void)
{
	char uid[64], gid[64];

	snprintf(uid, sizeof(uid), "%d %d 1", (int)getuid(), (int)getuid());
	snprintf(gid, sizeof(gid), "%d %d 1", (int)getgid(), (int)getgid());
	if (unshare(CLONE_NEWUSER) < 0)
		return -1;
	return put("/proc/self/setgroups", "deny") || put("/proc/self/uid_map", uid) || put("/proc/self/gid_map", gid);
}

/* As the launcher does: also user id 0 has nothing left after execve(2). */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2];

	for (int c = 0; prctl(PR_CAPBSET_DROP, c, 0, 0, 0) == 0; c++)
		;
	memset(none, 0, sizeof(none));
	if (syscall(SYS_capset, &head, none) < 0)
		perror("drop capabilities");
}

int main(int argc, char **argv)
{
	struct hw_guard g = { .entries = entries };
	int i = 1, off = 0, sock = -1, r = 0;

	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "-u") == 0) {
			if (enter_userns() < 0) {
				perror("enter user namespace");
				return 125;
			}
		} else if (strcmp(argv[i], "-n") == 0) {
			off = 1;
		} else if (strcmp(argv[i], "-p") == 0 && i + 2 < argc) {
			entries[g.n].parent = argv[++i];
			entries[g.n++].name = argv[++i];
		} else if (strcmp(argv[i], "-m") == 0 && i + 3 < argc) {
			entries[g.n].parent = argv[++i];
			entries[g.n].name = argv[++i];
			entries[g.n++].rest = argv[++i];
		}
	}
	if (i + 1 >= argc)
		return 125;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!off)
		r = hw_guard_start(&g, &sock);
	drop_capabilities();
	if (!off && r == 0)
		r = hw_guard_arm(sock, &g);
	if (r < 0) {
		fprintf(stderr, "guard: %s\n", strerror(-r));
		return 125;
	}
	execvp(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return 127;
}
