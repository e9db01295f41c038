"""Pays an order once, whatever answers are lost: `python retry_safe.py ORDER AMOUNT SOURCE DESTINATION`.

Run it again after a crash: it finds the payment of the order, or makes it.
"""

import json
import os
import random
import sqlite3
import sys
import time
import uuid

import httpx
from payments_client import AuthenticatedClient
from payments_client.api.payments import create_payment
from payments_client.models import Acceptance, PaymentRequest

ATTEMPTS_MAX = 20
ATTEMPT_TIMEOUT_S = 5.0


def stored_key(keys, order):
    """The key of the order: made once, stored before the first attempt. Your system stores it in the row of the order."""
    with keys:
        keys.execute("CREATE TABLE IF NOT EXISTS keys (order_id TEXT PRIMARY KEY, key TEXT NOT NULL)")
        keys.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", (order, str(uuid.uuid4())))
    return keys.execute("SELECT key FROM keys WHERE order_id = ?", (order,)).fetchone()[0]


def pay_once(client, keys, order, body):
    key = stored_key(keys, order)
    for attempt in range(ATTEMPTS_MAX):
        wait_s = random.uniform(0, min(0.5 * 2**attempt, 30))
        try:
            answer = create_payment.sync_detailed(client=client, body=body, idempotency_key=key)
        except (httpx.TransportError, KeyError, TypeError, ValueError):
            pass  # a timeout, a connection refused or cut, or another answer than the API's: the outcome is unknown
        else:
            if isinstance(answer.parsed, Acceptance):
                return answer.parsed
            if answer.status_code < 500 and answer.status_code not in (408, 409, 429):
                raise SystemExit(f"order {order} is refused: {answer.parsed.code}: {answer.parsed.detail}")
            wait_s = float(answer.headers.get("Retry-After", wait_s))
        time.sleep(wait_s)
    raise SystemExit(f"the outcome of order {order} is unknown after {ATTEMPTS_MAX} attempts: run this again, its key is stored")


if __name__ == "__main__":
    order, amount, source, destination = sys.argv[1:]
    body = PaymentRequest(amount=amount, currency="EUR", source_account=source, destination_account=destination)
    client = AuthenticatedClient(
        base_url=os.environ["PAYMENTS_API_URL"], token=os.environ["PAYMENTS_API_KEY"], timeout=httpx.Timeout(ATTEMPT_TIMEOUT_S)
    )
    print(json.dumps(pay_once(client, sqlite3.connect("keys.db"), order, body).to_dict()))
