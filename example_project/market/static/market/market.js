// Countdowns, and regions that are replaced when they change. Without this script every page works, and shows the
// changes after a reload.
"use strict";

(() => {
  // Offset of the server's clock: a wrong clock here must not end a countdown early.
  const ahead = Number(document.documentElement.dataset.now) - Date.now();
  const now = () => Date.now() + ahead;
  const all = (selector, root = document) => root.querySelectorAll(selector);

  // --- Countdowns ---
  const two = (number) => String(number).padStart(2, "0");

  function remaining(ms) {
    if (ms <= 0) return "now";
    if (ms < 9950) return `${(Math.ceil(ms / 100) / 10).toFixed(1)} s`;
    const seconds = Math.ceil(ms / 1000);
    const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24];
    const minutes = Math.floor(seconds / 60) % 60;
    if (days) return `${days} d ${hours} h`;
    if (hours) return `${hours} h ${two(minutes)} min`;
    return `${minutes}:${two(seconds % 60)}`;
  }

  function tick() {
    let over = false;
    for (const clock of all("[data-countdown]")) {
      const left = Number(clock.dataset.countdown) - now();
      const text = remaining(left);
      if (clock.textContent !== text) clock.textContent = text;
      over ||= left <= 0;
    }
    return over;
  }

  // --- Moments in the reader's time zone ---
  const formats = {
    time: { timeStyle: "medium" },
    moment: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" },
  };

  function moment(ms) {
    const today = new Date(ms).toDateString() === new Date(now()).toDateString();
    return new Intl.DateTimeFormat(undefined, today ? formats.time : formats.moment).format(ms);
  }

  function localize(root) {
    for (const time of all("time[data-local]", root)) {
      time.title = time.textContent.trim();
      time.textContent = moment(Date.parse(time.dateTime));
    }
  }

  // --- Regions that are replaced when the server has a new version ---
  const live = document.querySelector("[data-live]");
  let fetching = false;
  let next = 0;
  let eager = 0;

  function replaceRegions(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    let changed = false;
    for (const region of all("[data-region]", fresh)) {
      const old = live.querySelector(`[data-region="${region.dataset.region}"]`);
      if (!old || old.dataset.version === region.dataset.version) continue;
      const phase = (version) => version.split(":")[0];
      // Keep a region in which the player is typing, unless its phase is over.
      const busy = old.matches(":focus-within") || old.querySelector("details[open]");
      if (busy && phase(old.dataset.version) === phase(region.dataset.version)) continue;
      localize(region);
      old.replaceWith(document.adoptNode(region));
      if (region.dataset.announce) document.getElementById("announcement").textContent = region.dataset.announce;
      changed = true;
    }
    return changed;
  }

  async function refresh() {
    fetching = true;
    let pause = 3000;
    try {
      const response = await fetch(live.dataset.live, { headers: { Accept: "text/html" } });
      if (!response.ok) throw new Error(String(response.status));
      if (replaceRegions(await response.text())) eager = 0;
    } catch {
      pause = 10000;
    }
    next = Date.now() + pause;
    fetching = false;
  }

  function update() {
    const over = tick();
    if (!live || fetching || document.hidden) return;
    // A countdown is over: the change comes within milliseconds, so fetch often, but at most 20 times.
    if (!over) eager = 0;
    else if (eager < 20) next = Math.min(next, Date.now() + 100);
    if (Date.now() < next) return;
    if (over) eager += 1;
    refresh();
  }

  // --- Preview of the moments that the sell form's numbers mean ---
  const sell = document.getElementById("sell");

  function preview() {
    const ms = (name) => 1000 * sell.elements[`${name}_0`].value * sell.elements[`${name}_1`].value;
    const [wait, span, lead] = [ms("opens_in"), ms("open_for"), 1000 * sell.dataset.lead];
    const hint = document.getElementById("preview");
    hint.dataset.first ??= hint.textContent;
    if (!wait || wait > 6e9) {
      hint.textContent = hint.dataset.first;
      return;
    }
    const parts = [`Opens ${moment(now() + wait)}`];
    if (wait > lead) parts.push(`reminder ${moment(now() + wait - lead)}`);
    if (span && span < 6e9) parts.push(`bids close ${moment(now() + wait + span)}`);
    hint.textContent = parts.join(" · ");
  }

  localize(document);
  next = Date.now() + 2000;
  update();
  setInterval(update, 100);
  if (sell) {
    sell.addEventListener("input", preview);
    setInterval(preview, 1000);
    preview();
  }
})();
