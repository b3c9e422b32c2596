/* A search that has not filled its page goes on by itself, until it has, or the list ends, or the person stops it. */
"use strict";
{
    const list = document.getElementById("delayq-live");
    const box = document.getElementById("delayq-searching");
    const [bar, text, stop] = box.children;
    const sums = { found: Number(box.dataset.found), searched: Number(box.dataset.searched) };
    const wanted = Number(box.dataset.wanted), total = Number(box.dataset.total);
    let stopped = false;

    const show = () => {
        const shown = (number) => number.toLocaleString(document.documentElement.lang || undefined);
        bar.value = sums.searched;
        text.textContent = box.dataset.text.replace("%f", shown(sums.found)).replace("%s", shown(sums.searched)).replace("%t", shown(total));
    };
    const replace = (selector, page) => {
        const old = list.querySelector(selector), fresh = page.querySelector(selector);
        if (old && fresh) old.replaceWith(fresh);
    };
    /* Put the rows of another page below those that are here. */
    const append = (page) => {
        const rows = list.querySelector(".delayq-jobs tbody"), fresh = page.querySelector(".delayq-jobs tbody");
        if (rows && fresh) rows.append(...fresh.rows);
        const empty = list.querySelector(".delayq-empty");
        const instead = page.querySelector(fresh ? "#delayq-live form:has(.delayq-jobs)" : ".delayq-empty");
        if (empty && instead) empty.replaceWith(instead);
        replace(".delayq-pager", page);
        for (const range of list.querySelectorAll(".delayq-row-range")) range.replaceChildren();
    };
    const search = async () => {
        let next = box.dataset.next;
        while (next && !stopped && sums.found < wanted && list.contains(box)) {
            const response = await fetch(next, { credentials: "same-origin", redirect: "error" });
            if (!response.ok) break;
            const page = new DOMParser().parseFromString(await response.text(), "text/html");
            const state = page.querySelector("[data-searched]");
            if (!state) break;
            sums.found += Number(state.dataset.found);
            sums.searched += Number(state.dataset.searched);
            next = state.dataset.next;
            append(page);
            show();
        }
        stop.hidden = true;
    };
    stop.addEventListener("click", () => { stopped = true; });
    box.hidden = false;
    show();
    search().catch(() => { stop.hidden = true; });
}
