// The palette, which finds anything by its name as it is typed, and the shortcuts. Without it the link
// "Search" leads to a page that finds the same.
"use strict";

(() => {
  const palette = document.getElementById("palette");
  const keys = document.getElementById("keys");
  if (palette === null || keys === null) return;
  const field = palette.querySelector("input");
  const list = palette.querySelector("ul");
  const told = palette.querySelector("[role=status]");
  const WAIT_MS = 150; // after the last letter, before anybody is asked
  const GO_MS = 1500; // between "g" and the letter of a page
  let waiting = 0;
  let asking = null;
  let going = -GO_MS;

  function show(page) {
    const items = [...page.querySelectorAll("a[data-hit]")].map((hit) => {
      const item = document.createElement("li");
      item.append(document.importNode(hit, true)); // escaped by the server; scripts in it do not run
      return item;
    });
    list.replaceChildren(...items);
    told.textContent = String(items.length);
  }

  async function look() {
    asking?.abort();
    asking = new AbortController();
    const address = new URL("/search", location.origin);
    address.searchParams.set("q", field.value);
    address.searchParams.set("_part", "hits");
    try {
      const answer = await fetch(address, { signal: asking.signal, redirect: "manual" });
      if (!answer.ok) {
        if (answer.type === "opaqueredirect") location.reload(); // the session has ended
        return;
      }
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch (error) {
      if (error.name !== "AbortError") told.textContent = "";
    }
  }

  function open() {
    if (palette.open) return;
    palette.showModal();
    field.select();
    if (list.childElementCount === 0 && field.value) look();
  }

  // Up and down go through the field and what was found; Enter follows the first when the field has the focus.
  function step(by) {
    const stops = [field, ...list.querySelectorAll("a")];
    const at = stops.indexOf(document.activeElement);
    stops[(Math.max(at, 0) + by + stops.length) % stops.length].focus();
  }

  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(look, WAIT_MS);
  });
  palette.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(event.key === "ArrowDown" ? 1 : -1);
    }
  });
  for (const dialog of [palette, keys]) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close]") !== null) dialog.close();
    });
  }
  document.querySelector("[data-palette]")?.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab was asked for
    event.preventDefault();
    open();
  });

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
      return;
    }
    const typing = event.target.closest("input, textarea, select, [contenteditable]") !== null;
    if (typing || event.ctrlKey || event.metaKey || event.altKey || palette.open || keys.open) return;
    if (event.key === "?") {
      event.preventDefault();
      keys.showModal();
    } else if (event.key === "g" && performance.now() - going >= GO_MS) {
      going = performance.now();
    } else if (performance.now() - going < GO_MS) {
      going = -GO_MS;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link !== null) {
        event.preventDefault();
        link.click();
      }
    }
  });
})();
