"""The keeper, see sandbox.py: it makes the isolation, starts the judge, holds the wall limit and ends everything.

`keep` is the first thing that a process of its own does, so there are few imports here, and none of the package's own.
"""

import ctypes
import os
import select
import signal
from contextlib import suppress

from sandbox_judge import judge

NOBODY = 65534


def keep(kind: str, wall_limit: float, visible: list[str]) -> None:
    """Print "began" when in namespaces, then what the judge says, which reads its work from standard input; then exit.

    The judge says "passed", "failed", "again" or, where the machine is at fault, "broken", and a line with the reason.
    `wall_limit` in seconds; `visible` are the folders and files to be seen. Raises OSError if there are no namespaces.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become ours to end
    if kind == "namespaces":
        _enter_namespaces(libc)
    else:
        libc.prctl(4, 0)  # PR_SET_DUMPABLE: the program can't write the keeper's memory
    os.write(1, b"began\n")
    verdict, answer = os.pipe()
    judging = os.fork()
    if judging == 0:
        try:
            _confine(libc, kind, visible)
            _limit(kind, wall_limit)
            judge(libc, answer)
        except OSError as error:
            os.write(answer, f"broken\n{error}".encode())
        finally:
            os._exit(1)
    os.close(answer)
    in_time = select.select([verdict], [], [], wall_limit)[0]
    said = os.read(verdict, 4096) if in_time else f"failed\nstopped after {wall_limit:g} s".encode()
    os.kill(judging, signal.SIGKILL)
    _end_all()
    os.write(1, said or b"failed\nended before the end of the tests")
    os._exit(0)


def _end_all() -> None:
    """Kill the children, and theirs as they become ours, and wait. The judge is the last of its PID namespace to go."""
    with suppress(ChildProcessError):
        while True:
            with suppress(FileNotFoundError), open(f"/proc/self/task/{os.getpid()}/children") as children:
                for child in children.read().split():
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)


def _enter_namespaces(libc) -> None:
    ready, unshared = os.pipe()
    keeper = os.getpid()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(unshared)
            if os.read(ready, 1):  # nothing if the keeper could not go on
                _map_users(keeper)
                os._exit(0)
        finally:
            os._exit(1)
    # CLONE_NEW-UTS, -IPC, -USER, -PID, -NET
    _check(libc.unshare(0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000))
    os.write(unshared, b"1")
    if os.waitpid(helper, 0)[1]:
        raise OSError("the users of the namespace could not be mapped")


def _map_users(process: int) -> None:
    """From outside its namespace: only from there more users can be mapped than one's own."""
    user, group = os.getuid(), os.getgid()
    root_and_nobody = f"0 0 1\n{NOBODY} {NOBODY} 1"
    users, groups = (root_and_nobody if user == 0 else f"{NOBODY} {own} 1" for own in (user, group))
    for file, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/{process}/{file}", "w") as target:
            target.write(text)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _enter_own_root(libc, visible: list[str]) -> None:
    """In a mount namespace: a root of 64 MiB with what is visible, a few devices, and an empty /tmp."""

    def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
        source, target, kind, options = (text and text.encode() for text in (source, target, kind, options))
        _check(libc.mount(source, target, kind, flags, options))

    bind, recursive, private, nosuid, remount, read_only = 4096, 16384, 1 << 18, 2, 32, 1
    root = "/sys"  # a folder that exists everywhere and that nothing visible is in
    _check(libc.unshare(0x00020000))  # CLONE_NEWNS
    with suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    mount("none", "/", None, recursive | private)
    mount("tmpfs", root, "tmpfs", nosuid | 4, "size=64m,nr_inodes=4096,mode=755")
    for path in [*visible, *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))]:
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
        elif os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.close(os.open(target, os.O_CREAT))
        if not os.path.islink(path):
            mount(path, target, None, bind | recursive)
            # The flags it has may be locked.
            mount(path, target, None, bind | remount | nosuid | read_only | os.statvfs(target).f_flag & 0xF)
    for path, mode in (("/proc", 0o755), ("/tmp", 0o1777), ("/dev/shm", 0o1777)):
        os.mkdir(root + path)
        os.chmod(root + path, mode)
    with suppress(OSError):  # not allowed in containers that hide parts of their own
        mount("proc", root + "/proc", "proc", nosuid | 4 | 8)
    os.chdir(root)
    _check(libc.syscall({"x86_64": 155, "aarch64": 41}[os.uname().machine], b".", b"."))  # pivot_root
    _check(libc.umount2(b".", 2))  # MNT_DETACH
    os.chdir("/tmp")


def _confine(libc, kind: str, visible: list[str]) -> None:
    """Take from the judge's process, and so from the program's, what they have no need of."""
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if kind == "namespaces":
        _enter_own_root(libc, visible)
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        _check(libc.capset(b"\x22\x05\x08\x20" + bytes(4), bytes(24)))  # version 3, this process: none at all
        libc.prctl(1, signal.SIGKILL)  # a change of user resets it
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc.prctl(4, 0)  # PR_SET_DUMPABLE: nobody reads this process's memory or files


def _limit(kind: str, wall_limit: float) -> None:
    import resource

    limits = {"AS": 2 << 30, "FSIZE": 8 << 20, "NOFILE": 256, "CORE": 0, "CPU": int(wall_limit) + 2}
    if kind != "limits":  # there it would count all our user's processes
        limits["NPROC"] = 64
    for name, value in limits.items():
        limit = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(limit)[1]
        value = value if hard < 0 else min(value, hard)
        resource.setrlimit(limit, (value, value))
