// The page: the schedule that the visitor builds, the run that an engine makes of it, and the link that reproduces both.
"use strict";

const MILLISECONDS_PER_STEP = window.matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 90;
const get = (id) => document.getElementById(id);
const money = (minor) => `$${minor % 100 === 0 ? minor / 100 : (minor / 100).toFixed(2)}`;

/** What the server offers; the schedule as instant -> fault; the fault that waits for an instant; the run and the bug under way. */
let offer;
const schedule = new Map();
let picked = null;
let runNumber = 0;
let bugNumber = 0;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const titleOf = (words, name) => words.find((word) => word.name === name).title;
const scheduleText = () =>
  offer.instants.filter((at) => schedule.has(at.name)).map((at) => `${at.name}:${schedule.get(at.name)}`).join(",");
const engine = () => document.querySelector("input[name=engine]:checked").value;

// The schedule.

function drop(fault, at) {
  const fits = offer.faults.find((word) => word.name === fault).instants;
  if (!fits.includes(at)) return;
  schedule.set(at, fault);
  pick(null);
  changed(null);
}

function pick(fault) {
  picked = fault;
  showSchedule();
}

/** Shows a changed schedule, and puts it into the link. */
function changed(lesson) {
  for (const button of get("lessons").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.lesson === lesson));
  }
  get("lesson-text").textContent = lesson ? offer.lessons.find((one) => one.name === lesson).text : "";
  showSchedule();
  writeLink();
}

function writeLink() {
  const words = new URLSearchParams({ schedule: scheduleText(), engine: engine() });
  if (engine() === "simulation" && get("profile").value !== offer.default_profile) words.set("profile", get("profile").value);
  if (get("bug").value) words.set("bug", get("bug").value);
  history.replaceState(null, "", `#${words}`);
  get("link").href = `#${words}`;
}

function showSchedule() {
  const fits = picked ? offer.faults.find((word) => word.name === picked).instants : [];
  for (const chip of get("faults").querySelectorAll("button")) {
    chip.setAttribute("aria-pressed", String(chip.dataset.fault === picked));
  }
  for (const place of get("instants").children) {
    const at = place.dataset.instant;
    const fault = schedule.get(at);
    place.classList.toggle("fits", fits.includes(at));
    place.classList.toggle("faulty", Boolean(fault));
    place.tabIndex = fits.includes(at) ? 0 : -1;
    place.querySelector(".dropped")?.remove();
    if (fault) {
      const title = titleOf(offer.faults, fault);
      const chip = element("button", { type: "button", className: "dropped", textContent: `${title} ×` });
      chip.setAttribute("aria-label", `Remove ${title} at ${titleOf(offer.instants, at)}`);
      chip.addEventListener("click", (event) => {
        event.stopPropagation();
        schedule.delete(at);
        changed(null);
      });
      place.append(chip);
    }
  }
}

function buildSchedule() {
  for (const fault of offer.faults) {
    const chip = element("button", { type: "button", className: "fault", draggable: true, textContent: fault.title, title: fault.meaning });
    chip.dataset.fault = fault.name;
    chip.addEventListener("click", () => pick(picked === fault.name ? null : fault.name));
    chip.addEventListener("dragstart", (event) => {
      event.dataTransfer.setData("text/plain", fault.name);
      pick(fault.name);
    });
    chip.addEventListener("dragend", () => pick(null));
    get("faults").append(element("li", {}, chip));
  }
  for (const at of offer.instants) {
    const place = element("li", { className: "instant", title: at.meaning }, at.title);
    place.dataset.instant = at.name;
    const take = (fault) => fault && drop(fault, at.name);
    place.addEventListener("click", () => take(picked));
    place.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        take(picked);
      }
    });
    place.addEventListener("dragover", (event) => {
      if (!place.classList.contains("fits")) return;
      event.preventDefault();
      place.classList.add("over");
    });
    place.addEventListener("dragleave", () => place.classList.remove("over"));
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      place.classList.remove("over");
      take(event.dataTransfer.getData("text/plain"));
    });
    get("instants").append(place);
  }
}

// A run.

function sideOf(step) {
  return get(step.side);
}

function clearResult() {
  get("message").textContent = "";
  get("result").dataset.state = "running";
  for (const side of [get("with-keys"), get("without-keys")]) {
    side.querySelector(".charged").textContent = "$0";
    side.querySelector(".left").textContent = "$0";
    side.querySelector(".finding").textContent = "";
    side.querySelector("tbody").replaceChildren();
    side.querySelector(".steps").replaceChildren();
  }
}

