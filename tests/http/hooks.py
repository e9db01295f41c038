"""What schemathesis cannot know of our API: ids that are there, and how a switch signs (hostile.rs starts it)."""

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
NOBODYS_ENDPOINT = "whe_" + 32 * "0"
EVENT = os.environ["HOSTILE_EVENT"]
CANCELLABLE = os.environ["HOSTILE_CANCELLABLE"]
REFERENCE = os.environ["HOSTILE_REFERENCE"]
SECRET = base64.b64decode(os.environ["HOSTILE_SWITCH_SECRET"].removeprefix("whsec_"))
KEYLESS = os.environ["HOSTILE_KEYLESS"] == "1"
ACCOUNT = "ALICE"
ENDPOINT_KEYS = itertools.count()


def chosen(text, among):
    """One of several by the generated value itself, so that a seed always gives the same requests."""
    return among[zlib.crc32(str(text).encode()) % len(among)]


@schemathesis.hook
def before_call(context, case, kwargs):
    path = case.path_parameters
    if path and case.method == "DELETE" and path.get("endpoint_id") == ENDPOINT:
        # Whoever deletes it leaves nothing for the others, and the next request that is led there is told of a resource
        # that was made and is gone.
        path["endpoint_id"] = NOBODYS_ENDPOINT
    # What must be refused stays as it was made.
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    if path and "payment_id" in path:
        known = [CANCELLABLE] * 3 if case.path.endswith("/cancel") else PAYMENTS
        path["payment_id"] = chosen(path["payment_id"], [*known, path["payment_id"]])
    if case.path.endswith("/events"):
        # Only what has ended, or is not there: the stream of a payment under way ends when that does.
        path["payment_id"] = chosen(path["payment_id"], [SETTLED, SETTLED, "pay_of_nobody"])
    if path and "account_id" in path:
        path["account_id"] = chosen(path["account_id"], [ACCOUNT, path["account_id"]])
    if path and "endpoint_id" in path and case.method != "DELETE":
        path["endpoint_id"] = chosen(path["endpoint_id"], [ENDPOINT, path["endpoint_id"]])
    if case.path == "/api/v1/webhook-endpoints" and case.method == "POST" and case.headers is not None:
        # A key that was used is answered with its first endpoint, which may have been deleted since: right, and to the
        # fuzzer a resource that was made and is not there.
        # Other requests share these headers.
        case.headers = case.headers.copy()
        case.headers["Idempotency-Key"] = f"endpoint-{next(ENDPOINT_KEYS)}"
    if path and "event_id" in path:
        path["event_id"] = chosen(path["event_id"], [EVENT, path["event_id"]])
    if case.path == "/api/v1/payments" and isinstance(case.body, dict):
        # Three of four come from an account that is there to one that can be reached.
        if chosen(case.body, [True, True, True, False]):
            case.body |= {"currency": "EUR", "source_account": ACCOUNT, "destination_account": "XX-BOB"}
        if chosen(case.headers, [True, False]):
            case.body["amount"] = "0.01"
    if case.path == "/callbacks/{switch}" and not KEYLESS:
        path["switch"] = "mock"
        if isinstance(case.body, dict):
            # FAILURE decides nothing, so the books stay what the mock switch says.
            case.body["status"] = "FAILURE"
            case.body["type"] = "transfer.completed"
            case.body["reference"] = chosen(case.body, [REFERENCE, case.body.get("reference")])
        kwargs["auth"] = Signed()


class Signed(requests.auth.AuthBase):
    """Signs what is really sent, as the switch `mock` does."""

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
def nothing_is_told_without_a_key(ctx, response, case):
    """Not even that a request is malformed, or an id unknown."""
    if KEYLESS and case.path.startswith("/api/") and case.method.lower() in case.operation.schema.raw_schema["paths"][case.path]:
        assert response.status_code == 401, f"{response.status_code} without a key"
