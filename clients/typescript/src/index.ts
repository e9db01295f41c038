/** The payments API with the types of its OpenAPI document (`schema.ts` is generated). */
import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

/** The objects of the API: `Schemas["Payment"]`, `Schemas["ProblemDocument"]`. */
export type Schemas = components["schemas"];

/** A client: `GET`, `POST`, `PATCH` and `DELETE` take a path and return `data` or `error`, both typed, and the `response`. */
export type PaymentsClient = Client<paths>;

/** A client for the API at `baseUrl` with an API key. */
export function paymentsClient(baseUrl: string, apiKey: string): PaymentsClient {
  return createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${apiKey}` } });
}
