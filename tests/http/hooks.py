"""Hooks for schemathesis (started by hostile_requests.rs): existing ids, and the signatures of a switch."""

import base64
import hashlib
import hmac
import itertools
import os
import time
import zlib

import requests
import schemathesis
from schemathesis import GenerationMode

PAYMENTS = os.environ["HOSTILE_PAYMENTS"].split(",")
SETTLED = PAYMENTS[0]
ENDPOINT = os.environ["HOSTILE_ENDPOINT"]
UNKNOWN_ENDPOINT = "whe_" + 32 * "0"
EVENT = os.environ["HOSTILE_EVENT"]
CANCELLABLE = os.environ["HOSTILE_CANCELLABLE"]
REFERENCE = os.environ["HOSTILE_REFERENCE"]
SECRET = base64.b64decode(os.environ["HOSTILE_SWITCH_SECRET"].removeprefix("whsec_"))
KEYLESS = os.environ["HOSTILE_KEYLESS"] == "1"
ACCOUNT = "ALICE"
ENDPOINT_KEYS = itertools.count()


def chosen(text, among):
    """Chooses by the generated value itself, so that the requests are deterministic."""
    return among[zlib.crc32(str(text).encode()) % len(among)]


@schemathesis.hook
def before_call(context, case, kwargs):
    path = case.path_parameters
    if path and case.method == "DELETE" and path.get("endpoint_id") == ENDPOINT:
        # The other requests need the endpoint, and schemathesis would report a created resource as missing.
        path["endpoint_id"] = UNKNOWN_ENDPOINT
    # Requests that must be refused stay unchanged.
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    if path and "payment_id" in path:
        known = [CANCELLABLE] * 3 if case.path.endswith("/cancel") else PAYMENTS
        path["payment_id"] = chosen(path["payment_id"], [*known, path["payment_id"]])
    if case.path.endswith("/events"):
        # Ended or unknown payments only: the stream of an open payment ends with the payment.
        path["payment_id"] = chosen(path["payment_id"], [SETTLED, SETTLED, "pay_of_nobody"])
    if path and "account_id" in path:
        path["account_id"] = chosen(path["account_id"], [ACCOUNT, path["account_id"]])
    if path and "endpoint_id" in path and case.method != "DELETE":
        path["endpoint_id"] = chosen(path["endpoint_id"], [ENDPOINT, path["endpoint_id"]])
    if case.path == "/api/v1/webhook-endpoints" and case.method == "POST" and case.headers is not None:
        # A repeated key is answered with the first endpoint, which may be deleted by now: correct, but schemathesis would
        # report a created resource as missing. The headers are copied because other requests share them.
        case.headers = case.headers.copy()
        case.headers["Idempotency-Key"] = f"endpoint-{next(ENDPOINT_KEYS)}"
    if path and "event_id" in path:
        path["event_id"] = chosen(path["event_id"], [EVENT, path["event_id"]])
    if case.path == "/api/v1/payments" and isinstance(case.body, dict):
        # Three of four have an existing source account and a routable destination.
        if chosen(case.body, [True, True, True, False]):
            case.body |= {"currency": "EUR", "source_account": ACCOUNT, "destination_account": "XX-BOB"}
        elif str(case.body.get("destination_account")).startswith("YY-"):
            # The second switch never confirms, so the payment would stay open.
            case.body["destination_account"] = "XX-BOB"
        if chosen(case.headers, [True, False]):
            case.body["amount"] = "0.01"
    if case.path == "/callbacks/{switch}" and not KEYLESS:
        path["switch"] = "mock"
        if isinstance(case.body, dict):
            # FAILURE is not definite, so the payments still agree with the mock switch.
            case.body["status"] = "FAILURE"
            case.body["type"] = "transfer.completed"
            case.body["reference"] = chosen(case.body, [REFERENCE, case.body.get("reference")])
        kwargs["auth"] = Signed()


class Signed(requests.auth.AuthBase):
    """Signs the final request body, as the switch `mock` does."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        event, now = f"evt-{zlib.crc32(body)}", str(int(time.time()))
        mac = hmac.new(SECRET, f"{event}.{now}.".encode() + body, hashlib.sha256)
        request.headers["webhook-id"] = event
        request.headers["webhook-timestamp"] = now
        request.headers["webhook-signature"] = "v1," + base64.b64encode(mac.digest()).decode()
        return request


@schemathesis.check
def requests_without_a_key_are_unauthorized(ctx, response, case):
    """401 also for malformed requests and unknown ids."""
    if KEYLESS and case.path.startswith("/api/") and case.method.lower() in case.operation.schema.raw_schema["paths"][case.path]:
        assert response.status_code == 401, f"{response.status_code} without a key"
