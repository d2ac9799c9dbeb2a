/*
 * Makes one system call, raw, and prints "ok" or the error's name.
 *
 *   probe CALL ARGUMENT...
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static long tmpfile_link(const char *dir, const char *name, int through_proc)
{
	char link[64];
	int fd = open(dir, O_TMPFILE | O_WRONLY, 0600);

	if (fd < 0)
		return -1;
	if (!through_proc)
		return syscall(SYS_linkat, fd, "", AT_FDCWD, name, AT_EMPTY_PATH);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return syscall(SYS_linkat, AT_FDCWD, link, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

static long bind_to(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX }, got = { 0 };
	socklen_t len = sizeof(got);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(sa.sun_path, path, sizeof(sa.sun_path) - 1);
	if (bind(s, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -1;
	getsockname(s, (struct sockaddr *)&got, &len);
	if (strcmp(got.sun_path, path) != 0)
		printf("name %s ", got.sun_path);
	return 0;
}

static char buffer[64];
static volatile int stop;

static void *flip(void *names)
{
	char **name = names;

	for (unsigned i = 0; !stop; i++)
		memcpy(buffer, name[i & 1], strlen(name[i & 1]) + 1);
	return NULL;
}

/* Creates the name in a buffer that another thread flips between two names, and removes the first. */
static long race(char **name, int rounds)
{
	pthread_t t;
	long made = 0;

	memcpy(buffer, name[0], strlen(name[0]) + 1);
	pthread_create(&t, NULL, flip, name);
	for (int i = 0; i < rounds; i++) {
		long fd = syscall(SYS_openat, AT_FDCWD, buffer, O_CREAT | O_WRONLY, 0600);

		if (fd >= 0) {
			close((int)fd);
			unlink(name[0]);
		}
		made += access(name[1], F_OK) == 0;
		unlink(name[1]);
	}
	stop = 1;
	pthread_join(t, NULL);
	printf("%ld of %d ", made, rounds);
	return 0;
}

static void *wander(void *unused)
{
	while (!stop) {
		if (chdir("sub") < 0 || chdir("..") < 0)
			abort();
	}
	return unused;
}

/* Binds a socket to a relative name while another thread goes to and fro between two directories. */
static long race_bind(const char *name, int rounds)
{
	char below[64], top[4096];
	pthread_t t;
	long made = 0;
	int here = open(".", O_PATH);

	snprintf(below, sizeof(below), "sub/%s", name);
	snprintf(top, sizeof(top), "%s", name);
	pthread_create(&t, NULL, wander, NULL);
	for (int i = 0; i < rounds; i++) {
		struct sockaddr_un sa = { .sun_family = AF_UNIX };
		int s = socket(AF_UNIX, SOCK_STREAM, 0);

		strncpy(sa.sun_path, name, sizeof(sa.sun_path) - 1);
		bind(s, (struct sockaddr *)&sa, sizeof(sa));
		close(s);
		unlinkat(here, below, 0);
		made += unlinkat(here, top, 0) == 0;
	}
	stop = 1;
	pthread_join(t, NULL);
	printf("%ld of %d ", made, rounds);
	return 0;
}

static void *redirect(void *unused)
{
	for (int i = 0; !stop; i++) {
		if (symlink(i & 1 ? "." : "sub", "next") < 0 || rename("next", "way") < 0)
			abort();
	}
	return unused;
}

/* Makes a name below a symbolic link that another thread points to and fro. */
static long race_link(const char *name, int rounds)
{
	char path[64], below[64];
	pthread_t t;
	long made = 0;

	snprintf(path, sizeof(path), "way/%s", name);
	snprintf(below, sizeof(below), "sub/%s", name);
	pthread_create(&t, NULL, redirect, NULL);
	for (int i = 0; i < rounds; i++) {
		struct sockaddr_un sa = { .sun_family = AF_UNIX };
		int s = socket(AF_UNIX, SOCK_STREAM, 0), fd;

		strncpy(sa.sun_path, path, sizeof(sa.sun_path) - 1);
		bind(s, (struct sockaddr *)&sa, sizeof(sa));
		close(s);
		unlink(below);
		made += unlink(name) == 0;
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		close(fd);
		unlink(below);
		made += unlink(name) == 0;
	}
	stop = 1;
	pthread_join(t, NULL);
	printf("%ld of %d ", made, rounds);
	return 0;
}

