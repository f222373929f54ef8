"""Fork server for `greendot`: a process with all modules loaded forks for each call.

    python forked.py serve SOCKET       listen for calls, until standard input ends
    python forked.py SOCKET ARGUMENT…   make a call: the child gets this folder, environment and files
    python forked.py --pid SOCKET ARGUMENT…   the same; print the child's process id on standard error first

The child is a separate process with its own id, signals and exit code. It ends when the fork server ends.
"""

import array
import json
import os
import socket
import sys

_FILES = (0, 1, 2)


def request(link, files, folder, environment, arguments):  # noqa: ANN001, ANN201  (loaded with as little as possible)
    """Send a call. The server sends a line with the process id, then one with the exit code and the seconds."""
    body = json.dumps([folder, environment, arguments]).encode()
    link.sendmsg([len(body).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
    link.sendall(body)


def call(path, arguments, *, tell_pid=False):  # noqa: ANN001, ANN201
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        request(link, _FILES, os.getcwd(), dict(os.environ), arguments)
        with link.makefile("rb") as answer:
            child = answer.readline()
            if tell_pid:
                os.write(2, b"pid " + child)
            return int(answer.readline().split()[0])


def serve(path: str) -> None:
    import gc
    import selectors
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the caller, which closes standard input
    main = _load()
    gc.collect()
    gc.freeze()  # garbage collection in a child does not copy shared pages
    waiting = selectors.DefaultSelector()
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(64)
    waiting.register(door, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    print("loaded", flush=True)
    children: dict[int, tuple[int, socket.socket]] = {}  # by the process's file descriptor
    while True:
        for key, _ in waiting.select():
            if key.fd == 0:
                if not os.read(0, 4096):
                    for child, _ in children.values():
                        os.kill(child, signal.SIGKILL)
                    return
            elif key.fd in children:
                waiting.unregister(key.fd)
                child, link = children.pop(key.fd)
                os.close(key.fd)
                _, status, used = os.wait4(child, 0)
                _tell(link, f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime:.3f}")
                link.close()
            else:
                link, _ = door.accept()
                child = _fork(link, main)
                _tell(link, str(child))
                watch = os.pidfd_open(child)
                children[watch] = child, link
                waiting.register(watch, selectors.EVENT_READ)


def _load():  # noqa: ANN202
    """Load all modules of the server and of its commands, including modules they import lazily."""
    import pkgutil
    from importlib import import_module

    import greendot
    from greendot.cli import main

    for part in pkgutil.iter_modules(greendot.__path__, "greendot."):
        if part.name not in ("greendot.testing", "greendot.__main__", "greendot.integrations"):
            paths = getattr(import_module(part.name), "__path__", [])
            for module in pkgutil.walk_packages(paths, f"{part.name}."):
                import_module(module.name)
    return main


def _tell(link: socket.socket, line: str) -> None:
    try:
        link.sendall(f"{line}\n".encode())
    except OSError:
        pass  # the caller has ended


def _fork(link: socket.socket, main) -> int:  # noqa: ANN001
    size, sent, _, _ = link.recvmsg(4, socket.CMSG_LEN(3 * array.array("i").itemsize))
    files = array.array("i", sent[0][2])
    with link.makefile("rb") as reader:
        folder, environment, arguments = json.loads(reader.read(int.from_bytes(size, "big")))
    if child := os.fork():
        for file in files:
            os.close(file)
        return child
    for given, own in zip(files, _FILES, strict=True):
        os.dup2(given, own)
    os.closerange(3, 4096)
    _run(main, folder, environment, arguments)
    raise AssertionError("unreachable")


def _run(main, folder: str, environment: dict[str, str], arguments: list[str]) -> None:  # noqa: ANN001
    """Run the command in the child, with the setup and cleanup of a new interpreter."""
    import atexit
    import io
    import signal
    import threading
    import time
    import traceback

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["greendot", *arguments]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, file in (("stdout", 1), ("stderr", 2)):
        binary = open(file, "wb", 0 if environment.get("PYTHONUNBUFFERED") else -1, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(binary, write_through=True, line_buffering=True)
        setattr(sys, name, stream)
    code = 1
    try:
        if first := environment.get("FORKED_FIRST"):  # file with changes to the loaded modules
            with open(first) as file:
                exec(compile(file.read(), first, "exec"), {"__name__": "first"})
        main()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            code = end.code or 0
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    elif sys.argv[1] == "--pid":
        sys.exit(call(sys.argv[2], sys.argv[3:], tell_pid=True))
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
