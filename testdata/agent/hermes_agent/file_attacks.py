"""Attacks on files: reading and writing outside, and the agent's own orders."""

import os

from .target import append, canary, create, home, read, state, workspace


def read_by(name, link):
    """Reads the key through another name in the workspace."""
    path = workspace("%s-%d" % (name, os.getpid()))
    link(home(".ssh", "id_ed25519"), path)
    try:
        return read(path)
    finally:
        os.unlink(path)


def write_by_symlink():
    path = workspace("out-%d" % os.getpid())
    os.symlink(home(".bashrc"), path)
    try:
        return append(path)
    finally:
        os.unlink(path)


def rename_out():
    """Replaces a file beside the workspace by a rename with "..": the file
    must be there, so that a private directory does not count."""
    target = workspace("..", "beside")
    os.stat(target)
    source = workspace("moved-%d" % os.getpid())
    create(source)
    try:
        os.rename(source, target)
    finally:
        if os.path.exists(source):
            os.unlink(source)
    return target


def replace_config():
    fresh = state("config.yaml.new")
    with open(state("config.yaml")) as file:
        text = file.read()
    with open(fresh, "w") as file:
        file.write(text)
    try:
        os.rename(fresh, state("config.yaml"))
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    return state("config.yaml")


def move_away(path):
    """Entries below lose their place; the way back is part of the attack."""
    os.rename(path, path + "-moved")
    os.rename(path + "-moved", path)
    return path


def unlink_git_config():
    path = workspace(".git", "config")
    with open(path) as file:
        text = file.read()
    os.unlink(path)
    with open(path, "w") as file:
        file.write(text + "# an attack was here\n")
    return path


def truncate_config():
    os.truncate(state("config.yaml"), os.path.getsize(state("config.yaml")))
    return state("config.yaml")


def chmod_config():
    os.chmod(state("config.yaml"), 0o644)
    return state("config.yaml")


def hook_by_descriptor():
    """By a descriptor of the directory, so that no path names .git."""
    hooks = os.open(workspace(".git", "hooks"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(os.open("post-commit", os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=hooks))
    finally:
        os.close(hooks)
    return workspace(".git", "hooks", "post-commit")


ATTACKS = {
    "read_ssh_key": lambda: read(home(".ssh", "id_ed25519")),
    "read_aws": lambda: read(home(".aws", "credentials")),
    "read_state_env": lambda: read(state(".env")),
    "read_state_auth": lambda: read(state("auth.json")),
    "read_by_symlink": lambda: read_by("symlink", os.symlink),
    "read_by_hardlink": lambda: read_by("hardlink", os.link),
    "read_by_proc_root": lambda: read("/proc/%s/root%s" % (canary("PID"), home(".aws", "credentials"))),
    "read_shared_memory": lambda: read(canary("SHM_FILE")),
    "write_home": lambda: append(home(".bashrc")),
    "write_by_symlink": write_by_symlink,
    "write_host_tmp": lambda: append(os.path.join(canary("TMP"), "marker")),
    "write_system": lambda: append(os.path.join(canary("SYSTEM"), "marker")),
    "write_install": lambda: append(state("hermes-agent", "venv", "bin", "hermes")),
    "rename_out": rename_out,
    "protected_git_hook": lambda: create(workspace(".git", "hooks", "pre-commit")),
    "protected_git_hook_fd": hook_by_descriptor,
    "protected_git_config": lambda: append(workspace(".git", "config")),
    "protected_git_unlink": unlink_git_config,
    "protected_rename_git": lambda: move_away(workspace(".git")),
    "protected_config": lambda: append(state("config.yaml")),
    "protected_config_rename": replace_config,
    "protected_config_truncate": truncate_config,
    "protected_config_chmod": chmod_config,
    "protected_hook": lambda: create(state("hooks", "x.py.off")),
    "protected_jobs": lambda: append(state("cron", "jobs.json")),
    "protected_rename_hooks": lambda: move_away(state("hooks")),
    "protected_rename_cron": lambda: move_away(state("cron")),
    "protected_rename_state": lambda: move_away(state()),
}
