// What pages do beyond being read: the reader's own time zone, parts that change while a page is open,
// "/" for the search, copying, values of charts. Every page works without it.
"use strict";

const zoned = new Intl.DateTimeFormat("sv-SE", { // 2026-11-23 09:00:00 GMT+8, which no reader takes for another day
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hour12: false, timeZoneName: "short",
});

// What stands below a chart: 09:00, or 11-23 for a day.
function label(form, at) {
  const two = (number) => String(number).padStart(2, "0");
  return form === "day" ? `${two(at.getMonth() + 1)}-${two(at.getDate())}` : `${two(at.getHours())}:${two(at.getMinutes())}`;
}

// A time with the reader's zone, as forms take it: 2026-11-23T09:00:00+08:00.
function iso(at) {
  const two = (number) => String(number).padStart(2, "0");
  const ahead = -at.getTimezoneOffset();
  const zone = `${ahead < 0 ? "-" : "+"}${two(Math.trunc(Math.abs(ahead) / 60))}:${two(Math.abs(ahead) % 60)}`;
  return new Date(at.getTime() + ahead * 60000).toISOString().slice(0, 19) + zone;
}

function localize(within) {
  for (const one of within.querySelectorAll("input[data-moment]")) {
    const at = new Date(one.value);
    if (!Number.isNaN(at.getTime())) one.value = iso(at);
  }
  for (const one of within.querySelectorAll(".plot")) one.scrollLeft = one.scrollWidth; // the newest values
  for (const one of within.querySelectorAll("button[data-copy-table]")) one.hidden = false;
  for (const one of within.querySelectorAll("text[data-at]")) {
    one.textContent = label(one.dataset.form, new Date(Number(one.dataset.at)));
  }
  for (const one of within.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (!Number.isNaN(at.getTime())) {
      one.title = one.dateTime;
      one.textContent = zoned.format(at);
    }
  }
}

// A part that the reader is in (focus, selected text, something opened) stays as it is.
function isInUse(part) {
  const picked = document.getSelection();
  return part.contains(document.activeElement)
    || part.querySelector("details[open]") !== null
    || (picked !== null && !picked.isCollapsed && part.contains(picked.anchorNode));
}

function replace(name, html) {
  const part = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
  if (part === null || isInUse(part)) return;
  const scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  part.innerHTML = html; // made by the server, which escapes what others wrote; scripts in it do not run
  localize(part);
  part.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = scrolled[index] ?? one.scrollLeft; });
  part.classList.remove("fresh");
  void part.offsetWidth;
  part.classList.add("fresh");
}

// One stream for the page, only while it is seen: browsers have six connections to a server, over all tabs.
function follow(path) {
  let source = null;
  let stale = null; // what says that the page is not followed
  function say(text) {
    const told = document.createElement("p");
    told.className = "problem";
    told.setAttribute("role", "alert");
    told.textContent = text;
    document.querySelector("main").prepend(told);
    return told;
  }
  function begin() {
    const address = new URL(path, location.origin);
    address.searchParams.set("_live", "1");
    source = new EventSource(address);
    source.onmessage = (event) => {
      const found = JSON.parse(event.data);
      replace(found.part, found.html);
    };
    source.onopen = () => {
      stale?.remove();
      stale = null;
    };
    source.onerror = () => { // a connection that was lost is made again by the browser; a refusal is for good
      if (source?.readyState !== EventSource.CLOSED) return;
      stale ??= say(document.body.dataset.stale);
      setTimeout(look, 30000);
    };
    source.addEventListener("end", () => {
      source.close();
      document.body.classList.add("ended");
      say(document.body.dataset.ended);
    });
  }
  function look() {
    if (document.visibilityState === "visible") {
      if (source === null || source.readyState === EventSource.CLOSED) begin();
    } else if (source !== null) {
      source.close();
      source = null;
    }
  }
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", () => source?.close());
  look();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector("[data-search]");
    if (search !== null) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  }
});

function copy(button, text) {
  navigator.clipboard?.writeText(text).then(() => {
    const said = button.textContent;
    button.textContent = document.body.dataset.copied;
    setTimeout(() => { button.textContent = said; }, 1500);
  });
}

// A cell for a spreadsheet: one line, and no formula, as in the CSV.
function cell(one) {
  const text = one.textContent.trim().replace(/\s+/g, " ");
  return /^[=+\-@]/.test(text) && !one.classList.contains("number") ? `'${text}` : text;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (button !== null) copy(button, button.dataset.copy);
  const rows = event.target.closest("button[data-copy-table]");
  if (rows === null) return;
  const table = rows.closest("[data-part]").querySelector("table");
  copy(rows, [...table.rows].map((row) => [...row.cells].map(cell).join("\t")).join("\n"));
});

// Charts: what the values were at a time, read from the table below the chart.
function tell(plot, place) {
  const count = Number(plot.dataset.count);
  const at = Math.min(count - 1, Math.max(0, place));
  const chart = plot.closest(".chart");
  const row = chart.querySelectorAll("table.series tbody tr")[at];
  if (row === undefined) return;
  plot.dataset.place = at;
  const names = [...chart.querySelectorAll("table.series thead th")].map((one) => `\u2068${one.textContent}\u2069`);
  const said = [...row.cells].map((one, index) => (index === 0 ? one.textContent : `${names[index]}: ${one.textContent}`));
  chart.querySelector("output").textContent = said.join(" \u00b7 ");
  const rule = plot.querySelector(".rule");
  const left = Number(rule.dataset.left);
  const x = left + (at / Math.max(1, count - 1)) * (Number(rule.dataset.right) - left);
  rule.setAttribute("x1", x);
  rule.setAttribute("x2", x);
  rule.classList.add("shown");
}

document.addEventListener("pointermove", (event) => {
  const drawn = event.target.closest?.(".plot svg");
  if (!drawn) return;
  const box = drawn.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * drawn.viewBox.baseVal.width;
  const rule = drawn.querySelector(".rule");
  const left = Number(rule.dataset.left);
  const part = (x - left) / (Number(rule.dataset.right) - left);
  const plot = drawn.closest(".plot");
  tell(plot, Math.round(part * (Number(plot.dataset.count) - 1)));
});

document.addEventListener("keydown", (event) => {
  const plot = event.target.closest?.(".plot");
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!plot || step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const last = Number(plot.dataset.count) - 1;
  tell(plot, step === -Infinity ? 0 : step === Infinity ? last : Number(plot.dataset.place ?? last) + step);
});

localize(document);
const current = document.querySelector(".bar nav [aria-current]");
if (current !== null) { // on a narrow screen the menu is wider than the screen
  const menu = current.closest("nav");
  menu.scrollLeft = current.offsetLeft - (menu.clientWidth - current.offsetWidth) / 2;
}
const live = document.querySelector("[data-live]");
if (live !== null) follow(live.dataset.live);
