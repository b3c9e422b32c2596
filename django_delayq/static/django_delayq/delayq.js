/* The little that these pages do with a script: live update, times that count on, select all, copy. */
"use strict";
{
    const root = document.getElementById("delayq");
    const words = root.dataset;
    const units = words.units.split("|");
    let skew = 0;

    const recall = (key, otherwise) => {
        try { return localStorage.getItem("delayq." + key) ?? otherwise; } catch { return otherwise; }
    };
    const remember = (key, value) => {
        try { localStorage.setItem("delayq." + key, value); } catch { /* It holds for this page only. */ }
    };

    /* Times: written by the server in words of the reader's language; only the numbers move on. */
    const away = (seconds) => {
        const size = Math.abs(seconds);
        if (size < 1) return words.now;
        const steps = [[99.5, 1], [99.5 * 60, 60], [47.5 * 3600, 3600], [Infinity, 86400]];
        const at = steps.findIndex(([limit]) => size < limit);
        const number = at ? Math.round(size / steps[at][1]) : Math.floor(size);
        const text = units[at].replace("%s", number.toLocaleString(document.documentElement.lang || undefined));
        return (seconds > 0 ? words.in : words.ago).replace("%s", text);
    };
    const countOn = () => {
        for (const time of root.querySelectorAll("time[datetime]")) {
            const at = new Date(time.dateTime);
            if (isNaN(at)) continue;
            const relative = time.querySelector(".delayq-away");
            const text = relative && away((at - Date.now() - skew) / 1000);
            if (relative && relative.textContent !== text) relative.textContent = text;
        }
    };
    const setClock = () => {
        // Redis's clock decides what is due, not that of the browser.
        const redis = root.querySelector(".delayq-redis-now time");
        if (redis) skew = new Date(redis.dateTime) - Date.now();
        countOn();
    };

    const mine = root.querySelector("[data-zone-link]");
    if (mine) mine.href = mine.getAttribute("href").replace(/zone=[^&]*$/, "zone=" + Intl.DateTimeFormat().resolvedOptions().timeZone);

    /* Live update */
    const bar = document.getElementById("delayq-updating");
    const said = document.getElementById("delayq-said");
    const panel = document.getElementById("delayq-live");
    let etag = null, failures = 0, timer = 0, saidAt = Date.now(), since = "";

    const isBusy = () => document.hidden || panel.contains(document.activeElement)
        || panel.querySelector("input[type=checkbox]:checked");
    const show = (html) => {
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
        prepare();
        const summary = panel.querySelector("[data-say]");
        if (summary && Date.now() - saidAt >= 30000) {
            said.textContent = summary.dataset.say;
            saidAt = Date.now();
        }
    };
    const update = async () => {
        if (!isBusy()) {
            try {
                const headers = etag ? { "If-None-Match": etag } : {};
                const answer = await fetch(panel.dataset.url, { headers, credentials: "same-origin", redirect: "error" });
                if (answer.status !== 304 && !answer.ok) throw new Error(answer.status);
                etag = answer.headers.get("ETag");
                // Read in any case: a browser gives up a request whose answer nobody reads.
                const text = await answer.text();
                if (answer.ok) show(text);
                failures = 0;
                since = "";
            } catch {
                failures += 1;
                // The time on the page is still that of the last update.
                since ||= root.querySelector(".delayq-redis-now .delayq-clock")?.textContent ?? "";
            }
            bar.querySelector("[data-failed]").textContent =
                failures ? words.since.replace("%s", since) : "";
        }
        plan();
    };
    const plan = () => {
        clearTimeout(timer);
        if (bar.querySelector("button").getAttribute("aria-pressed") !== "true") return;
        const seconds = Number(bar.querySelector("select").value);
        timer = setTimeout(update, 1000 * Math.min(Math.max(60, seconds), seconds * 2 ** failures));
    };
    const startUpdating = () => {
        const button = bar.querySelector("button"), select = bar.querySelector("select");
        const key = "live." + bar.dataset.tab;
        words.since = bar.dataset.since;
        button.setAttribute("aria-pressed", recall(key, button.getAttribute("aria-pressed")));
        if ([...select.options].some((option) => option.value === recall("every"))) select.value = recall("every");
        button.addEventListener("click", () => {
            const on = button.getAttribute("aria-pressed") !== "true";
            button.setAttribute("aria-pressed", on);
            remember(key, on);
            plan();
        });
        select.addEventListener("change", () => { remember("every", select.value); plan(); });
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden && button.getAttribute("aria-pressed") === "true") update();
        });
        bar.hidden = false;
        plan();
    };

    /* Whatever is drawn anew needs its script anew. */
    const prepare = () => {
        for (const hidden of root.querySelectorAll(".delayq-js[hidden]")) hidden.hidden = false;
        setClock();
        root.dispatchEvent(new Event("delayq:drawn"));
    };
    const ticks = () => [...root.querySelectorAll("input[data-row]")];
    const count = () => {
        const rows = ticks(), ticked = rows.filter((row) => row.checked).length;
        for (const all of root.querySelectorAll("input[data-select-all]")) {
            all.checked = rows.length > 0 && ticked === rows.length;
            all.indeterminate = ticked > 0 && ticked < rows.length;
        }
        for (const shown of root.querySelectorAll("[data-ticked]")) shown.textContent = ticked.toLocaleString(document.documentElement.lang || undefined);
    };
    root.addEventListener("change", (event) => {
        if (event.target.matches("input[data-select-all]")) {
            for (const row of ticks()) row.checked = event.target.checked;
        }
        count();
    });
    root.addEventListener("click", async (event) => {
        const button = event.target.closest("[data-copy]");
        if (!button) return;
        const source = root.querySelector(button.dataset.copy);
        if (!source) return;
        try {
            await navigator.clipboard.writeText(source.dataset.text ?? source.textContent);
            said.textContent = button.dataset.copied || "";
            button.classList.add("copied");
            setTimeout(() => button.classList.remove("copied"), 1500);
        } catch {
            getSelection().selectAllChildren(source);
        }
    });
    // Sent twice, a step of an action is refused, and the answer of the first is lost: the browser shows that of the last.
    let sent = 0;
    root.addEventListener("submit", (event) => {
        if (!event.target.matches(".delayq-confirm, [data-continue]")) return;
        // After ten seconds somebody may have stopped the page from loading, and may try again.
        if (Date.now() - sent < 10000) event.preventDefault(); else sent = Date.now();
    });
    // A long action goes on by itself; without the script its button is pressed. Gone back to, it waits to be pressed.
    const goOn = root.querySelector("form[data-continue]");
    const came = performance.getEntriesByType("navigation")[0];
    if (goOn && came?.type !== "back_forward") setTimeout(() => goOn.requestSubmit(), 300);
    window.addEventListener("pageshow", (event) => { if (event.persisted) { sent = 0; count(); } });

    prepare();
    count();
    setInterval(countOn, 1000);
    if (bar && panel.dataset.url) startUpdating();
}
