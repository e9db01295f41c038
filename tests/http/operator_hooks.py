"""Hooks for schemathesis (started by hostile_operator_requests.rs): existing ids, and the check for requests without a session."""

import os
import zlib

import schemathesis
from schemathesis import GenerationMode

KNOWN = {
    "payment_id": os.environ["HOSTILE_PAYMENTS"].split(","),
    "change_id": [os.environ["HOSTILE_CHANGE"]],
    "decision_id": [os.environ["HOSTILE_DECISION"]],
    "account_id": ["ALICE"],
    "tenant_id": ["test"],
}
WITHOUT_SESSION = os.environ["HOSTILE_WITHOUT_SESSION"] == "1"


@schemathesis.hook
def before_call(context, case, kwargs):
    # Requests that must be refused stay unchanged.
    if not case.meta or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    for name, known in KNOWN.items():
        if case.path_parameters and name in case.path_parameters:
            # By the generated value itself, so that the requests are deterministic.
            chosen = zlib.crc32(str(case.path_parameters[name]).encode())
            if chosen % 2:
                case.path_parameters[name] = known[chosen // 2 % len(known)]


@schemathesis.check
def requests_without_a_session_are_unauthorized(ctx, response, case):
    """401 also for malformed requests and unknown ids."""
    operation = case.operation.schema.raw_schema["paths"][case.path].get(case.method.lower())
    if WITHOUT_SESSION and operation and "security" in operation:
        assert response.status_code == 401, f"{response.status_code} without a session"
