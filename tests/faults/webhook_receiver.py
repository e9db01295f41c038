"""The tenant's own system in another language: receives webhooks and verifies each with the standard's own library.

outbound_webhooks.rs starts it. It prints its port and is controlled over HTTP:
PUT /secrets ["whsec_.."], PUT /hold true|false, GET /received; webhooks are sent to POST /hook.
"""

import http.server
import json
import threading

from standardwebhooks import Webhook, WebhookVerificationError


class State:
    """The received requests, the accepted secrets, and whether answers are held."""

    def __init__(self):
        self.secrets = []
        self.received = []
        self.may_answer = threading.Event()
        self.may_answer.set()


STATE = State()


def is_verified(body, headers):
    for secret in STATE.secrets:
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
        verified = is_verified(body, headers)
        signatures = len(headers.get("webhook-signature", "").split())
        STATE.received.append(
            {"id": headers.get("webhook-id"), "verified": verified, "signatures": signatures, "body": body}
        )
        STATE.may_answer.wait()
        try:
            self.answer(200 if verified else 401, "")
        except OSError:
            self.close_connection = True  # the sender was killed meanwhile

    def do_PUT(self):
        value = json.loads(self.body())
        if self.path == "/secrets":
            STATE.secrets = value
        elif value:
            STATE.may_answer.clear()
        else:
            STATE.may_answer.set()
        self.answer(200, "")

    def do_GET(self):
        self.answer(200, json.dumps(STATE.received))

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
