"""A receiver of messages on 127.0.0.1 that answers as a test tells it to."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """``answers``: a status, ``"hang"`` or ``(429, {"Retry-After": "60"})`` for each request; the last one stays.

    ``accepted``: the JSON of the requests that were answered with 200; ``asked``: how many came.
    """

    def __init__(self, *answers):
        self.answers, self.accepted, self.headers, self.asked = list(answers) or [200], [], [], 0
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked += 1
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer == "hang":
                    receiver.released.wait(30)
                    return
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                if status == 200:
                    receiver.accepted.append(json.loads(body))
                    receiver.headers.append(dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}/health"

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        time.sleep(0)