static long legacy(const char *call, char **a)
{
#ifdef SYS_open
	if (strcmp(call, "open") == 0)
		return syscall(SYS_open, a[0], O_CREAT | O_WRONLY, 0600);
	if (strcmp(call, "creat") == 0)
		return syscall(SYS_creat, a[0], 0600);
	if (strcmp(call, "mkdir") == 0)
		return syscall(SYS_mkdir, a[0], 0700);
	if (strcmp(call, "mknod") == 0)
		return syscall(SYS_mknod, a[0], S_IFREG | 0600, 0);
	if (strcmp(call, "symlink") == 0)
		return syscall(SYS_symlink, a[0], a[1]);
	if (strcmp(call, "link") == 0)
		return syscall(SYS_link, a[0], a[1]);
	if (strcmp(call, "rename") == 0)
		return syscall(SYS_rename, a[0], a[1]);
#else
	(void)call;
	(void)a;
#endif
	errno = EINVAL;
	return -1;
}

static int dir(const char *path) { return strcmp(path, ".") == 0 ? AT_FDCWD : open(path, O_RDONLY | O_DIRECTORY); }

static long run(const char *call, char **a)
{
	if (strcmp(call, "openat") == 0) /* DIR NAME FLAGS */
		return syscall(SYS_openat, dir(a[0]), a[1], O_CREAT | strtol(a[2], NULL, 0), 0600);
	if (strcmp(call, "openat-opath") == 0)
		return syscall(SYS_openat, open(a[0], O_PATH), a[1], O_CREAT | O_WRONLY, 0600);
	if (strcmp(call, "mkdirat") == 0)
		return syscall(SYS_mkdirat, dir(a[0]), a[1], 0700);
	if (strcmp(call, "fifo") == 0)
		return syscall(SYS_mknodat, dir(a[0]), a[1], S_IFIFO | 0600, 0);
	if (strcmp(call, "symlinkat") == 0)
		return syscall(SYS_symlinkat, a[0], dir(a[1]), a[2]);
	if (strcmp(call, "linkat") == 0)
		return syscall(SYS_linkat, dir(a[0]), a[1], dir(a[2]), a[3], 0);
	if (strcmp(call, "renameat") == 0)
		return syscall(SYS_renameat, dir(a[0]), a[1], dir(a[2]), a[3]);
	if (strcmp(call, "renameat2") == 0) /* ... FLAGS */
		return syscall(SYS_renameat2, dir(a[0]), a[1], dir(a[2]), a[3], strtol(a[4], NULL, 0));
	if (strcmp(call, "tmpfile-link") == 0)
		return tmpfile_link(a[0], a[1], 1);
	if (strcmp(call, "tmpfile-fd") == 0)
		return tmpfile_link(a[0], a[1], 0);
	if (strcmp(call, "bind") == 0)
		return bind_to(a[0]);
	if (strcmp(call, "openat2") == 0)
		return syscall(437, AT_FDCWD, a[0], (uint64_t[3]){ O_CREAT | O_WRONLY, 0600, 0 }, 24L);
	if (strcmp(call, "io_uring_setup") == 0)
		return syscall(425, 1, NULL);
	if (strcmp(call, "bad-pointer") == 0)
		return syscall(SYS_openat, AT_FDCWD, 16L, O_CREAT | O_WRONLY, 0600);
	if (strcmp(call, "bad-fd") == 0)
		return syscall(SYS_mkdirat, 99, "x", 0700);
	if (strcmp(call, "long-path") == 0)
		return syscall(SYS_mkdirat, AT_FDCWD, memset(calloc(1, 5000), 'a', 4999), 0700);
	if (strcmp(call, "race") == 0)
		return race(a, atoi(a[2]));
	if (strcmp(call, "race-bind") == 0)
		return race_bind(a[0], atoi(a[1]));
	if (strcmp(call, "race-link") == 0)
		return race_link(a[0], atoi(a[1]));
	return legacy(call, a);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	if (run(argv[1], argv + 2) < 0)
		puts(strerrorname_np(errno));
	else
		puts("ok");
	return 0;
}
