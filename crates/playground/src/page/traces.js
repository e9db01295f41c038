// The page of traces: a list of the newest ones, and the spans of one on a time line.
"use strict";

const REFRESH_MS = 1_000;
/** Each process has a colour of its own; any other one has the last. */
const SERVICES = ["payments-api", "payment-worker", "background-worker", "notifier"];
const get = (id) => document.getElementById(id);

/** The chosen trace and span, and what the page shows of them. */
let chosenTrace = null;
let chosenSpan = null;
let shown = "";
let temporalUi = null;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const serviceClass = (service) => `service-${(SERVICES.indexOf(service) + SERVICES.length + 1) % (SERVICES.length + 1)}`;

function duration(microseconds) {
  if (microseconds < 1_000) return `${microseconds} µs`;
  if (microseconds < 1_000_000) return `${(microseconds / 1_000).toFixed(1)} ms`;
  return `${(microseconds / 1_000_000).toFixed(2)} s`;
}

async function read(path) {
  const response = await fetch(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail);
  return body;
}

/** The word of the address behind the #: a trace, or a payment whose trace is looked up. */
const linked = () => new URLSearchParams(location.hash.slice(1));

async function refresh() {
  const list = await read("api/traces");
  temporalUi = list.temporal_ui;
  const payment = linked().get("payment");
  if (!chosenTrace && payment) {
    const found = (await read(`api/traces?payment_id=${encodeURIComponent(payment)}`)).traces;
    // The oldest one: a later one is a retry, or a question about the payment.
    chosenTrace = found.length ? found[found.length - 1].trace_id : null;
  }
  showList(list.traces.filter((trace) => trace.payment_id || !get("payments-only").checked));
  if (chosenTrace) {
    const trace = chosenTrace;
    const { spans } = await read(`api/traces/${encodeURIComponent(trace)}`);
    // The visitor may have chosen another one meanwhile.
    if (trace !== chosenTrace) return;
    if (shown !== `${chosenTrace} ${spans.length}`) showTrace(spans);
  }
  const isMissing = payment && !chosenTrace;
  get("message").textContent = isMissing ? `No trace of ${payment} was received: its caller may have asked for none.` : "";
}

/** The list as it was last drawn: a row that is replaced while it is pressed takes no click. */
let listed = "";

function showList(traces) {
  const now = JSON.stringify([traces, chosenTrace]);
  if (now === listed) return;
  listed = now;
  const focused = document.activeElement?.dataset?.trace;
  const rows = traces.map((trace) => {
    const cells = [
      new Date(trace.started_us / 1_000).toLocaleTimeString(),
      trace.name,
      trace.payment_id ?? "",
      trace.spans,
      trace.services.length,
      duration(trace.duration_us),
    ];
    const row = element("tr", { tabIndex: 0 }, ...cells.map((text) => element("td", { textContent: text })));
    row.dataset.trace = trace.trace_id;
    row.setAttribute("aria-selected", String(trace.trace_id === chosenTrace));
    return row;
  });
  get("traces").tBodies[0].replaceChildren(...rows);
  if (focused) get("traces").querySelector(`[data-trace="${focused}"]`)?.focus();
}

/** The spans below their parents; one whose parent was not received stands at the top. */
function inOrder(spans) {
  const children = new Map();
  const known = new Set(spans.map((span) => span.span_id));
  for (const span of spans) {
    const parent = known.has(span.parent_id) ? span.parent_id : "";
    children.set(parent, [...(children.get(parent) ?? []), span]);
  }
  const ordered = [];
  const add = (parent, depth) => {
    for (const span of children.get(parent) ?? []) {
      ordered.push({ span, depth });
      add(span.span_id, depth + 1);
    }
  };
  add("", 0);
  return ordered;
}

