"""Attacks that bring a protected name into existence, each name by another way
in which a name can come to be."""

import os
import shutil
import socket
import struct

from .target import LIBC, checked, create, state, syscall, workspace

AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
RENAME_EXCHANGE = 2


def fresh(name):
    """The path of a name that an earlier part may have left."""
    path = workspace(name)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return path


def made(name, make):
    path = fresh(name)
    make(path)
    os.lstat(path)
    return path


def from_file(move):
    """Makes the name from a file that lies there under a harmless one."""
    def make(path):
        source = workspace("draft-%d" % os.getpid())
        create(source)
        try:
            move(source, path)
        finally:
            if os.path.exists(source):
                os.unlink(source)
    return make


def rename_directory(path):
    source = workspace("dir-%d" % os.getpid())
    os.mkdir(source)
    try:
        os.rename(source, path)
    finally:
        if os.path.isdir(source):
            os.rmdir(source)


def unnamed(path):
    """A file without a name gets one."""
    fd = os.open(workspace(), os.O_TMPFILE | os.O_WRONLY, 0o644)
    try:
        checked(LIBC.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, os.fsencode(path), AT_SYMLINK_FOLLOW))
    finally:
        os.close(fd)


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)


def openat2(path):
    how = struct.pack("QQQ", os.O_WRONLY | os.O_CREAT, 0o644, 0)
    os.close(syscall("openat2", AT_FDCWD, os.fsencode(path), how, len(how)))


def by_descriptor(path):
    """By a descriptor of the workspace that was opened as something else."""
    directory = os.open(workspace(".git", ".."), os.O_PATH)
    try:
        os.mkdir(os.path.basename(path), dir_fd=directory)
    finally:
        os.close(directory)


def exchange():
    """Swaps .git with a directory, and back."""
    path = workspace("swap-%d" % os.getpid())
    os.mkdir(path)
    arguments = (AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(workspace(".git")), RENAME_EXCHANGE)
    try:
        syscall("renameat2", *arguments)
        syscall("renameat2", *arguments)
    finally:
        os.rmdir(path)
    return workspace(".git")


ATTACKS = {
    "name_create": lambda: made(".envrc", create),
    "name_create_below": lambda: made(".vscode", lambda path: create(os.path.join(path, "tasks.json"))),
    "name_mkdir": lambda: made(".claude", os.mkdir),
    "name_mkdir_fd": lambda: made(".husky", by_descriptor),
    "name_rename": lambda: made(".mcp.json", from_file(os.rename)),
    "name_rename_directory": lambda: made(".devcontainer", rename_directory),
    "name_link": lambda: made("CLAUDE.md", from_file(os.link)),
    "name_symlink": lambda: made(".codex", lambda path: os.symlink("src", path)),
    "name_unnamed_file": lambda: made("AGENTS.md", unnamed),
    "name_socket": lambda: made(".nvimrc", bind_socket),
    "name_fifo": lambda: made(".tool-versions", os.mkfifo),
    "name_openat2": lambda: made(".cursorrules", openat2),
    "name_policy": lambda: made(".hermes-wrap.yaml", create),
    "name_hidden": lambda: create(state("mcp-tokens", "server.json")),
    "name_exchange": exchange,
}