/** The text, with its addresses as links: a real payment's step names its workflow. */
function linked(text) {
  return text.split(/(https?:\/\/\S+)/).map((part, n) =>
    n % 2 === 1 ? element("a", { href: part, textContent: part.split("/").pop(), target: "_blank", rel: "noopener" }) : part);
}

function showStep(step) {
  const when = step.after_ms === null ? titleOf(offer.instants, step.at) : `${(step.after_ms / 1000).toFixed(1)} s`;
  const line = element("li", {}, element("span", { textContent: when }), element("span", {}, ...linked(step.text)));
  line.classList.toggle("fault-step", step.fault !== null);
  sideOf(step).querySelector(".steps").append(line);
  for (const place of get("instants").children) place.classList.toggle("now", place.dataset.instant === step.at);
}

/** Says in words whether what left the bank was charged, once at most, and the customer got that answer. */
function finding(outcome) {
  const times = outcome.charged_minor / offer.amount_minor;
  const paid = outcome.charged_minor + outcome.claimed_minor;
  const charged = times === 0 ? "not charged" : times === 1 ? "charged once" : times === 2 ? "charged twice" : `charged ${times} times`;
  const claimed = outcome.claimed_minor > 0 ? `; the bank pays ${money(outcome.claimed_minor)} from its claims account and asks for it back` : "";
  const lost = outcome.left_minor - paid;
  const answer = `the answer is “${outcome.answer}”`;
  const answeredRight = (outcome.answer === "settled") === (paid > 0);
  const right = lost === 0 && paid <= offer.amount_minor && answeredRight;
  const bank = lost > 0 ? `; the bank lost ${money(lost)}` : lost < 0 ? `; ${money(-lost)} too much` : "";
  return { right, text: `${right ? "Right" : "Wrong"}: ${charged}, ${answer}${claimed}${bank}` };
}

function showOutcome(side, outcome) {
  const { right, text } = finding(outcome);
  side.querySelector(".charged").textContent = money(outcome.charged_minor);
  side.querySelector(".left").textContent = money(outcome.left_minor);
  const words = side.querySelector(".finding");
  words.textContent = text;
  words.classList.toggle("right", right);
  words.classList.toggle("wrong", !right);
  const entries = outcome.entries.map((entry) =>
    element("tr", {}, element("td", { textContent: entry.text }), element("td", { textContent: (entry.amount_minor / 100).toFixed(2) })));
  const none = [element("tr", {}, element("td", { textContent: "no entry" }), element("td"))];
  side.querySelector("tbody").replaceChildren(...(entries.length ? entries : none));
}

function showRun(run) {
  showOutcome(get("with-keys"), run.with_keys);
  showOutcome(get("without-keys"), run.without_keys);
  for (const place of get("instants").children) place.classList.remove("now");
  get("result").dataset.state = "done";
}

function fail(message) {
  get("message").textContent = message;
  get("result").dataset.state = "failed";
}

async function problemOf(response) {
  const problem = await response.json().catch(() => ({}));
  return problem.detail ?? problem.title ?? `the server answered ${response.status}`;
}

async function simulate(number) {
  const asked = new URLSearchParams({ schedule: scheduleText(), profile: get("profile").value });
  const response = await fetch(`api/simulation?${asked}`);
  if (!response.ok) return fail(await problemOf(response));
  const run = await response.json();
  const sides = ["with-keys", "without-keys"].map((side) => run.steps.filter((step) => step.side === side));
  for (let n = 0; n < Math.max(sides[0].length, sides[1].length); n += 1) {
    for (const side of sides) if (n < side.length) showStep(side[n]);
    if (MILLISECONDS_PER_STEP > 0) await new Promise((wake) => setTimeout(wake, MILLISECONDS_PER_STEP));
    if (number !== runNumber) return undefined;
  }
  return showRun(run);
}

/** Reads a line of JSON for each step, while the processes run. */
async function runReal(number) {
  const response = await fetch("api/real", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ schedule: scheduleText() }),
  });
  if (!response.ok) return fail(await problemOf(response));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (number !== runNumber) return reader.cancel();
    if (done) return get("result").dataset.state === "running" ? fail("the server ended the run without a result") : undefined;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((text) => JSON.parse(text))) {
      if (line.step) showStep(line.step);
      else if (line.run) showRun(line.run);
      else fail(line.problem);
    }
  }
}

async function start() {
  runNumber += 1;
  const number = runNumber;
  clearResult();
  get("run").disabled = engine() === "real";
  try {
    await (engine() === "real" ? runReal(number) : simulate(number));
  } catch (error) {
    if (number === runNumber) fail(`the playground does not answer: ${error.message}`);
  } finally {
    if (number === runNumber) get("run").disabled = false;
  }
}

