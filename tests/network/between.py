"""What stands between a caller and the server: it listens, and has a thread for each caller."""

import contextlib
import socket
import threading


class Between:
    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()

    def run(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop()

    def drop(self) -> None:
        """End all connections."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def answer(self, caller: socket.socket) -> None:
        raise NotImplementedError

    def _serve(self, caller: socket.socket) -> None:
        self._open.add(caller)
        try:
            with caller:
                self.answer(caller)
        except OSError:
            pass
        finally:
            self._open.discard(caller)
