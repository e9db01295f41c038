/**
 * Pays an order once, whatever answers are lost: `node retry-safe.js ORDER AMOUNT SOURCE DESTINATION`.
 * Run it again after a crash: it finds the payment of the order, or makes it.
 */
import { randomUUID } from "node:crypto";
import { link, readFile, rm, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

import { paymentsClient, type PaymentsClient, type Schemas } from "../src/index.js";

const ATTEMPTS_MAX = 20;
const ATTEMPT_TIMEOUT_MS = 5_000;

/** The key of the order: made once, stored before the first attempt. Your system stores it in the row of the order. */
async function storedKey(order: string): Promise<string> {
  const file = `${order}.key`;
  const made = `${file}.${randomUUID()}`;
  await writeFile(made, randomUUID());
  await link(made, file).catch(() => undefined); // fails if the order has a key; nothing ever replaces it
  await rm(made);
  return readFile(file, "utf8");
}

async function payOnce(client: PaymentsClient, order: string, body: Schemas["PaymentRequest"]): Promise<Schemas["Acceptance"]> {
  const key = await storedKey(order);
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const answer = await client
      .POST("/api/v1/payments", { body, params: { header: { "Idempotency-Key": key } }, signal: AbortSignal.timeout(ATTEMPT_TIMEOUT_MS) })
      .catch(() => undefined); // a timeout, a connection refused or cut, or another answer than the API's: the outcome is unknown
    if (answer?.data) return answer.data;
    if (answer && answer.response.status < 500 && ![408, 409, 429].includes(answer.response.status)) {
      throw new Error(`order ${order} is refused: ${answer.error.code}: ${answer.error.detail}`);
    }
    const backoffS = Math.random() * Math.min(0.5 * 2 ** attempt, 30);
    await sleep(1_000 * (Number(answer?.response.headers.get("Retry-After")) || backoffS));
  }
  throw new Error(`the outcome of order ${order} is unknown after ${ATTEMPTS_MAX} attempts: run this again, its key is stored`);
}

const [order = "", amount = "", source_account = "", destination_account = ""] = process.argv.slice(2);
const client = paymentsClient(process.env.PAYMENTS_API_URL ?? "", process.env.PAYMENTS_API_KEY ?? "");
const accepted = await payOnce(client, order, { amount, currency: "EUR", source_account, destination_account });
console.log(JSON.stringify(accepted));
