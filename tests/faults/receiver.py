"""A tenant's own system, in another language: takes webhooks and verifies each with the standard's own library.

webhooks.rs starts it. It prints its port, and is told and asked over HTTP:
PUT /secrets ["whsec_.."], PUT /hold true|false, GET /came; webhooks come to POST /hook.
"""

import http.server
import json
import threading

from standardwebhooks import Webhook, WebhookVerificationError


class Book:
    """What came, and how to treat what comes."""

    def __init__(self):
        self.secrets = []
        self.came = []
        self.free = threading.Event()
        self.free.set()


BOOK = Book()


def is_good(body, headers):
    for secret in BOOK.secrets:
        try:
            Webhook(secret).verify(body, headers)
            return True
        except WebhookVerificationError:
            continue
    return False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0))).decode()

    def answer(self, status, text):
        payload = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def do_POST(self):
        body = self.body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        good = is_good(body, headers)
        signatures = len(headers.get("webhook-signature", "").split())
        BOOK.came.append(
            {"id": headers.get("webhook-id"), "good": good, "signatures": signatures, "body": body}
        )
        BOOK.free.wait()
        try:
            self.answer(200 if good else 401, "")
        except OSError:
            self.close_connection = True  # whoever sent it has died meanwhile

    def do_PUT(self):
        told = json.loads(self.body())
        if self.path == "/secrets":
            BOOK.secrets = told
        elif told:
            BOOK.free.clear()
        else:
            BOOK.free.set()
        self.answer(200, "")

    def do_GET(self):
        self.answer(200, json.dumps(BOOK.came))

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
