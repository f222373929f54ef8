"""Namespaces of a run: its own processes, network and mounts, so that nothing of a run is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path

INSIDE = "CHAOS_INSIDE"
RESOLVER = Path("/etc/resolv.conf")
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
FLAGS = ["--mount", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]


def enter() -> None:
    """Run this program again in its own namespaces, if the system permits it, and end with its exit status.

    Return inside, or without namespaces. Inside, the program is process 1: when it ends, in whatever way, the kernel
    ends all its children. It also ends when this process is killed.
    """
    if os.environ.get(INSIDE):
        return
    command = _command()
    if command is None:
        os.environ[INSIDE] = "no"
        return
    if guard := shutil.which("setpriv"):
        command = [guard, "--pdeathsig", "KILL", *command]
    # In a session of its own, so that Ctrl-C arrives once, from here.
    inside = subprocess.Popen(
        [*command, sys.executable, *sys.orig_argv[1:]], env=os.environ | {INSIDE: "yes"}, start_new_session=True
    )

    def forward(number: int, _: object) -> None:
        for child in Path(f"/proc/{inside.pid}/task/{inside.pid}/children").read_text().split():
            os.kill(int(child), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    status = inside.wait()
    sys.exit(status if status >= 0 else 128 - status)


def isolated() -> bool:
    """Return whether this process runs in its own namespaces."""
    return os.environ.get(INSIDE) == "yes"


def raise_loopback() -> None:
    """Switch on the loopback device of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh", b"lo", 0)
        (flags,) = struct.unpack("16xh", ioctl(any_socket, SIOCGIFFLAGS, request)[:18])
        ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP))


def mount_small(folder: Path, megabytes: int) -> bool:
    """Mount a small file system in memory; return whether this is permitted. Its mount ends with the run."""
    folder.mkdir(parents=True, exist_ok=True)
    if not isolated():
        return False
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=777", "tmpfs", str(folder)], check=False
    )
    return done.returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def use_resolver(folder: Path, address: str) -> bool:
    """Let all processes of this run resolve names at `address`; return whether this is permitted."""
    if not isolated():
        return False
    file = folder / "resolv.conf"
    file.write_text(f"nameserver {address}\noptions timeout:1 attempts:2\n")
    return subprocess.run(["mount", "--bind", str(file), str(RESOLVER)], check=False).returncode == 0


def _command() -> list[str] | None:
    if shutil.which("unshare") is None:
        return None
    for flags in ([], ["--map-root-user"]):
        tried = subprocess.run(["unshare", *flags, *FLAGS, "true"], check=False, capture_output=True)
        if tried.returncode == 0:
            return ["unshare", *flags, *FLAGS]
    return None
