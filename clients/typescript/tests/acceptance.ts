/**
 * Drives the payments API by the client and checks every answer. tests/acceptance/generated_clients.rs starts it, makes the
 * switch confirm the payment with the end-to-end id `settle`, and compares the books with the printed payment ids.
 */
import assert from "node:assert/strict";

import { paymentsClient, type Schemas } from "../src/index.js";

const url = process.env.PAYMENTS_API_URL ?? "";
const client = paymentsClient(url, process.env.PAYMENTS_API_KEY ?? "");
const source_account = process.env.SOURCE_ACCOUNT ?? "";

function order(endToEndId: string, amount: string): Schemas["PaymentRequest"] {
  return { amount, currency: "EUR", source_account, destination_account: "XX-BOB", end_to_end_id: endToEndId };
}

function create(key: string, body: Schemas["PaymentRequest"]) {
  return client.POST("/api/v1/payments", { body, params: { header: { "Idempotency-Key": key } } });
}

function cancel(key: string, payment_id: string) {
  const params = { path: { payment_id }, header: { "Idempotency-Key": key } };
  return client.POST("/api/v1/payments/{payment_id}/cancel", { params });
}

async function ended(payment_id: string): Promise<Schemas["PaymentWithTimeline"]> {
  for (;;) {
    const { data, error } = await client.GET("/api/v1/payments/{payment_id}", { params: { path: { payment_id }, query: { wait: 20 } } });
    assert.ok(data, error?.detail);
    if (data.ended) return data;
  }
}

// Create and repeat.
const created = await create("typescript-settle", order("settle", "5.00"));
assert.ok(created.data, created.error?.detail);
assert.equal(created.response.status, 201);
assert.equal(created.response.headers.get("Idempotent-Replay"), "false");
assert.equal(created.data.amount, "5.00");
const repeated = await create("typescript-settle", order("settle", "5.00"));
assert.equal(repeated.response.status, 200);
assert.equal(repeated.response.headers.get("Idempotent-Replay"), "true");
assert.deepEqual(repeated.data, created.data);

// Problems have a status, a stable code and a detail.
const problems: [string, { response: Response; error?: Schemas["ProblemDocument"] }, number, string][] = [
  ["another order with the same key", await create("typescript-settle", order("settle", "5.01")), 422, "payload_mismatch"],
  ["an amount of zero", await create("typescript-zero", order("zero", "0")), 422, "invalid_amount"],
  ["an unknown payment", await client.GET("/api/v1/payments/{payment_id}", { params: { path: { payment_id: "pay_unknown" } } }), 404, "payment_not_found"],
  ["another API key", await paymentsClient(url, "wrong").GET("/api/v1/payments"), 401, "unauthorized"],
  // @ts-expect-error: the types require the key.
  ["a request without a key", await client.POST("/api/v1/payments", { body: order("keyless", "1.00") }), 400, "idempotency_key_missing"],
];
for (const [name, { response, error }, status, code] of problems) {
  assert.equal(response.status, status, name);
  assert.deepEqual([error?.status, error?.code, error?.type], [status, code, `urn:problem:${code}`], name);
}

// Read, list and stream.
const settled = await ended(created.data.payment_id);
const status: Schemas["PaymentStatus"] = settled.status;
assert.equal(status, "settled");
assert.deepEqual(settled.timeline.map((entry) => entry.status), ["accepted", "reserved", "submitted", "confirmed", "settled"]);
const listed = await client.GET("/api/v1/payments", { params: { query: { state: "settled", end_to_end_id: "settle" } } });
assert.deepEqual(listed.data?.payments.map((payment) => payment.payment_id), [settled.payment_id]);
const events = await client.GET("/api/v1/payments/{payment_id}/events", { params: { path: { payment_id: settled.payment_id } }, parseAs: "text" });
assert.equal(events.data?.match(/^event: .*$/gm)?.join(), "event: accepted,event: reserved,event: submitted,event: confirmed,event: settled,event: end");

// Cancel.
const second = await create("typescript-cancel", order("cancel", "6.00"));
assert.ok(second.data, second.error?.detail);
const requested = await cancel("typescript-cancel-request", second.data.payment_id);
assert.equal(requested.response.status, 202);
assert.equal(requested.data?.status, "cancel_requested");
const cancelled = await ended(second.data.payment_id);
assert.equal(cancelled.status, "cancelled");
assert.equal(cancelled.links.cancel, undefined);
const late = await cancel("typescript-cancel-late", second.data.payment_id);
assert.deepEqual([late.response.status, late.error?.code], [409, "payment_ended"]);

console.log(JSON.stringify({ settled: settled.payment_id, cancelled: cancelled.payment_id }));