// Seeded bugs.

/** Plays the recorded sequence, a step at a time; another bug, or none, ends it. */
async function playBug(name) {
  bugNumber += 1;
  const number = bugNumber;
  const bug = offer.bugs.find((one) => one.name === name);
  const played = get("bug-played");
  played.hidden = !bug;
  played.dataset.state = bug ? "playing" : "none";
  if (!bug) return;
  get("bug-text").textContent = bug.description;
  get("bug-profile").textContent = `At the switch ${bug.profile}:`;
  get("bug-steps").replaceChildren();
  get("bug-broken").textContent = "";
  for (const [n, step] of bug.steps.entries()) {
    get("bug-steps").append(element("li", {}, element("span", { textContent: String(n) }), element("span", { textContent: step })));
    if (MILLISECONDS_PER_STEP > 0) await new Promise((wake) => setTimeout(wake, MILLISECONDS_PER_STEP));
    if (number !== bugNumber) return;
  }
  get("bug-broken").textContent = `${bug.violates} does not hold: ${bug.invariant}`;
  played.dataset.state = "done";
}

// The start.

function chooseLesson(lesson) {
  schedule.clear();
  for (const part of lesson.schedule.split(",")) schedule.set(...part.split(":"));
  changed(lesson.name);
  start();
}

function readLink() {
  const words = new URLSearchParams(location.hash.slice(1));
  schedule.clear();
  for (const part of (words.get("schedule") ?? "").split(",").filter(Boolean)) schedule.set(...part.split(":"));
  const known = (list, name) => list.some((word) => word.name === name);
  for (const [at, fault] of schedule) {
    if (!known(offer.instants, at) || !known(offer.faults, fault)) {
      schedule.clear();
      fail(`the link has an unknown instant or fault: ${at}:${fault}`);
      break;
    }
  }
  const real = words.get("engine") === "real" && offer.has_real;
  document.querySelector(`input[value=${real ? "real" : "simulation"}]`).checked = true;
  const profile = words.get("profile") ?? offer.default_profile;
  const knowsProfile = offer.profiles.includes(profile);
  if (!knowsProfile) fail(`the link names a switch profile that the page does not offer: ${profile}`);
  get("profile").value = knowsProfile ? profile : offer.default_profile;
  get("profile").disabled = real;
  const bug = words.get("bug") ?? "";
  const knowsBug = bug === "" || known(offer.bugs, bug);
  if (!knowsBug) fail(`the link names an unknown seeded bug: ${bug}`);
  get("bug").value = knowsBug ? bug : "";
  playBug(get("bug").value);
  const lesson = offer.lessons.find((one) => one.schedule === scheduleText());
  changed(lesson?.name ?? null);
  // A link never kills a process by itself: a real run waits for the button.
  if (words.has("schedule") && !real && get("result").dataset.state === "none") start();
}

async function open() {
  const response = await fetch("api/offer");
  if (!response.ok) return fail(await problemOf(response));
  offer = await response.json();
  buildSchedule();
  for (const lesson of offer.lessons) {
    const button = element("button", { type: "button" }, element("small", { textContent: lesson.source }), lesson.title);
    button.dataset.lesson = lesson.name;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => chooseLesson(lesson));
    get("lessons").append(element("li", {}, button));
  }
  get("profile").append(...offer.profiles.map((name) => element("option", { value: name, textContent: name })));
  get("bug").append(...offer.bugs.map((bug) => element("option", { value: bug.name, textContent: bug.description })));
  const real = document.querySelector("input[value=real]");
  real.disabled = !offer.has_real;
  get("traces-link").hidden = !offer.has_traces;
  if (!offer.has_real) real.parentElement.title = "The page was started alone; ./dev up starts it with the real processes.";
  get("controls").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  for (const input of document.querySelectorAll("input[name=engine]")) {
    input.addEventListener("change", () => {
      get("profile").disabled = engine() === "real";
      writeLink();
    });
  }
  get("profile").addEventListener("change", writeLink);
  get("clear").addEventListener("click", () => {
    schedule.clear();
    changed(null);
  });
  get("bug").addEventListener("change", () => {
    playBug(get("bug").value);
    writeLink();
  });
  window.addEventListener("hashchange", () => {
    get("result").dataset.state = "none";
    readLink();
  });
  readLink();
  document.body.dataset.state = "ready";
}

open().catch((error) => fail(`the playground does not answer: ${error.message}`));
