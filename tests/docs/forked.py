"""`greendot` without the second it takes to load: a process that has loaded it makes a copy of itself for each call.

    python forked.py serve SOCKET       waits there for calls
    python forked.py SOCKET ARGUMENT…   is a call: the copy has its folder, environment and files, and its exit code

Everything the command does is done as ever, in a process of its own.
"""

import array
import json
import os
import socket
import sys

_FILES = (0, 1, 2)


def call(path, arguments):  # noqa: ANN001, ANN201  (loaded with as little as possible)
    said = json.dumps([os.getcwd(), dict(os.environ), arguments]).encode()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        link.sendmsg([len(said).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", _FILES))])
        link.sendall(said)
        return int(link.recv(16) or b"1")


def serve(path: str) -> None:
    from greendot.cli import main

    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        print("loaded", flush=True)
        while True:
            link, _ = door.accept()
            if os.fork() == 0:
                door.close()
                os._exit(answer(link, main))
            link.close()
            _reap()


def answer(link, main) -> int:  # noqa: ANN001
    """In the copy: the call is made in a copy of its own, whose exit code is passed on."""
    size, sent, _, _ = link.recvmsg(4, socket.CMSG_LEN(3 * array.array("i").itemsize))
    files = array.array("i", sent[0][2])
    with link.makefile("rb") as reader:
        folder, environment, arguments = json.loads(reader.read(int.from_bytes(size, "big")))
    child = os.fork()
    if child == 0:
        link.close()
        for given, own in zip(files, _FILES, strict=True):
            os.dup2(given, own)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["greendot", *arguments]
        code = _exit_code(main)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    link.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    return 0


def _exit_code(main) -> int:  # noqa: ANN001
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
