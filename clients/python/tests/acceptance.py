"""Drives the payments API by the client and checks every answer.

tests/acceptance/generated_clients.rs starts it, makes the switch confirm the payment with the end-to-end id `settle`, and
compares the books with the printed payment ids.
"""

import json
import os

import httpx
from payments_client import AuthenticatedClient
from payments_client.api.payments import cancel_payment, create_payment, list_payments, retrieve_payment, stream_payment_events
from payments_client.models import Acceptance, CancelRequested, PaymentRequest, PaymentStatus, ProblemDocument
from payments_client.types import UNSET

URL = os.environ["PAYMENTS_API_URL"]
CLIENT = AuthenticatedClient(base_url=URL, token=os.environ["PAYMENTS_API_KEY"], timeout=httpx.Timeout(60))


def order(end_to_end_id, amount):
    return PaymentRequest(
        amount=amount,
        currency="EUR",
        source_account=os.environ["SOURCE_ACCOUNT"],
        destination_account="XX-BOB",
        end_to_end_id=end_to_end_id,
    )


def create(key, body, client=CLIENT):
    return create_payment.sync_detailed(client=client, body=body, idempotency_key=key)


def cancel(key, payment_id):
    return cancel_payment.sync_detailed(payment_id, client=CLIENT, idempotency_key=key)


def ended(payment_id):
    while True:
        payment = retrieve_payment.sync(payment_id, client=CLIENT, wait=20)
        if payment.ended:
            return payment


# Create and repeat.
created = create("python-settle", order("settle", "5.00"))
assert (created.status_code, created.headers["Idempotent-Replay"]) == (201, "false"), created
assert isinstance(created.parsed, Acceptance) and created.parsed.amount == "5.00", created
repeated = create("python-settle", order("settle", "5.00"))
assert (repeated.status_code, repeated.headers["Idempotent-Replay"]) == (200, "true"), repeated
assert (repeated.parsed, repeated.content) == (created.parsed, created.content), repeated

# Problems have a status, a stable code and a detail.
problems = [
    (create("python-settle", order("settle", "5.01")), 422, "payload_mismatch"),
    (create("python-zero", order("zero", "0")), 422, "invalid_amount"),
    (retrieve_payment.sync_detailed("pay_unknown", client=CLIENT), 404, "payment_not_found"),
    (list_payments.sync_detailed(client=AuthenticatedClient(base_url=URL, token="wrong")), 401, "unauthorized"),
    # It is refused before its body is read, and the server closes such a connection: no later request may be on its way there.
    (create("", order("keyless", "1.00"), AuthenticatedClient(base_url=URL, token=os.environ["PAYMENTS_API_KEY"], timeout=httpx.Timeout(60))), 400, "idempotency_key_malformed"),
]
for response, status, code in problems:
    problem = response.parsed
    assert isinstance(problem, ProblemDocument), response
    assert (response.status_code, problem.status, problem.code, problem.type_) == (status, status, code, f"urn:problem:{code}"), response

# Read, list and stream.
settled = ended(created.parsed.payment_id)
assert settled.status is PaymentStatus.SETTLED, settled
assert [str(entry.status) for entry in settled.timeline] == ["accepted", "reserved", "submitted", "confirmed", "settled"], settled
listed = list_payments.sync(client=CLIENT, state=PaymentStatus.SETTLED, end_to_end_id="settle")
assert [payment.payment_id for payment in listed.payments] == [settled.payment_id], listed
events = stream_payment_events.sync(settled.payment_id, client=CLIENT)
names = [line.removeprefix("event: ") for line in events.splitlines() if line.startswith("event: ")]
assert names == ["accepted", "reserved", "submitted", "confirmed", "settled", "end"], events

# Cancel.
second = create("python-cancel", order("cancel", "6.00")).parsed
requested = cancel("python-cancel-request", second.payment_id)
assert requested.status_code == 202 and isinstance(requested.parsed, CancelRequested), requested
cancelled = ended(second.payment_id)
assert cancelled.status is PaymentStatus.CANCELLED and cancelled.links.cancel is UNSET, cancelled
late = cancel("python-cancel-late", second.payment_id)
assert (late.status_code, late.parsed.code) == (409, "payment_ended"), late

print(json.dumps({"settled": settled.payment_id, "cancelled": cancelled.payment_id}))
