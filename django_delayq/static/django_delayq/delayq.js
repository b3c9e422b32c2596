/* What the pages do with a script: live update, relative times, select all, copy. All else works without it. */
"use strict";
{
    const root = document.getElementById("delayq");
    const texts = root.dataset;
    const units = texts.units.split("|");
    let skew = 0;

    const loadPreference = (key, otherwise) => {
        try { return localStorage.getItem("delayq." + key) ?? otherwise; } catch { return otherwise; }
    };
    const savePreference = (key, value) => {
        try { localStorage.setItem("delayq." + key, value); } catch { /* The preference lasts for this page only. */ }
    };

    /* Relative times. The server writes them in the reader's language; the script updates the numbers. */
    const relativeText = (seconds) => {
        const size = Math.abs(seconds);
        if (size < 1) return texts.now;
        const steps = [[99.5, 1], [99.5 * 60, 60], [47.5 * 3600, 3600], [Infinity, 86400]];
        const at = steps.findIndex(([limit]) => size < limit);
        const number = at ? Math.round(size / steps[at][1]) : Math.floor(size);
        const text = units[at].replace("%s", number.toLocaleString(document.documentElement.lang || undefined));
        return (seconds > 0 ? texts.in : texts.ago).replace("%s", text);
    };
    const updateTimes = () => {
        for (const time of root.querySelectorAll("time[datetime]")) {
            const at = new Date(time.dateTime);
            if (isNaN(at)) continue;
            const relative = time.firstElementChild ? time.querySelector(".delayq-relative") : time;
            const text = relative && relativeText((at - Date.now() - skew) / 1000);
            if (relative && relative.textContent !== text) relative.textContent = text;
        }
    };
    const readRedisClock = () => {
        // Redis's clock decides what is due, not the browser's.
        const redis = root.querySelector(".delayq-redis-now time");
        if (redis) skew = new Date(redis.dateTime) - Date.now();
        updateTimes();
    };

    const browserZoneLink = root.querySelector("[data-zone-link]");
    if (browserZoneLink) browserZoneLink.href = browserZoneLink.getAttribute("href").replace(/zone=[^&]*$/, "zone=" + Intl.DateTimeFormat().resolvedOptions().timeZone);

    /* Live update */
    const liveControls = document.getElementById("delayq-updating");
    const announcement = document.getElementById("delayq-announcement");
    const panel = document.getElementById("delayq-live");
    let etag = null, failures = 0, timer = 0, announcedAt = Date.now(), since = "";

    const isBusy = () => document.hidden || panel.contains(document.activeElement)
        || panel.querySelector("input[type=checkbox]:checked");
    const replacePanel = (html) => {
        const page = new DOMParser().parseFromString(html, "text/html");
        const fresh = page.getElementById("delayq-live");
        if (!fresh || isBusy()) return;
        for (const open of panel.querySelectorAll("details[open][id]")) {
            const again = fresh.querySelector("#" + CSS.escape(open.id));
            if (again) again.open = true;
        }
        const scrolled = [...panel.querySelectorAll(".delayq-scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
        panel.replaceChildren(...fresh.childNodes);
        panel.querySelectorAll(".delayq-scroll").forEach((each, at) => {
            if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
        });
        for (const count of page.querySelectorAll("[data-count]")) {
            const old = root.querySelector(`.delayq-tabs [data-count="${count.dataset.count}"]`);
            if (old) [old.textContent, old.className] = [count.textContent, count.className];
        }
        initPanel();
        const summary = panel.querySelector("[data-announce]");
        if (summary && Date.now() - announcedAt >= 30000) {
            announcement.textContent = summary.dataset.announce;
            announcedAt = Date.now();
        }
    };
    const update = async () => {
        if (!isBusy()) {
            try {
                const headers = etag ? { "If-None-Match": etag } : {};
                const response = await fetch(panel.dataset.url, { headers, credentials: "same-origin", redirect: "error" });
                if (response.status !== 304 && !response.ok) throw new Error(response.status);
                etag = response.headers.get("ETag");
                // Read in any case: a browser aborts a request whose response nobody reads.
                const text = await response.text();
                if (response.ok) replacePanel(text);
                failures = 0;
                since = "";
            } catch {
                failures += 1;
                // The time on the page is still that of the last update.
                since ||= root.querySelector(".delayq-redis-now .delayq-clock")?.textContent ?? "";
            }
            liveControls.querySelector("[data-failed]").textContent =
                failures ? texts.since.replace("%s", since) : "";
        }
        scheduleUpdate();
    };
    const scheduleUpdate = () => {
        clearTimeout(timer);
        if (liveControls.querySelector("button").getAttribute("aria-pressed") !== "true") return;
        const seconds = Number(liveControls.querySelector("select").value);
        timer = setTimeout(update, 1000 * Math.min(Math.max(60, seconds), seconds * 2 ** failures));
    };
    const startUpdating = () => {
        const button = liveControls.querySelector("button"), select = liveControls.querySelector("select");
        const key = "live." + liveControls.dataset.tab;
        texts.since = liveControls.dataset.since;
        button.setAttribute("aria-pressed", loadPreference(key, button.getAttribute("aria-pressed")));
        if ([...select.options].some((option) => option.value === loadPreference("every"))) select.value = loadPreference("every");
        button.addEventListener("click", () => {
            const on = button.getAttribute("aria-pressed") !== "true";
            button.setAttribute("aria-pressed", on);
            savePreference(key, on);
            scheduleUpdate();
        });
        select.addEventListener("change", () => { savePreference("every", select.value); scheduleUpdate(); });
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden && button.getAttribute("aria-pressed") === "true") update();
        });
        liveControls.hidden = false;
        scheduleUpdate();
    };

    /* A new panel needs its elements shown and its times updated. */
    const initPanel = () => {
        for (const hidden of root.querySelectorAll(".delayq-script-only[hidden]")) hidden.hidden = false;
        readRedisClock();
        root.dispatchEvent(new Event("delayq:updated"));
    };
    const rowBoxes = () => [...root.querySelectorAll("input[name=row]")];
    const showSelection = () => {
        const rows = rowBoxes(), selected = rows.filter((row) => row.checked).length;
        for (const all of root.querySelectorAll("input[data-select-all]")) {
            all.checked = rows.length > 0 && selected === rows.length;
            all.indeterminate = selected > 0 && selected < rows.length;
        }
        for (const shown of root.querySelectorAll("[data-selected-count]")) shown.textContent = selected.toLocaleString(document.documentElement.lang || undefined);
    };
    root.addEventListener("change", (event) => {
        if (event.target.matches("input[data-select-all]")) {
            for (const row of rowBoxes()) row.checked = event.target.checked;
        }
        showSelection();
    });
    root.addEventListener("click", async (event) => {
        const button = event.target.closest("[data-copy]");
        if (!button) return;
        const source = root.querySelector(button.dataset.copy);
        if (!source) return;
        try {
            await navigator.clipboard.writeText(source.dataset.text ?? source.textContent);
            announcement.textContent = button.dataset.copied || "";
            button.classList.add("copied");
            setTimeout(() => button.classList.remove("copied"), 1500);
        } catch {
            getSelection().selectAllChildren(source);
        }
    });
    // A browser shows the title of a column late, and never by touch.
    for (const type of ["pointerover", "focusin"]) root.addEventListener(type, (event) => {
        const column = event.target.closest?.(".delayq-plot a, .delayq-plot g");
        const shown = column?.closest("figure").querySelector(".delayq-figure");
        if (shown) shown.textContent = column.querySelector("title").textContent;
    });
    // The server refuses a second submit of one step, and the browser would show that refusal in place of the result.
    let sent = 0;
    document.addEventListener("submit", (event) => {
        if (!event.target.matches("form[method=post][action$='/action/']")) return;
        // After ten seconds the person may have stopped the page from loading, and may try again. Stopping comes first.
        if (Date.now() - sent < 10000 && event.submitter?.name !== "stop") event.preventDefault(); else sent = Date.now();
    });
    // A long action continues by itself, except when the person went back to its page. Without the script, a button continues it.
    const continueForm = root.querySelector("form[data-continue]");
    const navigation = performance.getEntriesByType("navigation")[0];
    if (continueForm && navigation?.type !== "back_forward") setTimeout(() => continueForm.requestSubmit(), 300);
    window.addEventListener("pageshow", (event) => { if (event.persisted) { sent = 0; showSelection(); } });

    initPanel();
    showSelection();
    setInterval(updateTimes, 1000);
    if (liveControls && panel.dataset.url) startUpdating();
}