function showTrace(spans) {
  shown = `${chosenTrace} ${spans.length}`;
  const start = Math.min(...spans.map((span) => span.started_us));
  const end = Math.max(...spans.map((span) => span.ended_us));
  const whole = Math.max(end - start, 1);
  // Of several processes of a program, as after a crash, each shows its id.
  const processes = new Map();
  for (const span of spans) processes.set(span.service, (processes.get(span.service) ?? new Set()).add(span.process_id));
  const processOf = (span) => (processes.get(span.service).size > 1 ? `${span.service} pid ${span.process_id}` : span.service);
  const rows = inOrder(spans).map(({ span, depth }) => {
    const attempt = span.attributes.attempt > 1 ? `, attempt ${span.attributes.attempt}` : "";
    const name = element("span", { className: "name", textContent: span.name }, element("small", { textContent: processOf(span) + attempt }));
    name.style.paddingLeft = `${depth * 1.1}rem`;
    const bar = element("span", { className: "bar" });
    bar.style.left = `${((span.started_us - start) / whole) * 100}%`;
    bar.style.width = `${((span.ended_us - span.started_us) / whole) * 100}%`;
    const row = element(
      "li",
      { className: serviceClass(span.service), tabIndex: 0 },
      name,
      element("span", { className: "lane" }, bar),
      element("span", { className: "duration", textContent: duration(span.ended_us - span.started_us) }),
    );
    row.classList.toggle("failed", span.failure !== null);
    row.dataset.span = span.span_id;
    row.addEventListener("click", () => choose(span, start));
    return row;
  });
  get("spans").replaceChildren(...rows);
  get("services").replaceChildren(
    ...[...new Set(spans.map((span) => span.service))].map((service) =>
      element("li", { className: serviceClass(service), textContent: service })),
  );
  get("trace-id").textContent = chosenTrace;
  const workflow = spans.find((span) => span.attributes["temporal.workflow_id"])?.attributes["temporal.workflow_id"];
  get("workflow").hidden = !(workflow && temporalUi);
  if (workflow && temporalUi) get("workflow").href = `${temporalUi}/${encodeURIComponent(workflow)}`;
  get("trace").hidden = false;
  get("trace").dataset.state = "shown";
  const span = spans.find((span) => span.span_id === chosenSpan);
  if (span) choose(span, start);
  else get("span").hidden = true;
}

/** Shows what is known of one span. */
function choose(span, start) {
  chosenSpan = span.span_id;
  for (const row of get("spans").children) row.setAttribute("aria-selected", String(row.dataset.span === chosenSpan));
  get("span-name").textContent = `${span.name} (${span.kind})`;
  const facts = [
    ["process", span.process_id === null ? span.service : `${span.service}, pid ${span.process_id}`],
    ["start", `${duration(span.started_us - start)} after the first span`],
    ["duration", duration(span.ended_us - span.started_us)],
    ...(span.failure === null ? [] : [["failed", span.failure]]),
    ...Object.entries(span.attributes),
    ...span.links.map((link) => ["leads to trace", link.trace_id]),
    ["span", span.span_id],
  ];
  const rows = facts.map(([name, value]) => {
    const cell = element("td");
    if (name === "leads to trace") cell.append(element("a", { href: `#trace=${value}`, textContent: value }));
    else cell.textContent = value;
    return element("tr", {}, element("td", { textContent: name }), cell);
  });
  get("attributes").replaceChildren(...rows);
  get("span").hidden = false;
}

function chooseTrace(traceId) {
  chosenTrace = traceId;
  chosenSpan = null;
  history.replaceState(null, "", `#trace=${traceId}`);
  update();
}

/** Reads anew; a problem is shown, and the next reading tries again. */
async function update() {
  try {
    await refresh();
    document.body.dataset.state = "ready";
  } catch (error) {
    get("message").textContent = error.message;
    document.body.dataset.state = "failed";
  }
}

function activate(event) {
  const row = event.target.closest("tr[data-trace]");
  if (row && (event.type === "click" || event.key === "Enter")) chooseTrace(row.dataset.trace);
}

get("traces").addEventListener("click", activate);
get("traces").addEventListener("keydown", activate);
get("spans").addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.target.closest("li")?.click();
});
get("payments-only").addEventListener("change", update);
window.addEventListener("hashchange", () => {
  chosenTrace = linked().get("trace");
  chosenSpan = null;
  get("trace").hidden = true;
  shown = "";
  update();
});

chosenTrace = linked().get("trace");
update();
setInterval(() => {
  if (!document.hidden) update();
}, REFRESH_MS);
