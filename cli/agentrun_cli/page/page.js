// Live updates and keys. Without this script everything else works.
"use strict";

// A job's page: the parts that change, by their ids, whenever they have changed, while the tab is looked at.
const live = document.querySelector("[data-live]");
let source = null;

function follow() {
  if (document.hidden || !live) {
    source?.close();
    source = null;
  } else if (!source) {
    source = new EventSource(live.dataset.live);
    source.onmessage = event => {
      const had = document.activeElement;
      for (const [id, html] of Object.entries(JSON.parse(event.data))) document.getElementById(id).innerHTML = html;
      const isIt = one => one.id === had?.id && one.href === had?.href;
      if (had && !had.isConnected) [...document.querySelectorAll("a, button")].find(isIt)?.focus();
    };
  }
}

document.addEventListener("visibilitychange", follow);
follow();

// Review by keys, as in the terminal. Not while typing, and not if they are switched off.
const review = document.getElementById("review");
const keys = document.getElementById("keys");
const keysOn = document.getElementById("keys-on");
let isSent = false;

if (keysOn) {
  keysOn.parentElement.hidden = false;
  keysOn.checked = localStorage.getItem("keys") !== "off";
  keysOn.addEventListener("change", () => localStorage.setItem("keys", keysOn.checked ? "on" : "off"));
}
function leave(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return; // into another tab
  // An answer is sent once, however often a key or a button is pressed; and none once the page is being left.
  if (isSent) event.preventDefault();
  isSent = true;
}

document.addEventListener("submit", leave);
document.getElementById("later")?.addEventListener("click", leave);
window.addEventListener("pageshow", () => { isSent = false; });

const actions = {
  y: () => review.querySelector(".yes").click(),
  n: () => review.querySelector(".no").click(),
  w: () => document.getElementById("words").focus(),
  e: () => review.querySelector(".detail textarea, .detail input, .detail select")?.focus(),
  s: () => document.getElementById("later").click(),
  "?": () => { keys.open = !keys.open; },
};

document.addEventListener("keydown", event => {
  const isTyping = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && isTyping) event.target.blur();
  if (isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey || keysOn?.checked === false) return;
  const undo = event.key === "u" ? document.getElementById("undo") : null;
  const act = undo ? () => undo.click() : review && actions[event.key];
  if (!act || isSent) return;
  event.preventDefault();
  act();
});
